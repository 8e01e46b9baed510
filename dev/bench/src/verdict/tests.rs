use super::*;
use crate::results::{CONNECT_CPU, tests::figures};
use unbroken_load::Figures;

fn demand(against: Against, bar: Bar) -> Demand {
    Demand {
        what: "CPU to connect",
        metric: CONNECT_CPU,
        of: Quantity::Cost,
        against,
        bar,
        noted: None,
    }
}

#[test]
fn the_median_ratio_to_the_yardstick_is_held_against_the_bar_with_the_best_peer_beside_it() {
    let row = RowResult::made_of(&[
        (OURS, Role::Ours, &[20.0, 10.0, 90.0]),
        ("mosquitto", Role::Peer, &[40.0, 50.0, 30.0]),
        ("quick", Role::Peer, &[12.0]),
        ("relay", Role::Floor, &[1.0]),
    ]);
    let judge = |bar| {
        let verdict = demand(Against::Yardstick, bar).judge(&row, &row.cells[0]);
        (verdict.passed(), verdict.to_string())
    };
    let line = |bar: &str| {
        format!("| idle | CPU to connect | 0.500 (0.200..3) | {bar} | quick 0.300 |  |")
    };
    assert_eq!(judge(Bar::AtMost(0.5)), (true, line("≤ 0.5 | passed")));
    assert_eq!(judge(Bar::AtMost(0.4)), (false, line("≤ 0.4 | **missed**")));
}

#[test]
fn a_peer_that_lost_something_is_not_the_best() {
    let mut row = RowResult::made_of(&[
        (OURS, Role::Ours, &[20.0]),
        ("lossy", Role::Peer, &[1.0]),
        ("slow", Role::Peer, &[25.0]),
    ]);
    row.cells[1].failures.push("it ended".to_owned());
    let verdict = demand(Against::BestPeer, Bar::AtMost(1.0)).judge(&row, &row.cells[0]);
    assert!(verdict.passed());
    assert!(verdict.to_string().contains("| 0.800 |") && verdict.to_string().contains("slow 25"));
    let verdict = demand(Against::BestPeer, Bar::AtLeast(1.0)).judge(&row, &row.cells[0]);
    assert!(!verdict.passed());
}

#[test]
fn what_cannot_be_compared_is_not_passed() {
    let row = RowResult::made_of(&[(OURS, Role::Ours, &[20.0])]);
    for against in [Against::Yardstick, Against::BestPeer] {
        let verdict = demand(against, Bar::AtMost(1.0)).judge(&row, &row.cells[0]);
        assert!(!verdict.passed() && verdict.to_string().contains("not measured"));
    }
}

/// The row as one of latency, in which the load generator took so much for each peer.
fn with_generator(row: RowResult, shares: &[f64]) -> RowResult {
    let mut row = RowResult {
        kind: Kind::Latency,
        ..row
    };
    for (cell, share) in row.cells.iter_mut().zip(shares) {
        for run in &mut cell.runs {
            run.report.figures = Some(Figures {
                generator_cpu_share: Some(*share),
                ..figures(1)
            });
        }
    }
    row
}

#[test]
fn a_latency_of_ours_that_holds_the_wait_for_the_load_generator_may_be_passed_and_is_not_missed() {
    let both = [
        (OURS, Role::Ours, &[20.0][..]),
        ("mosquitto", Role::Peer, &[40.0]),
    ];
    let unknown = "not judged (load generator)";
    for (shares, [reached, not_reached]) in [
        ([0.9, 0.9], ["passed", "**missed**"]),
        ([0.96, 0.9], ["passed", unknown]),
        ([0.9, 0.96], [unknown, "**missed**"]),
        ([0.96, 0.96], [unknown, unknown]),
    ] {
        let row = with_generator(RowResult::made_of(&both), &shares);
        for against in [Against::Yardstick, Against::BestPeer] {
            for (bar, expected) in [(1.0, reached), (0.4, not_reached)] {
                let demand = Demand {
                    of: Quantity::Latency,
                    ..demand(against, Bar::AtMost(bar))
                };
                let verdict = demand.judge(&row, &row.cells[0]);
                let shown = verdict.to_string();
                assert!(shown.contains(expected), "{shares:?} {bar}: {shown}");
            }
        }
        // The cost of a delivery is the broker's own.
        let cost = demand(Against::Yardstick, Bar::AtMost(1.0));
        assert!(cost.judge(&row, &row.cells[0]).passed());
    }
}

#[test]
fn a_rate_of_ours_that_the_load_generator_held_back_may_be_passed_and_is_not_missed() {
    let row = RowResult::made_of(&[(OURS, Role::Ours, &[20.0]), ("quick", Role::Peer, &[25.0])]);
    for (shares, bar, expected) in [
        ([0.9, 0.9], 1.0, "**missed**"),
        ([0.96, 0.9], 1.0, "not judged (load generator)"),
        ([0.96, 0.9], 0.8, "passed"),
        // What held back the other makes ours no better, and the other no worse.
        ([0.9, 0.96], 1.0, "**missed**"),
        ([0.9, 0.96], 0.8, "not judged (load generator)"),
        ([0.96, 0.96], 1.0, "not judged (load generator)"),
        ([0.96, 0.96], 0.8, "not judged (load generator)"),
    ] {
        let row = with_generator(row.clone(), &shares);
        let demand = Demand {
            of: Quantity::Rate,
            ..demand(Against::BestPeer, Bar::AtLeast(bar))
        };
        let verdict = demand.judge(&row, &row.cells[0]).to_string();
        assert!(verdict.contains(expected), "{shares:?} {verdict}");
    }
}

