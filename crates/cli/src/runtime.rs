//! One thread for commands with the async client, and the signals that end them.

use std::io;

/// Runs to the end on this thread.
pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let done = runtime.block_on(work);
    // Somebody may still be reading standard input, which nothing can end.
    runtime.shutdown_background();
    Ok(done)
}

/// Ends at SIGINT, SIGTERM or SIGHUP, where there are such; otherwise at ctrl-c. From the call on,
/// which is within [`block_on`], none of them ends the process. A SIGHUP that is ignored, as behind
/// `nohup`, stays ignored.
pub(crate) fn interrupted() -> impl Future<Output = ()> {
    #[cfg(unix)]
    let asked = {
        use tokio::signal::unix::{SignalKind, signal};
        let interrupt = signal(SignalKind::interrupt());
        interrupt.and_then(|interrupt| {
            let hangup = if ignores_hangup() {
                None
            } else {
                Some(signal(SignalKind::hangup())?)
            };
            Ok((interrupt, signal(SignalKind::terminate())?, hangup))
        })
    };
    async move {
        #[cfg(unix)]
        if let Ok((mut interrupt, mut terminate, mut hangup)) = asked {
            let hung_up = async {
                match &mut hangup {
                    Some(hangup) => hangup.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hung_up => {}
            }
            return;
        }
        if tokio::signal::ctrl_c().await.is_err() {
            // There is no way to ask: it ends otherwise.
            std::future::pending::<()>().await;
        }
    }
}

/// Whether this process was started with SIGHUP ignored, as far as the system says it in `/proc`.
#[cfg(unix)]
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut ignored = status
        .lines()
        .filter_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.next().map(str::trim);
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask, 16).ok());
    // The lowest bit is that of signal 1.
    ignored.is_some_and(|mask| mask & 1 != 0)
}
