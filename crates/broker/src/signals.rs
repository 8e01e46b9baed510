//! Signals as notices: a thread turns them into values, so that no handler runs broker code.

use std::io;
use std::sync::mpsc::Sender;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::server::Notice;

/// What somebody wants of the broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Signal {
    /// End in order: SIGTERM, SIGINT.
    Terminate,
    /// Read the configuration again: SIGHUP.
    Reload,
}

/// Sends a notice for each signal from now on.
pub(crate) fn watch(notify: Sender<Notice>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
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
        })?;
    Ok(())
}
