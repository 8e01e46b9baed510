//! The rule in small worlds: senders with windows, clients of a closed loop, turns of two kinds.

use super::*;

/// A world in which each of `senders` has at most `window` frames under way and sends `rate`
/// frames a second if it may; the loop needs `read_us` for a read and `frame_us` for a frame.
struct World {
    senders: usize,
    window: f64,
    rate: f64,
    read_us: f64,
    frame_us: f64,
    /// Each frame comes from a peer that was just spoken to.
    conversation: bool,
}

#[derive(Debug, Default)]
struct Seen {
    frames: f64,
    waits: u32,
    turns: u32,
    time: Duration,
}

impl World {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "small whole numbers"
    )]
    /// Lets the loop run for some time.
    fn run(&self, coalescer: &mut Coalescer, time: Duration) -> Seen {
        let mut seen = Seen::default();
        let mut pending = vec![0.0f64; self.senders];
        let (mut gap, mut wait) = (Duration::ZERO, Duration::ZERO);
        while seen.time < time {
            // What came during the time since the last look; a sender with a full window waits.
            let mut idle = Duration::ZERO;
            loop {
                for frames in &mut pending {
                    *frames = (*frames + self.rate * gap.as_secs_f64()).min(self.window);
                }
                if pending.iter().any(|frames| *frames >= 1.0) {
                    break;
                }
                gap = Duration::from_micros(10);
                idle += gap;
                seen.time += gap;
            }
            let mut turn = Turn {
                idle,
                waited: wait,
                ..Turn::default()
            };
            let mut busy_us = 2.0;
            for frames in pending.iter_mut().filter(|frames| **frames >= 1.0) {
                let whole = frames.floor();
                *frames -= whole;
                busy_us += self.read_us + self.frame_us * whole;
                turn.reads += 1;
                turn.frames += whole as u64;
                turn.answers += u64::from(self.conversation && whole < 2.0);
            }
            turn.busy = Duration::from_secs_f64(busy_us / 1e6);
            wait = coalescer.turn_ended(&turn, always);
            seen.waits += u32::from(!wait.is_zero());
            seen.turns += 1;
            seen.frames += turn.frames as f64;
            gap = turn.busy + wait;
            seen.time += gap;
        }
        seen
    }
}

const STREAM: World = World {
    senders: 50,
    window: 100.0,
    rate: 4_000.0,
    read_us: 5.0,
    frame_us: 0.5,
    conversation: false,
};
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_stream_that_presses_the_loop_is_gathered() {
    let mut coalescer = Coalescer::new(1);
    STREAM.run(&mut coalescer, SECOND);
    let seen = STREAM.run(&mut coalescer, SECOND);
    assert!(seen.waits * 10 > seen.turns * 9, "{seen:?}");
    assert!(
        seen.frames > 195_000.0,
        "all that was sent came through: {seen:?}"
    );
}

#[test]
fn a_wait_that_gathers_only_writes_is_worth_it() {
    let mut coalescer = Coalescer::new(1);
    let (mut waits, mut wait) = (0, Duration::ZERO);
    for _ in 0..1_000 {
        // Each publisher's window of 50 is in one read, however long it was left alone; each
        // message goes to two of 500 receivers.
        let readable = if wait.is_zero() { 1 } else { 10 };
        let writes = if wait.is_zero() { 100 } else { 500 };
        let turn = Turn {
            reads: readable,
            writes,
            frames: readable * 150,
            busy: Duration::from_micros(writes * 3),
            waited: wait,
            ..Turn::default()
        };
        wait = coalescer.turn_ended(&turn, always);
        waits += u32::from(!wait.is_zero());
    }
    assert!(waits > 800, "{waits}");
}

#[test]
fn a_flood_that_fills_its_reads_never_waits() {
    let mut coalescer = Coalescer::new(1);
    let waits = (0..1_000).filter(|_| {
        let turn = Turn {
            reads: 1,
            writes: 1,
            frames: 1_000,
            busy: Duration::from_micros(300),
            ..Turn::default()
        };
        !coalescer.turn_ended(&turn, always).is_zero()
    });
    assert_eq!(waits.count(), 0);
}

