//! What one client makes the broker log: a line for each packet, a bounded number of lines, and
//! none of another client's.

use unbroken_acceptance::Launch;
use unbroken_acceptance::raw::Subscribe;

const CONFIG: &str = "[limits]\nsubscriptions_per_session_max = 100\n";

fn filters(lead: &str, count: usize) -> Subscribe {
    Subscribe {
        filters: (0..count)
            .map(|number| (format!("{lead}/{number}"), 0))
            .collect(),
        ..Subscribe::default()
    }
}

#[test]
fn refused_filters_of_a_packet_share_a_line_and_its_client_has_a_share_of_the_log() {
    let broker = Launch::config(CONFIG).start();
    let mut loud = broker.connect("loud");
    loud.subscribe(&filters("taken", 100));
    assert_eq!(loud.subscribe(&filters("more", 100)), [0x97; 100]);
    let line = broker.wait_for_log("subscription refused");
    assert!(line.contains("client=loud filter=more/0 "), "{line}");
    assert!(line.ends_with("count=100"), "{line}");
    for number in 0..1_000 {
        loud.subscribe(&filters(&format!("again/{number}"), 1));
        if number % 100 == 0 {
            broker.connect(&format!("quiet-{number:04}")).disconnect();
        }
    }
    let line = broker.wait_for_log("log lines suppressed");
    assert!(
        line.contains("client=loud kind=\"subscription refused\""),
        "{line}"
    );
    for number in (0..1_000).step_by(100) {
        broker.wait_for_log(&format!("disconnected client=quiet-{number:04}"));
    }
    let log = broker.log();
    let mut lines = log.lines();
    assert!(!lines.any(|line| line.contains("suppressed") && line.contains("client=quiet")));
}
