//! Ways to cut a topic at its slashes, timed beside each other, interleaved.
//!
//! ```text
//! cargo run --release -p unbroken-broker-core --example levels
//! ```
//!
//! Each gives its levels to the same visitor, as the walk through the subscription tree would have
//! them. What it has shown is written above that walk (`subscriptions/tree.rs`).

#![allow(clippy::print_stdout, reason = "a program's output")]
#![expect(
    clippy::disallowed_methods,
    reason = "a measurement of time reads a clock"
)]

use std::hint::black_box;
use std::time::Instant;

use memchr::memchr_iter;
use smallvec::SmallVec;

/// A way to cut.
struct Way {
    name: &'static str,
    run: fn(&str),
}

const WAYS: [Way; 4] = [
    Way {
        name: "str::split",
        run: |topic| topic.split('/').for_each(visit),
    },
    Way {
        name: "byte by byte",
        run: byte_by_byte,
    },
    Way {
        name: "memchr",
        run: |topic| each_found(topic, visit),
    },
    Way {
        name: "memchr into a buffer",
        run: |topic| {
            let mut levels = SmallVec::<[&str; 16]>::new();
            each_found(topic, |level| levels.push(level));
            black_box(&levels).iter().for_each(|level| visit(level));
        },
    },
];

const TOPICS: [(&str, &str); 5] = [
    ("1 level of 6", "status"),
    ("4 levels, 23 bytes", "site/7/device/1234/temp"),
    ("8 levels of 1", "a/b/c/d/e/f/g/h"),
    (
        "6 levels, 60 bytes",
        "acme/plant-north/line-17/press-hydraulic-2/sensor-04/pressure",
    ),
    (
        "3 levels of 36",
        "0d9f2c6e-55a1-4c0e-9a3a-7f2d51b1c0aa/0d9f2c6e-55a1-4c0e-9a3a-7f2d51b1c0ab/\
         0d9f2c6e-55a1-4c0e-9a3a-7f2d51b1c0ac",
    ),
];

/// Cuts in one timed stretch, and stretches of each way.
const CUTS: u32 = 100_000;
const STRETCHES: usize = 51;

fn main() {
    println!("ns for a topic, median of {STRETCHES} stretches of {CUTS}");
    print!("{:<22}", "");
    for way in &WAYS {
        print!("{:>22}", way.name);
    }
    println!();
    for (name, topic) in TOPICS {
        let mut found = [const { Vec::new() }; WAYS.len()];
        for _ in 0..STRETCHES {
            for (way, found) in WAYS.iter().zip(&mut found) {
                let began = Instant::now();
                for _ in 0..CUTS {
                    (way.run)(black_box(topic));
                }
                found.push(began.elapsed().as_secs_f64() * 1e9 / f64::from(CUTS));
            }
        }
        print!("{name:<22}");
        for mut found in found {
            found.sort_by(f64::total_cmp);
            print!("{:>22.1}", found[STRETCHES / 2]);
        }
        println!();
    }
}

#[inline]
fn visit(level: &str) {
    black_box(level);
}

fn each_found<'t>(topic: &'t str, mut visit: impl FnMut(&'t str)) {
    let mut from = 0;
    for slash in memchr_iter(b'/', topic.as_bytes()) {
        visit(&topic[from..slash]);
        from = slash + 1;
    }
    visit(&topic[from..]);
}

fn byte_by_byte(topic: &str) {
    let mut from = 0;
    for (at, byte) in topic.bytes().enumerate() {
        if byte == b'/' {
            visit(&topic[from..at]);
            from = at + 1;
        }
    }
    visit(&topic[from..]);
}