/// Its publisher writes 32 messages at once.
#[test]
fn a_flood_never_waits_beside_somebody_quiet_either() {
    let mut coalescer = Coalescer::new(1);
    let waits = (0..10_000).filter(|turn| {
        let quiet = u64::from(turn % 50 == 0);
        let turn = Turn {
            reads: 1 + quiet,
            writes: 1 + quiet,
            frames: 64 + 2 * quiet,
            busy: Duration::from_micros(40),
            ..Turn::default()
        };
        !coalescer.turn_ended(&turn, always).is_zero()
    });
    assert_eq!(waits.count(), 0);
}

#[test]
fn a_light_load_never_waits() {
    let mut coalescer = Coalescer::new(1);
    let light = World {
        rate: 400.0,
        ..STREAM
    };
    assert_eq!(light.run(&mut coalescer, SECOND * 5).waits, 0);
}

#[test]
fn requests_and_replies_never_wait_however_many_there_are() {
    let mut coalescer = Coalescer::new(1);
    let ping = World {
        window: 1.0,
        rate: 50_000.0,
        conversation: true,
        ..STREAM
    };
    assert_eq!(ping.run(&mut coalescer, SECOND * 5).waits, 0);
}

#[test]
fn a_sender_with_a_small_window_is_hardly_ever_made_to_wait() {
    for window in [1.0, 10.0] {
        let mut coalescer = Coalescer::new(1);
        let narrow = World {
            senders: 1,
            window,
            rate: 150_000.0,
            ..STREAM
        };
        let seen = narrow.run(&mut coalescer, SECOND * 20);
        let waited = Duration::from_millis(2) * seen.waits;
        assert!(waited < seen.time / 50, "{window}: {seen:?}");
    }
}

#[test]
fn waiting_ends_soon_after_the_stream() {
    let mut coalescer = Coalescer::new(1);
    STREAM.run(&mut coalescer, SECOND);
    let light = World {
        rate: 400.0,
        ..STREAM
    };
    light.run(&mut coalescer, SECOND / 10);
    assert_eq!(light.run(&mut coalescer, SECOND).waits, 0);
}

#[test]
fn no_wait_is_longer_than_the_turn_before_it_beyond_a_moment() {
    let after = |busy_us| {
        let mut coalescer = waiting(RUNGS.len() - 1);
        let busy = Duration::from_micros(busy_us);
        let turn = Turn {
            reads: 1,
            frames: 2,
            busy,
            ..Turn::default()
        };
        coalescer.turn_ended(&turn, always)
    };
    assert_eq!(after(10), TURN_MIN);
    assert_eq!(after(1_500), Duration::from_micros(1_500));
    assert_eq!(after(5_000), Duration::from_millis(5));
    assert_eq!(after(50_000), RUNGS[RUNGS.len() - 1]);
}

#[test]
fn the_wait_of_a_first_trial_has_an_end_too() {
    for (shards, longest) in [(1, 16), (2, 16), (3, 8), (8, 4)] {
        let longest = Duration::from_millis(longest);
        let mut coalescer = Coalescer::new(shards);
        let turn = Turn {
            reads: 500,
            frames: 500,
            busy: SECOND,
            ..Turn::default()
        };
        let waits = (0..20).map(|_| coalescer.turn_ended(&turn, always));
        let most = waits.max().unwrap_or_default();
        assert!(
            Duration::ZERO < most && most <= longest,
            "{most:?} of {shards}"
        );
    }
}

/// A shard of several has a part of what one would have.
#[test]
fn behind_the_turn_of_one_shard_of_three_a_wait_is_as_long_as_the_turn_of_one_alone() {
    let mut coalescer = waiting(RUNGS.len() - 1);
    coalescer.shards = 3;
    let mut after = |busy_us| {
        let turn = Turn {
            reads: 1,
            busy: Duration::from_micros(busy_us),
            ..Turn::default()
        };
        coalescer.turn_ended(&turn, always)
    };
    assert_eq!(after(300), TURN_MIN);
    assert_eq!(after(500), Duration::from_micros(1_500));
    assert_eq!(after(1_100), Duration::from_micros(3_300));
    assert_eq!(after(6_000), RUNGS[RUNGS.len() - 1] / 2);
}

