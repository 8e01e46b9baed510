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

/// Ends at SIGINT or SIGTERM, where there are such; otherwise at ctrl-c.
pub(crate) async fn interrupted() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let asked = (
            signal(SignalKind::interrupt()),
            signal(SignalKind::terminate()),
        );
        if let (Ok(mut interrupt), Ok(mut terminate)) = asked {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            return;
        }
    }
    if tokio::signal::ctrl_c().await.is_err() {
        // Nobody can ask: it ends otherwise.
        std::future::pending::<()>().await;
    }
}
