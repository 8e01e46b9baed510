//! A lane of a publisher with a mount point is proven to a receiver with the same one, which knows
//! of none, and to one outside that knows of it; to one that does not, it is altered.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use support::broker::Broker;
use support::line::{Seen, connect, publish_all, publisher, subscriber, until, until_proven};
use support::options;
use unbroken_client::audit::Scope;
use unbroken_merkle_log::ledger::Verdict;

/// Clients whose id begins with `in-` live in `m/`.
const CONFIG: &str = "[[roles]]\nallow = [\"all #\"]\n\n\
                      [[roles]]\nclients = [\"in-*\"]\nmount_point = \"m/\"\n";
/// A window and some more.
const ISSUED: u64 = 1_030;

#[tokio::test]
async fn a_lane_is_proven_inside_its_mount_point_and_across_it() {
    let broker = Broker::configured(CONFIG);
    let [inside, outside, unaware, from] = ["in-receiver", "outside", "unaware", "in-publisher"]
        .map(|id| options(broker.address(), id));
    let (inside, outside) = (connect(inside).await, connect(outside).await);
    let (unaware, from) = (connect(unaware).await, connect(from).await);
    let own = subscriber("data").scope(Scope::FromBeginning);
    let mut own = own.open(&inside).await.unwrap();
    let told = || {
        let line = subscriber("m/data").scope(Scope::FromBeginning);
        line.prefix("m/audit")
    };
    let mut across = told().across_mounts().open(&outside).await.unwrap();
    let mut untold = told().one_way().open(&unaware).await.unwrap();
    let producer = publisher(1).open_unspooled(&from).await.unwrap();
    publish_all(&producer, "data", 0..ISSUED).await;
    let seens = [Seen::default(), Seen::default(), Seen::default()];
    let [mut seen, mut seen_across, mut seen_untold] = seens;
    until_proven(&mut own, &mut seen, 1_024).await;
    until_proven(&mut across, &mut seen_across, 1_024).await;
    assert_eq!((seen.faults(), seen_across.faults()), (vec![], vec![]));
    until(&mut untold, &mut seen_untold, "a message", |seen| {
        !seen.messages.is_empty()
    })
    .await;
    let (_, verdict, _) = seen_untold.messages[0];
    assert!(matches!(verdict, Verdict::Altered | Verdict::Injected));
}
