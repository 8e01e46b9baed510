//! How long a silent client is waited for.

use std::time::Duration;

/// The time without a packet from the client after which the connection counts as lost
/// `[MQTT-3.1.2-22]` `[MQTT311-3.1.2-24]`: one and a half times the keep alive, in seconds, of
/// CONNECT, or of the server if it announced its own `[MQTT-3.2.2-21]` `[MQTT-3.2.2-22]`. None for
/// 0: the client is waited for for ever.
pub fn limit(keep_alive_s: u16, server_keep_alive_s: Option<u16>) -> Option<Duration> {
    let seconds = server_keep_alive_s.unwrap_or(keep_alive_s);
    (seconds > 0).then(|| Duration::from_millis(u64::from(seconds) * 1_500))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(keep_alive_s: u16, server_keep_alive_s: Option<u16>, expect_ms: Option<u64>) {
        assert_eq!(
            limit(keep_alive_s, server_keep_alive_s),
            expect_ms.map(Duration::from_millis)
        );
    }

    // [MQTT-3.1.2-22] [MQTT-3.2.2-21] [MQTT-3.2.2-22] [MQTT311-3.1.2-24]
    #[test]
    fn a_silent_client_is_waited_for_one_and_a_half_times_its_keep_alive() {
        check(0, None, None);
        check(1, None, Some(1_500));
        check(60, None, Some(90_000));
        check(u16::MAX, None, Some(98_302_500));
        check(60, Some(10), Some(15_000));
        check(0, Some(10), Some(15_000));
        check(60, Some(0), None);
    }
}
