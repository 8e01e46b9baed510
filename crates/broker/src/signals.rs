//! Signals as notices: a thread turns them into values, so that no handler runs broker code.

use std::io;
use std::sync::mpsc::Sender;

use crate::notice::{Notice, Signal};

/// Sends a notice for each signal from now on.
#[cfg(unix)]
pub(crate) fn watch(notify: Sender<Notice>) -> io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    use signal_hook::iterator::Signals;

    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let forward = move || {
        for signal in &mut signals {
            let signal = if signal == SIGHUP {
                Signal::Reload
            } else {
                Signal::Terminate
            };
            if notify.send(Notice::Signal(signal)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(forward)?;
    Ok(())
}

/// On other systems the process is ended without draining.
#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "the same signature everywhere")]
pub(crate) fn watch(_notify: Sender<Notice>) -> io::Result<()> {
    Ok(())
}