#[test]
fn a_rate_is_not_passed_while_a_peer_that_was_held_back_may_be_the_best() {
    let row = RowResult::made_of(&[
        (OURS, Role::Ours, &[30.0]),
        ("quick", Role::Peer, &[25.0]),
        ("held", Role::Peer, &[20.0]),
    ]);
    let demand = Demand {
        of: Quantity::Rate,
        ..demand(Against::BestPeer, Bar::AtLeast(1.0))
    };
    for (share, passed) in [(0.9, true), (0.96, false)] {
        let row = with_generator(row.clone(), &[0.9, 0.9, share]);
        assert_eq!(demand.judge(&row, &row.cells[0]).passed(), passed);
    }
}

#[test]
fn a_share_is_of_all_threads_of_the_load_generator() {
    let mut row = with_generator(RowResult::made_of(&[(OURS, Role::Ours, &[20.0])]), &[1.2]);
    for (threads, is_busy) in [(1, true), (2, false)] {
        row.cells[0].runs[0].report.told.threads = threads;
        assert_eq!(row.cells[0].is_generator_busy(), is_busy, "{threads}");
    }
    // Where nothing flows it is that of connecting.
    let report = &mut row.cells[0].runs[0].report;
    report.figures = None;
    report.connecting.generator_cpu_share = Some(1.95);
    assert!(row.cells[0].is_generator_busy());
}

#[test]
fn of_fewer_rounds_or_seconds_than_the_bars_are_about_nothing_is_passed() {
    let times = [20.0; ROUNDS];
    let passed = |rounds: usize, seconds: f64, kind: Kind| {
        let mut row = RowResult::made_of(&[
            (OURS, Role::Ours, &times[..rounds]),
            ("quick", Role::Peer, &times[..rounds]),
        ]);
        row.kind = kind;
        for run in row.cells.iter_mut().flat_map(|cell| &mut cell.runs) {
            run.report.told.seconds = Some(seconds);
        }
        let verdicts = judge(&[row], &[]);
        verdicts.iter().filter(|verdict| verdict.passed()).count()
    };
    // That nothing was lost is true of however few.
    assert_eq!(passed(ROUNDS, 1.0, Kind::Idle), 4);
    assert_eq!(passed(ROUNDS - 1, 1.0, Kind::Idle), 1);
    assert_eq!(passed(ROUNDS, LATENCY_SECONDS, Kind::Latency), 4);
    assert_eq!(passed(ROUNDS, 9.9, Kind::Latency), 1);
}

#[test]
fn a_ratio_to_one_that_failed_in_a_round_is_of_fewer_rounds() {
    let mut row = RowResult::made_of(&[
        (OURS, Role::Ours, &[20.0; ROUNDS]),
        (YARDSTICK, Role::Peer, &[40.0; ROUNDS]),
    ]);
    let said = |row: &RowResult| {
        let verdict = demand(Against::Yardstick, Bar::AtMost(1.0)).judge(row, &row.cells[0]);
        verdict.of_enough_rounds().to_string()
    };
    assert!(said(&row).contains("| passed |"));
    row.cells[1].runs.truncate(1);
    let failures = (1..ROUNDS).map(|_| "it ended".to_owned());
    row.cells[1].failures = failures.collect();
    assert!(said(&row).contains("too short"), "{}", said(&row));
    assert!(said(&row).contains("| 0.500 |"), "{}", said(&row));
}

#[test]
fn a_rate_is_at_least_what_is_shown_where_loops_are_closed_only() {
    let row = RowResult::made_of(&[(OURS, Role::Ours, &[20.0])]);
    let open = with_generator(row, &[1.0]);
    let closed = RowResult {
        kind: Kind::Throughput,
        ..open.clone()
    };
    let sentence = "rates are at least what is shown";
    for (row, expected) in [(open, false), (closed, true)] {
        let (verdicts, rows) = (&[][..], &[row][..]);
        let section = Section { verdicts, rows }.to_string();
        assert_eq!(section.contains(sentence), expected, "{section}");
        let waits = section.contains("latencies are at most what is shown");
        assert_eq!(waits, !expected, "{section}");
    }
}

#[test]
fn a_failed_run_misses_the_row_and_absent_peers_are_read_elsewhere() {
    let mut row = RowResult::made_of(&[
        (OURS, Role::Ours, &[20.0; ROUNDS]),
        (FLASHMQ, Role::Peer, &[25.0; ROUNDS]),
    ]);
    let missed = |row: &RowResult| {
        let verdicts = judge(std::slice::from_ref(row), &[]).into_iter();
        let missed = verdicts.filter(|verdict| !verdict.passed());
        missed.count()
    };
    assert_eq!(missed(&row), 0);
    row.cells[0].failures.push("it ended".to_owned());
    assert_eq!(missed(&row), 1);
    let first = judge(&[row], &[]).remove(0).to_string();
    assert!(
        first.ends_with("| flashmq 25 | mosquitto-2.1 0.75 |"),
        "{first}"
    );
}