const NOTHING: Flow = Flow {
    rate: 0.0,
    worth: 0.0,
};

/// Waits on this rung.
pub(crate) fn waiting(rung: usize) -> Coalescer {
    Coalescer {
        mode: Mode::Waiting(Climb::from(rung, NOTHING, 0.0)),
        times: Some(always()),
        ..Coalescer::new(1)
    }
}

/// The rung on which it waits.
fn rung(coalescer: &Coalescer) -> Option<usize> {
    match coalescer.mode {
        Mode::Waiting(climb) => Some(climb.tried),
        _ => None,
    }
}

/// As on a machine whose system calls take ten times as long: 500 pairs, each call 12 µs, and
/// clients who need 8 µs for a message and 16 µs for each time that they have some. Answers the
/// waits of so many seconds.
fn slow(coalescer: &mut Coalescer, seconds: u32) -> Vec<Duration> {
    let mut busy = Duration::from_millis(12);
    waits_of_turns(coalescer, seconds, |wait| {
        let each = ((busy + wait).as_micros() / 500).saturating_sub(16) / 8;
        let frames = 500 * u64::try_from(each.max(1)).unwrap();
        busy = Duration::from_millis(12) + Duration::from_nanos(300 * frames);
        Turn {
            reads: 500,
            writes: 500,
            frames: 2 * frames,
            busy,
            ..Turn::default()
        }
    })
}

/// The waits of so many seconds; `turn` is what comes behind one.
fn waits_of_turns(
    coalescer: &mut Coalescer,
    seconds: u32,
    mut turn: impl FnMut(Duration) -> Turn,
) -> Vec<Duration> {
    let (mut time, mut waited, mut waits) = (Duration::ZERO, Duration::ZERO, Vec::new());
    while time < SECOND * seconds {
        let turn = Turn {
            waited,
            ..turn(waited)
        };
        time += turn.length();
        waited = coalescer.turn_ended(&turn, always);
        waits.push(waited);
    }
    waits
}

#[test]
fn behind_long_turns_a_wait_is_long_where_more_gets_through() {
    let mut coalescer = Coalescer::new(1);
    slow(&mut coalescer, 2);
    let usual = usual(slow(&mut coalescer, 10));
    assert!(usual > Duration::from_millis(10), "{usual:?}");
}

#[test]
fn where_no_more_gets_through_no_wait_is_long() {
    let mut coalescer = Coalescer::new(1);
    // All that is sent gets through at once.
    let world = World {
        senders: 500,
        rate: 130.0,
        read_us: 24.0,
        ..STREAM
    };
    world.run(&mut coalescer, SECOND * 3);
    let seen = world.run(&mut coalescer, SECOND * 10);
    // A turn of 12 ms and 2.
    assert!(seen.turns > 10_000 / 16, "{seen:?}");
}

#[test]
fn behind_long_turns_comparing_takes_no_more_of_the_time() {
    let mut coalescer = Coalescer::new(1);
    slow(&mut coalescer, 2);
    let waits = slow(&mut coalescer, 20);
    let without = waits.iter().filter(|wait| wait.is_zero()).count();
    assert!(without * 12 < waits.len(), "{without} of {}", waits.len());
}

/// Half of this turn takes more than a fifth of the rate, and 2 ms do not.
#[test]
fn where_a_long_trial_is_lost_a_shorter_one_is_tried() {
    let prompt = Turn {
        reads: 200,
        writes: 200,
        frames: 1_000,
        busy: Duration::from_millis(8),
        ..Turn::default()
    };
    let waited = Turn {
        frames: 1_190,
        ..prompt
    };
    let waits = waits_of(1_000, prompt, waited);
    assert!(waits > 800, "{waits}");
}

