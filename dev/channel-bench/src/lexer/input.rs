//! The texts that are read.

use std::fmt::Write;

/// A configuration as many have it.
pub(super) fn small() -> String {
    "listener 1883\n\
     allow_anonymous false\n\
     password_file /etc/mosquitto/passwd\n\
     persistence true\n\
     persistence_location /var/lib/mosquitto/\n\
     max_queued_messages 5000\n\
     persistent_client_expiration 14d\n"
        .to_owned()
}

/// A short, a middle and a long line.
pub(super) fn three_lines() -> String {
    "listener 1883\n\
     topic readwrite plant/boiler/temperature\n\
     connection north address 10.0.0.1:1883 10.0.0.2:1883 topic # both 2 local/ remote/\n"
        .to_owned()
}

/// Users and their topics, with a comment and an empty line now and then: at least so many bytes.
pub(super) fn large(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 512);
    let mut user = 0_u64;
    while text.len() < bytes {
        user += 1;
        // Lengths that vary, and no branch that a processor could learn.
        let noise = user.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let line = match noise % 8 {
            0 => format!("# devices of hall {noise}\n\n"),
            1 => format!("user device-{noise}\n"),
            2 | 3 => format!("topic read plant/hall{}/+/state\n", noise % 100),
            4 => format!("topic write plant/hall{}/{noise}/set\n", noise % 100),
            5 => format!("pattern readwrite devices/%c/{noise}\n"),
            6 => format!(
                "bridge_addresses 10.0.0.{} 10.0.1.{}\n",
                noise % 250,
                noise % 99
            ),
            _ => format!("max_queued_messages {noise}\n"),
        };
        // Writing to a string does not fail.
        let _ = text.write_str(&line);
    }
    text
}
