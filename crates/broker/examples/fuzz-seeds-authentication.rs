//! Writes seeds of the fuzz targets `scram` and `tokens`: the messages of a client, and tokens.

use std::fs;
use std::path::Path;

use unbroken_broker::fuzzing::Tokens;

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev/fuzz/corpus");
    let write = |target: &str, name: &str, bytes: &[u8]| {
        let directory = corpus.join(target);
        fs::create_dir_all(&directory)?;
        fs::write(directory.join(name), bytes)
    };
    let firsts = [
        "n,,n=user,r=nonce",
        "y,,n=user,r=nonce",
        "n,a=user,n=user,r=nonce,x=y",
        "n,,n=us=2Cer=3D,r=nonce",
        "p=tls-unique,,n=user,r=nonce",
        "n,,m=x,n=user,r=nonce",
    ];
    let last = "c=biws,r=nonceours,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    for (number, first) in (0..).zip(firsts) {
        for mode in 0..4_u8 {
            let length = u8::try_from(first.len()).unwrap_or(u8::MAX);
            let input = [&[mode, length], first.as_bytes(), last.as_bytes()].concat();
            write("scram", &format!("{number}-{mode}"), &input)?;
        }
    }
    let header = br#"{"alg":"HS256","typ":"JWT","kid":"1"}"#;
    let payloads = [
        r#"{"sub":"ann","exp":2000000100}"#,
        r#"{"sub":"ann","exp":2000000100,"nbf":1,"roles":["a","b"],"site":7}"#,
        r#"{"sub":"ann","exp":2000000100,"roles":"a b","aud":["x"],"iss":"y"}"#,
        r#"{"sub":"","exp":"soon","nbf":1e300}"#,
        "{}",
        "[]",
    ];
    for (number, payload) in (0..).zip(payloads) {
        let form = u8::try_from(2 * header.len() + 1).unwrap_or(1);
        let input = [&[form], &header[..], payload.as_bytes()].concat();
        write("tokens", &format!("signed-{number}"), &input)?;
        let mut whole = Tokens::signed(header, payload.as_bytes());
        // Its signature is another one: that secret stands in no input.
        whole.truncate(whole.len() - 8);
        write(
            "tokens",
            &format!("whole-{number}"),
            &[&[0], &*whole].concat(),
        )?;
    }
    Ok(())
}
