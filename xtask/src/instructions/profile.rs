//! Callgrind's profile of a run: how much of it is ours.
//!
//! A profile is lines, here with names in full (`--compress-strings=no`): `ob=` says whose costs
//! follow, a number in front is a line of the source with its cost, and behind `calls=` stands one
//! such line with what the call cost in all, which is counted where it was spent.

/// What was counted, in all or for one thing.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Counts {
    /// Instructions of our own program.
    pub(super) instructions: f64,
    /// Calls of the allocator from there.
    pub(super) allocations: f64,
}

/// What the standard library's allocator calls for memory. Memory is given back as often as it was
/// taken.
const ALLOCATORS: [&str; 4] = ["malloc", "calloc", "realloc", "posix_memalign"];

impl Counts {
    /// The totals of a profile; ours is what belongs to this program.
    pub(super) fn read(profile: &str, program: &str) -> Self {
        let mut counts = Self::default();
        let (mut is_ours, mut is_of_call, mut callee) = (false, false, "");
        for line in profile.lines() {
            if let Some(object) = line.strip_prefix("ob=") {
                is_ours = object == program;
            } else if let Some(function) = line.strip_prefix("cfn=") {
                callee = function;
            } else if let Some(calls) = line.strip_prefix("calls=") {
                is_of_call = true;
                if is_ours && ALLOCATORS.contains(&callee) {
                    counts.allocations += first_number(calls);
                }
            } else if line.starts_with(|c: char| c.is_ascii_digit()) {
                if is_ours && !is_of_call {
                    let (_, cost) = line.split_once(' ').unwrap_or_default();
                    counts.instructions += first_number(cost);
                }
                is_of_call = false;
            }
        }
        counts
    }
}

fn first_number(text: &str) -> f64 {
    let word = text.split(' ').next().unwrap_or_default();
    word.parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = "\
events: Ir
summary: 1777

ob=/lib/libc.so.6
fn=malloc
10 500
cfn=calloc
calls=9 0
11 7

ob=/target/program
fl=src/lib.rs
fn=program::work
20 30
cob=/lib/libc.so.6
cfn=malloc
calls=5 10
21 500
fi=src/other.rs
22 40
cob=/lib/libc.so.6
cfn=memcpy
calls=8 0
23 700
24 1
";

    #[test]
    fn only_what_our_program_spends_itself_counts() {
        let counts = Counts::read(PROFILE, "/target/program");
        assert_eq!(
            counts,
            Counts {
                instructions: 71.0,
                allocations: 5.0
            }
        );
    }
}