#[test]
fn however_long_turns_are_waiting_is_compared_within_six_seconds() {
    let mut coalescer = waiting(RUNGS.len() - 1);
    let turn = Turn {
        reads: 100,
        frames: 400,
        busy: SECOND / 10,
        ..Turn::default()
    };
    let turns = (0..1_000).take_while(|_| {
        coalescer.turn_ended(&turn, always);
        coalescer.is_waiting()
    });
    assert!(turns.count() < 60);
}

#[test]
fn a_shorter_wait_that_gathers_nothing_is_only_given_up() {
    let mut coalescer = waiting(5);
    let mut wait = RUNGS[5];
    for _ in 0..300 {
        let turn = Turn {
            reads: 100,
            frames: if wait < RUNGS[5] { 100 } else { 400 },
            busy: Duration::from_millis(4),
            waited: wait,
            ..Turn::default()
        };
        wait = coalescer.turn_ended(&turn, always);
        assert!(coalescer.is_waiting());
    }
}

/// Clients of a closed loop: they have sent all that they may after so much time, and read all
/// that was written meanwhile. What a call takes is most of what a message costs, and no wait
/// makes it cheaper when all is there.
fn closed_loop(coalescer: &mut Coalescer, full_after: Duration, seconds: u32) -> Vec<Duration> {
    waits_of_turns(coalescer, seconds, |wait| {
        let full = wait.as_secs_f64() / full_after.as_secs_f64();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a small whole number"
        )]
        let frames = 200 + (800.0 * full.min(1.0)) as u64;
        Turn {
            reads: 200,
            frames,
            busy: Duration::from_millis(1) + Duration::from_nanos(300 * frames),
            ..Turn::default()
        }
    })
}

/// The wait after most turns.
fn usual(mut waits: Vec<Duration>) -> Duration {
    waits.sort();
    waits[waits.len() / 2]
}

fn assert_enough(usual: Duration, full_after: Duration) {
    assert!(
        full_after <= usual && usual <= full_after * 3 / 2,
        "{usual:?} where {full_after:?} is enough"
    );
}

#[test]
fn a_stream_with_pauses_is_gathered_each_time_it_comes() {
    let (prompt, waited) = stream(0);
    let mut coalescer = Coalescer::new(1);
    for burst in 0..10 {
        let waits = waits_on(&mut coalescer, 300, prompt, waited);
        assert!(waits > 240, "{waits} of 300 in burst {burst}");
        let pause = Turn {
            idle: SECOND,
            ..prompt
        };
        waits_on(&mut coalescer, 5, pause, pause);
    }
}

#[test]
fn a_wait_lasts_until_clients_have_sent_what_they_may_and_no_longer() {
    for full_after_us in [100, 200, 450, 900] {
        let mut coalescer = Coalescer::new(1);
        let full_after = Duration::from_micros(full_after_us);
        let waits = closed_loop(&mut coalescer, full_after, 3);
        let usual = usual(waits);
        assert_enough(usual, full_after);
    }
}

#[test]
fn a_wait_follows_what_clients_need() {
    let mut coalescer = Coalescer::new(1);
    for full_after_us in [900, 100, 450, 200] {
        let full_after = Duration::from_micros(full_after_us);
        closed_loop(&mut coalescer, full_after, 3);
        let usual = usual(closed_loop(&mut coalescer, full_after, 3));
        assert_enough(usual, full_after);
    }
}

#[test]
fn looking_for_a_better_wait_takes_little() {
    let mut coalescer = Coalescer::new(1);
    let full_after = Duration::from_micros(450);
    closed_loop(&mut coalescer, full_after, 3);
    let waits = closed_loop(&mut coalescer, full_after, 20);
    let best = RUNGS[2];
    let others = waits.iter().filter(|&&wait| wait != best).count();
    assert!(others * 8 < waits.len(), "{others} of {}", waits.len());
}

