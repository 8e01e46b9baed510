//! SIGINT and SIGTERM for `pub` and `sub`: they say goodbye to the broker, so that no will is
//! published.

#[cfg(unix)]
pub(crate) fn watch(client: &crate::client::Client) -> std::io::Result<()> {
    use signal_hook::consts::{SIGINT, SIGTERM};

    let outside = client.outside();
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM])?;
    let run = move || {
        for _ in signals.forever() {
            if !outside.send(crate::client::Outside::Interrupted) {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(run)
        .map(drop)
}

/// Elsewhere the system ends the process, and the broker finds out.
#[cfg(not(unix))]
pub(crate) fn watch(_client: &crate::client::Client) -> std::io::Result<()> {
    Ok(())
}
