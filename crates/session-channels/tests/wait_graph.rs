//! Those who wait for each other are named; those who only look as if they did are not.
//!
//! Tasks are polled by hand, so it is known who closes a circle.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use session_channels::debug::{self, OnDrop, on_drop, wait_graph};
use session_channels::{
    PortSet, Why, block_on, oneshot, proto, rendezvous, select, select_blocking, shared, stream,
};

proto! {
    pub asking {
        question: send { Ask -> answer, Enough -> ! }
        answer: recv { Tell -> question }
    }
}

use asking::{Answer, Question};

fn watch() {
    on_drop(OnDrop::Panic);
    wait_graph(true);
}

/// A task that is polled when the test says so. It stays when the test ends: an end that is dropped
/// too early panics in this mode.
struct Task(Pin<Box<dyn Future<Output = ()>>>);

impl Task {
    fn new(name: &str, work: impl Future<Output = ()> + 'static) -> Self {
        Self(Box::pin(debug::task(name, work)))
    }

    /// Goes on as far as it can; whether that was the end.
    fn run(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.0.as_mut().poll(&mut context).is_ready()
    }

    fn waits(&mut self) {
        assert!(!self.run(), "it waits");
    }

    /// Waits, and says what circle it closes by that.
    fn closes(mut self) -> String {
        let told = catch_unwind(AssertUnwindSafe(|| self.run()));
        *told.expect_err("it closes a circle").downcast().unwrap()
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        std::mem::forget(std::mem::replace(&mut self.0, Box::pin(async {})));
    }
}

fn thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let started = thread::Builder::new().name(name.into()).spawn(work);
    started.expect("a thread can be had")
}

/// The words of the circle through these, told by any of them; and that it was told once.
fn told_once<const N: usize>(threads: [JoinHandle<()>; N], circles: [String; N]) {
    let ends = threads.map(JoinHandle::join);
    let panics = ends.into_iter().filter_map(Result::err);
    let words: Vec<String> = panics.map(|panic| *panic.downcast().unwrap()).collect();
    let told = words.iter().filter(|words| circles.contains(words));
    assert_eq!(told.count(), 1, "{words:?}");
}

/// Asks, holding another end, and drops that when it is told something or nobody will tell it.
fn asks_in_vain(
    name: &str,
    all_hold: &Arc<Barrier>,
    asks: asking::client::Question,
    holds: asking::server::Question,
) -> JoinHandle<()> {
    let all_hold = Arc::clone(all_hold);
    thread(name, move || {
        debug::holds(&holds);
        all_hold.wait();
        // The first to panic lets the next one go on, which then drops its end too early.
        let _ = asks.ask().recv_blocking();
        drop(holds);
    })
}

#[test]
fn two_threads_that_wait_for_each_other_are_named() {
    watch();
    let [(ask_a, a), (ask_b, b)] = [(); 2].map(|()| asking::init());
    let all_hold = Arc::new(Barrier::new(2));
    let threads = [
        asks_in_vain("x", &all_hold, ask_b, a),
        asks_in_vain("y", &all_hold, ask_a, b),
    ];
    let circle = |[x, y]: [&str; 2]| {
        format!(
            "nobody will go on: thread `{x}` waits in `asking.answer` for thread `{y}`, \
             which waits in `asking.answer` for thread `{x}`"
        )
    };
    told_once(threads, [["x", "y"], ["y", "x"]].map(circle));
}