#[test]
fn a_core_that_others_take_does_not_make_a_wait_look_dear() {
    let mut coalescer = Coalescer::new(1);
    let (mut served, mut wait, mut waits) = (Duration::ZERO, Duration::ZERO, 0);
    for _ in 0..1_000 {
        // A turn works for half a millisecond, and behind a wait others take the core for 4.5.
        let busy = if wait.is_zero() { 500 } else { 5_000 };
        served += Duration::from_micros(500);
        let turn = Turn {
            reads: 100,
            frames: if wait.is_zero() { 300 } else { 3_000 },
            busy: Duration::from_micros(busy),
            waited: wait,
            ..Turn::default()
        };
        let unserved = Duration::ZERO;
        wait = coalescer.turn_ended(&turn, || Times { served, unserved });
        waits += u32::from(!wait.is_zero());
    }
    assert!(waits > 800, "{waits}");
}

/// Turns of one kind without a wait and of another behind one; how many waited.
fn waits_of(turns: u32, prompt: Turn, waited: Turn) -> u32 {
    let mut coalescer = Coalescer::new(1);
    waits_on(&mut coalescer, turns, prompt, waited)
}

fn waits_on(coalescer: &mut Coalescer, turns: u32, prompt: Turn, waited: Turn) -> u32 {
    let (mut wait, mut waits) = (Duration::ZERO, 0);
    for _ in 0..turns {
        let mut turn = if wait.is_zero() { prompt } else { waited };
        turn.waited = wait;
        wait = coalescer.turn_ended(&turn, always);
        waits += u32::from(!wait.is_zero());
    }
    waits
}

/// 200 reads with some answers among them, and four times as many messages behind a wait.
fn stream(answers: u64) -> (Turn, Turn) {
    let prompt = Turn {
        reads: 200,
        writes: 200,
        answers,
        frames: 800,
        busy: Duration::from_millis(1),
        ..Turn::default()
    };
    let waited = Turn {
        frames: 3_200,
        busy: Duration::from_millis(2),
        ..prompt
    };
    (prompt, waited)
}

#[test]
fn three_answers_in_four_reads_are_a_conversation() {
    let (prompt, waited) = stream(149);
    assert!(waits_of(1_000, prompt, waited) > 900);
    let (prompt, waited) = stream(150);
    assert_eq!(waits_of(1_000, prompt, waited), 0);
}

#[test]
fn where_each_call_has_a_lone_frame_a_wait_is_not_worth_it() {
    let prompt = Turn {
        reads: 1,
        writes: 1,
        frames: 2,
        busy: Duration::from_micros(8),
        idle: Duration::from_micros(6),
        ..Turn::default()
    };
    let waited = Turn {
        reads: 70,
        writes: 70,
        frames: 140,
        busy: Duration::from_micros(420),
        ..Turn::default()
    };
    let turns = 1_000_000; // 14 s
    let waits = waits_of(turns, prompt, waited);
    assert!(waits < turns / 1_000, "{waits}");
}

#[test]
fn a_wait_that_takes_a_third_of_the_rate_is_not_worth_it_however_cheap_it_is() {
    let (prompt, waited) = stream(0);
    let cheap = Turn {
        busy: Duration::from_micros(200),
        // Behind a wait of 1 ms: 0.67 of the rate.
        frames: 640,
        ..waited
    };
    let waits = waits_of(10_000, prompt, cheap);
    assert!(waits < 500, "{waits}");
}

#[test]
fn a_stream_that_becomes_thin_is_not_made_to_wait_though_it_gathers() {
    let (prompt, waited) = stream(0);
    let mut coalescer = Coalescer::new(1);
    assert!(waits_on(&mut coalescer, 1_000, prompt, waited) > 900);
    // A twelfth of the time, which without waits would be a third at most.
    let thin = |frames, busy_us, idle_us| Turn {
        reads: 20,
        writes: 20,
        frames,
        busy: Duration::from_micros(busy_us),
        idle: Duration::from_micros(idle_us),
        ..Turn::default()
    };
    let (prompt, waited) = (thin(20, 100, 200), thin(100, 150, 1_000));
    waits_on(&mut coalescer, 100, prompt, waited);
    assert_eq!(waits_on(&mut coalescer, 10_000, prompt, waited), 0);
}

