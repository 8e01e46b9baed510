use super::*;
use crate::{bars::ROUNDS, peer::OURS, results::tests::figures, verdict};

/// `loadtest` with so much CPU time of the brokers, and such rates, in each of so many rounds.
fn check(ours: (usize, f64, f64), mosquitto: (usize, f64, f64)) -> Check {
    let cell = |peer, role, (rounds, broker_cpu_us, messages_per_second)| Cell {
        peer,
        role,
        runs: vec![
            Run {
                messages_per_second,
                broker_cpu_us,
                client_cpu_us: 1.0,
                client_share: 0.5,
            };
            rounds
        ],
        failures: Vec::new(),
    };
    let cells = vec![
        cell(OURS, Role::Ours, ours),
        cell(YARDSTICK, Role::Peer, mosquitto),
    ];
    Check {
        cells,
        ..Check::new(&PROGRAMS[0], &[])
    }
}

/// What is said of the dearer, the CPU time and the rate of ours.
fn judged(check: &Check, rows: &[RowResult]) -> [String; 3] {
    let verdicts = verdict::judge(rows, std::slice::from_ref(check));
    let last = verdicts.len() - 3;
    [last, last + 1, last + 2].map(|at| verdicts[at].to_string())
}

/// The row in which our generator finds the same for ours and for Mosquitto.
fn alike() -> RowResult {
    let mut row = RowResult::made_of(&[
        (OURS, Role::Ours, &[1.0; ROUNDS]),
        (YARDSTICK, Role::Peer, &[1.0; ROUNDS]),
    ]);
    row.row = "pairs1000";
    for run in row.cells.iter_mut().flat_map(|cell| &mut cell.runs) {
        run.report.figures = Some(figures(1));
    }
    row
}

#[test]
fn ours_may_not_be_much_dearer_with_another_generator_and_may_be_cheaper() {
    for (ours, passed) in [(15.0, true), (16.0, false), (7.0, true), (1.0, true)] {
        let check = check((ROUNDS, ours, 1.0), (ROUNDS, 10.0, 1.0));
        let [dearer, ..] = judged(&check, &[alike()]);
        assert!(dearer.contains("loadtest"), "{dearer}");
        assert_eq!(dearer.contains("| passed |"), passed, "{dearer}");
    }
    // It failed on Mosquitto, or on ours.
    for rounds in [(ROUNDS, 0), (0, ROUNDS)] {
        let check = check((rounds.0, 10.0, 1.0), (rounds.1, 10.0, 1.0));
        for said in judged(&check, &[alike()]) {
            assert!(said.contains("not measured"), "{said}");
        }
    }
}

#[test]
fn ours_has_to_lead_with_programs_that_are_not_ours() {
    let better = (ROUNDS, 9.0, 11.0);
    let worse = (ROUNDS, 11.0, 9.0);
    for (ours, passed) in [(better, true), (worse, false)] {
        let check = check(ours, (ROUNDS, 10.0, 10.0));
        let [_, cpu, rate] = judged(&check, &[alike()]);
        assert_eq!(cpu.contains("| passed |"), passed, "{cpu}");
        assert_eq!(rate.contains("| passed |"), passed, "{rate}");
    }
    // A peer that failed once leads in nothing.
    let mut failing = check(better, (ROUNDS, 1.0, 100.0));
    failing.cells[1].failures.push("it hung".to_owned());
    let [_, cpu, rate] = judged(&failing, &[alike()]);
    assert!(cpu.contains("not measured") && rate.contains("not measured"));
    let short = check((ROUNDS - 1, 9.0, 11.0), (ROUNDS, 10.0, 10.0));
    for said in judged(&short, &[alike()]) {
        assert!(said.contains("too short"), "{said}");
    }
}

#[test]
fn a_factor_of_fewer_rounds_than_the_bar_is_about_is_not_passed() {
    let five = || check((ROUNDS, 9.0, 11.0), (ROUNDS, 10.0, 10.0));
    // The program failed on Mosquitto in a round, or our own generator did, on either.
    let mut hung = five();
    hung.cells[1].runs.pop();
    hung.cells[1].failures.push("it hung".to_owned());
    let [dearer, ..] = judged(&hung, &[alike()]);
    assert!(dearer.contains("too short"), "{dearer}");
    for cell in 0..2 {
        let mut row = alike();
        row.cells[cell].runs.remove(1);
        let [dearer, cpu, _] = judged(&five(), &[row]);
        assert!(dearer.contains("too short"), "{dearer}");
        assert!(cpu.contains("| passed |"), "{cpu}");
    }
}