#[test]
fn three_threads_that_wait_for_each_other_are_named() {
    watch();
    let [(ask_a, a), (ask_b, b), (ask_c, c)] = [(); 3].map(|()| asking::init());
    let all_hold = Arc::new(Barrier::new(3));
    let threads = [
        asks_in_vain("a", &all_hold, ask_b, a),
        asks_in_vain("b", &all_hold, ask_c, b),
        asks_in_vain("c", &all_hold, ask_a, c),
    ];
    let circle = |[x, y, z]: [&str; 3]| {
        format!(
            "nobody will go on: thread `{x}` waits in `asking.answer` for thread `{y}`, \
             which waits in `asking.answer` for thread `{z}`, \
             which waits in `asking.answer` for thread `{x}`"
        )
    };
    let circles = [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"]].map(circle);
    told_once(threads, circles);
}

#[test]
fn threads_that_answer_each_other_are_no_circle() {
    watch();
    let (mut client, server) = asking::init();
    let serving = thread::spawn(move || {
        let mut server = server;
        while let Ok(Question::Ask(answer)) = server.recv_blocking() {
            server = answer.tell();
        }
    });
    for _ in 0..2000 {
        let told = client.ask().recv_blocking();
        let Answer::Tell(next) = told.expect("it answers");
        client = next;
    }
    client.enough();
    serving.join().expect("no circle was reported");
}

/// Asks at one end, which is never answered, while it holds another.
async fn asks(client: asking::client::Question, holds: asking::server::Question) {
    debug::holds(&holds);
    let _ = client.ask().recv().await;
    drop(holds);
}

#[test]
fn two_tasks_that_wait_for_each_other_are_named() {
    watch();
    let [(ask_a, a), (ask_b, b)] = [(); 2].map(|()| asking::init());
    let mut ann = Task::new("ann", asks(ask_b, a));
    let bob = Task::new("bob", asks(ask_a, b));
    ann.waits();
    assert_eq!(
        bob.closes(),
        "nobody will go on: task `bob` waits in `asking.answer` for task `ann`, \
         which waits in `asking.answer` for task `bob`"
    );
}

#[test]
fn three_tasks_that_wait_for_each_other_are_named_whatever_they_wait_with() {
    watch();
    let (mut letters, mut post) = stream::<u8>(1);
    let (mut parcels, mut counter) = rendezvous::<u8>();
    let (order, ordered) = oneshot::<u8>();
    let mut writer = Task::new("writer", async move {
        debug::holds(&order);
        letters.send(1).await.unwrap();
        letters.send(2).await.unwrap(); // there is room for one
        drop(order);
    });
    let mut carrier = Task::new("carrier", async move {
        debug::holds(&post);
        parcels.send(3).await.unwrap();
        let _ = post.recv().await;
    });
    let baker = Task::new("baker", async move {
        debug::holds(&counter);
        let _ = ordered.await;
        let _ = counter.recv().await;
    });
    writer.waits(); // it gives way first
    writer.waits();
    carrier.waits();
    assert_eq!(
        baker.closes(),
        "nobody will go on: task `baker` waits in `oneshot.value` for task `writer`, \
         which waits in `stream.send` for task `carrier`, \
         which waits in `rendezvous.taken` for task `baker`"
    );
}

#[test]
fn a_thread_and_a_task_that_wait_for_each_other_are_named() {
    watch();
    let (to_thread, mut orders) = stream::<u8>(1);
    let (mut to_task, mut goods) = stream::<u8>(1);
    let mut task = Task::new("task", async move {
        debug::holds(&to_thread);
        let _ = goods.recv().await;
        drop(to_thread);
    });
    task.waits();
    let told = thread("thread", move || {
        debug::holds(&to_task);
        let _ = orders.recv_blocking();
        let _ = to_task.try_send(1);
    });
    let words = *told.join().unwrap_err().downcast::<String>().unwrap();
    assert_eq!(
        words,
        "nobody will go on: thread `thread` waits in `stream.receive` for task `task`, \
         which waits in `stream.receive` for thread `thread`"
    );
}

/// Ann waits for Bob or Cid, Bob for Ann; Cid does as is said.
fn select_of_two(
    cid: impl FnOnce(stream::Sender<u8>, stream::Receiver<u8>) -> Task,
) -> (Task, Task, Task) {
    watch();
    let (to_bob, mut bobs) = stream::<u8>(1);
    let (to_cid, cids) = stream::<u8>(1);
    let (from_bob, mut of_bob) = stream::<u8>(1);
    let (from_cid, mut of_cid) = stream::<u8>(1);
    let mut ann = Task::new("ann", async move {
        debug::holds(&to_bob);
        debug::holds(&to_cid);
        select! {
            of_bob => { _ => {}, closed(_) => {} }
            of_cid => { _ => {}, closed(_) => {} }
        }
        drop((to_bob, to_cid));
    });
    let mut bob = Task::new("bob", async move {
        debug::holds(&from_bob);
        let _ = bobs.recv().await;
        drop(from_bob);
    });
    ann.waits();
    bob.waits();
    ann.waits(); // looks once more, and has still another way out
    (ann, bob, cid(from_cid, cids))
}

#[test]
fn who_selects_is_in_a_circle_only_when_none_of_its_places_can_come() {
    let (mut ann, mut bob, mut cid) = select_of_two(|mut from_cid, _cids| {
        Task::new("cid", async move { from_cid.send(1).await.unwrap() })
    });
    assert!(
        cid.run() && ann.run() && bob.run(),
        "all come to their ends"
    );
    let (_ann, mut bob, cid) = select_of_two(|from_cid, mut cids| {
        Task::new("cid", async move {
            debug::holds(&from_cid);
            let _ = cids.recv().await;
            drop(from_cid);
        })
    });
    bob.waits();
    assert_eq!(
        cid.closes(),
        "nobody will go on: task `cid` waits in `stream.receive` for task `ann`, \
         which waits in `stream.receive`, one of 2, for task `cid`"
    );
}

#[test]
fn a_wait_that_something_else_can_end_is_in_no_circle() {
    watch();
    // a time, a future of another kind, the task itself, and a wait that was given up
    for other in 0..4 {
        let (to_bob, mut bobs) = stream::<u8>(1);
        let (to_ann, mut anns) = stream::<u8>(1);
        let mut ann = Task::new("ann", async move {
            debug::holds(&to_bob);
            match other {
                0 => drop(anns.recv_timeout(Duration::from_hours(1)).await),
                1 => {
                    let mut elsewhere = None;
                    poll_fn(|context| {
                        elsewhere = Some(context.waker().clone());
                        anns.poll_ready(context)
                    })
                    .await;
                }
                2 => {
                    poll_fn(|context| {
                        context.waker().wake_by_ref();
                        anns.poll_ready(context)
                    })
                    .await;
                }
                _ => {
                    let mut once = Some(());
                    poll_fn(|context| match once.take() {
                        Some(()) => anns.poll_ready(context).map(drop),
                        None => Poll::Ready(()),
                    })
                    .await;
                    std::future::pending::<()>().await;
                }
            }
            drop(to_bob);
        });
        let mut bob = Task::new("bob", async move {
            debug::holds(&to_ann);
            let _ = bobs.recv().await;
            drop(to_ann);
        });
        ann.waits();
        if other == 3 {
            ann.waits();
        }
        bob.waits();
        ann.waits();
    }
}

#[test]
fn what_was_sent_before_a_wait_breaks_the_circle() {
    watch();
    let (mut to_bob, mut bobs) = stream::<u8>(1);
    let (mut to_ann, mut anns) = stream::<u8>(1);
    let mut ann = Task::new("ann", async move {
        debug::holds(&to_bob);
        assert_eq!(anns.recv().await, Ok(1));
        to_bob.send(2).await.unwrap();
    });
    let mut bob = Task::new("bob", async move {
        to_ann.send(1).await.unwrap();
        debug::holds(&to_ann);
        assert_eq!(bobs.recv().await, Ok(2));
    });
    ann.waits();
    bob.waits(); // Ann is still on record, but has been sent something
    assert!(ann.run() && bob.run());
}

#[test]
fn a_set_is_in_a_circle_only_when_none_of_its_ports_can_give_anything() {
    watch();
    let (to_bob, mut bobs) = stream::<u8>(1);
    let (to_cid, mut cids) = stream::<u8>(1);
    let (from_all, mut all) = shared::<u8>(1);
    let (of_bob, mut of_cid) = (from_all.clone(), from_all);
    let mut ann = Task::new("ann", async move {
        debug::holds(&to_bob);
        debug::holds(&to_cid);
        while all.recv().await.is_ok() {}
        drop((to_bob, to_cid));
    });
    let mut bob = Task::new("bob", async move {
        debug::holds(&of_bob);
        let _ = bobs.recv().await;
        drop(of_bob);
    });
    let cid = Task::new("cid", async move {
        of_cid.send(1).await.unwrap();
        debug::holds(&of_cid);
        let _ = cids.recv().await;
        drop(of_cid);
    });
    ann.waits();
    bob.waits();
    ann.waits();
    let mut cid = cid;
    cid.waits(); // it has sent something
    assert_eq!(
        ann.closes(),
        "nobody will go on: task `ann` waits in `stream.receive`, one of 2, for task `cid`, \
         which waits in `stream.receive` for task `ann`"
    );
}

#[test]
fn threads_are_named_whatever_they_wait_with() {
    watch();
    for how in ["a select", "a future", "a set", "two places"] {
        let (to_task, mut tasks) = stream::<u8>(1);
        let (from_task, mut one) = stream::<u8>(1);
        let (also_from_task, mut two) = stream::<u8>(1);
        let mut task = Task::new("task", async move {
            debug::holds(&from_task);
            debug::holds(&also_from_task);
            let _ = tasks.recv().await;
            drop((from_task, also_from_task));
        });
        task.waits();
        let waits = thread(how, move || {
            debug::holds(&to_task);
            match how {
                "a select" => select_blocking! { one => { _ => {}, closed(_) => {} } },
                "a future" => drop(block_on(one.recv())),
                "a set" => {
                    let mut set = PortSet::new();
                    set.insert(one);
                    let _ = set.next_blocking();
                }
                _ => select_blocking! {
                    one => { _ => {}, closed(_) => {} }
                    two => { _ => {}, closed(_) => {} }
                },
            }
            drop(to_task);
        });
        let words = *waits.join().unwrap_err().downcast::<String>().unwrap();
        let of_how_many = if how == "two places" {
            ", one of 2,"
        } else {
            ""
        };
        assert_eq!(
            words,
            format!(
                "nobody will go on: thread `{how}` waits in `stream.receive`{of_how_many} for task \
                 `task`, which waits in `stream.receive` for thread `{how}`"
            )
        );
    }
}

#[test]
fn a_session_that_has_ended_leaves_nothing_on_record() {
    watch();
    let (client, server) = asking::init();
    let mut task = Task::new("task", async move {
        let Ok(Question::Enough) = server.recv().await else {
            panic!("that is what was sent")
        };
    });
    task.waits();
    client.enough();
    assert!(task.run());
    let (sender, mut receiver) = stream::<u8>(1);
    debug::holds(&sender);
    drop(sender);
    assert_eq!(receiver.recv_blocking().unwrap_err().why, Why::Finished);
}
