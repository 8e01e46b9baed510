//! One thread for the commands that use the async client, and the wish of the user to end it.

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

/// Ends at SIGINT or SIGTERM, where there are such; otherwise at ctrl-c. From the call on, which is
/// within [`block_on`], neither ends the process.
pub(crate) fn interrupted() -> impl Future<Output = ()> {
    #[cfg(unix)]
    let asked = {
        use tokio::signal::unix::{SignalKind, signal};
        let interrupt = signal(SignalKind::interrupt());
        interrupt.and_then(|interrupt| Ok((interrupt, signal(SignalKind::terminate())?)))
    };
    async move {
        #[cfg(unix)]
        if let Ok((mut interrupt, mut terminate)) = asked {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
        if tokio::signal::ctrl_c().await.is_err() {
            // There is no way to ask: it ends otherwise.
            std::future::pending::<()>().await;
        }
    }
}