#[test]
fn who_fails_with_a_program_misses_its_bars_and_is_not_called_short() {
    for rounds in [0, 2] {
        let mut check = check((rounds, 9.0, 11.0), (ROUNDS, 10.0, 10.0));
        check.cells[0].failures.push("it hung".to_owned());
        for said in judged(&check, &[alike()]) {
            assert!(said.contains("**missed**"), "{said}");
        }
    }
}

#[test]
fn a_rate_that_the_program_held_back_is_not_missed() {
    let mut check = check((ROUNDS, 11.0, 9.0), (ROUNDS, 10.0, 10.0));
    for run in &mut check.cells[0].runs {
        run.client_share = 0.96;
    }
    let [_, cpu, rate] = judged(&check, &[alike()]);
    assert!(cpu.contains("missed"), "{cpu}");
    assert!(rate.contains("not judged (the program)"), "{rate}");
}

#[test]
fn against_a_rate_that_the_program_held_back_ours_is_not_passed() {
    for (busy, ours, expected) in [
        (&[1][..], 11.0, "not judged (the program)"),
        (&[1], 9.0, "**missed**"),
        (&[0], 11.0, "| passed |"),
        (&[0, 1], 11.0, "not judged (the program)"),
    ] {
        let mut check = check((ROUNDS, 9.0, ours), (ROUNDS, 10.0, 10.0));
        for cell in busy {
            for run in &mut check.cells[*cell].runs {
                run.client_share = 0.96;
            }
        }
        let [_, cpu, rate] = judged(&check, &[alike()]);
        assert!(cpu.contains("| passed |"), "{cpu}");
        assert!(rate.contains(expected), "{busy:?} {rate}");
    }
}

#[test]
fn what_has_no_row_of_ours_is_compared_with_peers_only() {
    let check = Check {
        row: None,
        ..check((ROUNDS, 9.0, 11.0), (ROUNDS, 10.0, 10.0))
    };
    assert_eq!(verdict::judge(&[], &[check]).len(), 2);
}

#[test]
fn a_panic_is_reported_with_its_reason_and_not_its_place() {
    let said = "all started\npanic: nil pointer\n\ngoroutine 7:\n\tmain.go:121 +0x1a9\n";
    let error = PROGRAMS[0].failed("ended with 2", said).to_string();
    assert_eq!(error, "loadtest ended with 2: panic: nil pointer");
    let error = PROGRAMS[0].failed("hung", "all started\n").to_string();
    assert_eq!(error, "loadtest hung: all started");
}

#[test]
fn a_run_that_failed_by_the_programs_own_fault_is_made_once_more() {
    let own = "panic: send on closed channel\n\ngoroutine 7:\n";
    let outcome = |faults: &[&'static str]| {
        let mut faults = faults.iter();
        let mut runs = 0;
        let outcome = once_more(|| {
            runs += 1;
            let fault = faults.next();
            fault.map_or(Ok(()), |said| Err(PROGRAMS[0].failed("ended", said).into()))
        });
        (outcome.is_ok(), runs)
    };
    assert_eq!(outcome(&[]), (true, 1));
    assert_eq!(outcome(&[own]), (true, 2));
    assert_eq!(outcome(&[own, own]), (false, 2));
    assert_eq!(outcome(&["all started\n"]), (false, 1));
}

#[test]
fn the_rate_is_read_from_what_either_program_prints() {
    let loadtest = "14:37:35.690227 messages    : 50000\n14:37:35.690234 messages/sec: 43850\n";
    assert_eq!(rate(loadtest), Some(43_850.0));
    let pingtest = "14:37:35.926366 messages/sec: 8754.959\n14:37:35.926376 round-trip latency\n";
    assert_eq!(rate(pingtest), Some(8_754.959));
    assert_eq!(rate("14:37:35.690227 all started\n"), None);
}