#[test]
fn what_a_burst_brought_is_not_what_waiting_has_to_beat() {
    let (prompt, waited) = stream(0);
    let mut coalescer = Coalescer::new(1);
    let burst = Turn {
        frames: 4_000,
        ..prompt
    };
    // Ten turns of it are an epoch.
    assert_eq!(waits_on(&mut coalescer, 10, burst, burst), 0);
    let waits = waits_on(&mut coalescer, 100, prompt, waited);
    assert!(waits > 80, "{waits}");
}

#[test]
fn the_disk_says_how_long_a_wait_is_and_nothing_is_compared() {
    let (prompt, waited) = stream(0);
    let mut coalescer = Coalescer::new(1);
    let waited = Turn {
        for_disk: true,
        ..waited
    };
    let mut rungs: Vec<_> = (0..10)
        .filter_map(|_| {
            waits_on(&mut coalescer, 100, prompt, waited);
            rung(&coalescer)
        })
        .collect();
    rungs.dedup();
    assert_eq!(rungs.len(), 1, "{rungs:?}");
}

#[test]
fn after_a_comparison_it_waits_as_it_did_before() {
    let mut coalescer = Coalescer::new(1);
    let full_after = Duration::from_micros(100);
    let waits = closed_loop(&mut coalescer, full_after, 13);
    let mut found = waits.iter().skip(waits.len() / 4);
    assert!(found.all(|&wait| wait <= RUNGS[1]), "{waits:?}");
}

/// Nothing but a core for the taking.
fn always() -> Times {
    Times::default()
}

/// Turns of two shards on one core: 0.3 ms of work in each, and then nothing for 0.7 ms, of
/// which so much was waiting for the core.
fn waits_on_a_shared_core(unserved_us: u64) -> u32 {
    let mut coalescer = Coalescer::new(1);
    let (mut waits, mut wait, mut unserved) = (0, Duration::ZERO, Duration::ZERO);
    for _ in 0..1_000 {
        let frames = if wait.is_zero() { 3 } else { 9 };
        let turn = Turn {
            reads: 100,
            writes: 100,
            frames: frames * 200,
            busy: Duration::from_micros(300 * frames / 3),
            idle: Duration::from_micros(700),
            waited: wait,
            ..Turn::default()
        };
        unserved += Duration::from_micros(unserved_us);
        let served = Duration::ZERO;
        wait = coalescer.turn_ended(&turn, || Times { served, unserved });
        waits += u32::from(!wait.is_zero());
    }
    waits
}

#[test]
fn waiting_for_a_core_is_not_idleness() {
    assert!(waits_on_a_shared_core(450) > 800);
    assert_eq!(waits_on_a_shared_core(200), 0);
}

#[test]
fn letters_from_another_shard_are_gathered_too() {
    let mut coalescer = waiting(2);
    let turn = Turn {
        letters: 1,
        ..Turn::default()
    };
    assert_eq!(coalescer.turn_ended(&turn, always), RUNGS[2]);
}

#[test]
fn nothing_read_is_nothing_to_wait_for() {
    let mut coalescer = waiting(2);
    assert!(coalescer.is_waiting());
    assert_eq!(
        coalescer.turn_ended(&Turn::default(), always),
        Duration::ZERO
    );
}

/// Of 5,000 messages a second each is a turn, and each question would be two system calls.
#[test]
fn a_loop_with_next_to_nothing_to_do_is_not_asked_for_its_times() {
    let mut coalescer = Coalescer::new(1);
    let turn = Turn {
        reads: 1,
        writes: 1,
        frames: 2,
        busy: Duration::from_micros(10),
        idle: Duration::from_micros(190),
        ..Turn::default()
    };
    for _ in 0..1_000 {
        let wait = coalescer.turn_ended(&turn, || unreachable!("nobody needs to know"));
        assert_eq!(wait, Duration::ZERO);
    }
    let seen = STREAM.run(&mut coalescer, SECOND);
    assert!(seen.waits * 10 > seen.turns * 8, "{seen:?}");
}
