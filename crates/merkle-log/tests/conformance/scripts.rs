//! The inputs of the conformance set, as words:
//!
//! | word | is |
//! |---|---|
//! | `3`, `0-9` | message 3, messages 0 to 9, as issued; what they skip is lost |
//! | `3a` `3f` `3g` | altered on its way; forged with a stamp that fits, in one way or another |
//! | `3r` `3p12` | flagged re-sent; part 1 of 2 |
//! | `3n` `3u` `3s` | without a stamp; with an unreadable one; with two |
//! | `3k` | a retained copy |
//! | `i9` | the producer issues messages until there are 9, and none comes |
//! | `c` `C` `X` | a checkpoint of what was issued: open, closed, cut |
//! | `c@9` `c#7` `c~` | of 9 messages; with number 7; with roots that are not the lane's |
//! | `F` `L` | a closing checkpoint with fingerprints, with leaves |
//! | `d5` `d-` | a directory that lists the lane with 5 messages; with none |
//! | `d5^9` `d5#7` | of start 9; with number 7 |
//! | `D3,4` `D3,4~` | a drop record of messages 3 and 4, filtered; with other leaves |
//! | `e1` `l2` | the producer begins epoch 1 of its lane; a producer of lane 2 goes on |
//! | `+900` | 900 ms pass |
//! | `stand` `run` | the clock of lateness stands, runs |
//! | `ask` | what is asked for now; the producer answers about hashes |

use std::borrow::Cow;

use unbroken_merkle_log::ledger::Join::{self, Beginning, Late, Member};

/// A case: its name, and what happens.
pub(crate) struct Script {
    pub(crate) name: Cow<'static, str>,
    pub(crate) join: Join,
    pub(crate) all_lanes: bool,
    pub(crate) steps: Cow<'static, str>,
}

pub(super) const fn case(name: &'static str, join: Join, steps: &'static str) -> Script {
    Script {
        name: Cow::Borrowed(name),
        join,
        all_lanes: false,
        steps: Cow::Borrowed(steps),
    }
}

pub(super) const fn all_lanes(name: &'static str, join: Join, steps: &'static str) -> Script {
    Script {
        name: Cow::Borrowed(name),
        join,
        all_lanes: true,
        steps: Cow::Borrowed(steps),
    }
}

pub(crate) const SCRIPTS: &[Script] = &[
    // Numbers
    case("all in order", Beginning, "0-4 C +1000"),
    case(
        "a message of no bytes is judged like any other",
        Beginning,
        "0 C",
    ),
    case("one lost", Beginning, "0-2 4-5 C +799 +1"),
    case("several lost are one range", Beginning, "0-2 6-9 C +800"),
    case("two ranges are lost apart", Beginning, "0 2 4 C +800"),
    case("the first is lost", Beginning, "1-4 C +800"),
    case("the end is lost", Beginning, "0-2 i6 c +799 +1"),
    case("everything is lost", Beginning, "i6 c +800"),
    case("a hole and the end are lost", Beginning, "0 2 i5 C +800"),
    case(
        "what no checkpoint covers is not lost",
        Beginning,
        "0 2 +5000",
    ),
    case(
        "a checkpoint covers what was missed long before",
        Beginning,
        "0 2 +900 c +1",
    ),
    case(
        "a checkpoint covers a part of what is missing",
        Beginning,
        "0 3 c@2 +800 c@4 +1",
    ),
    case("late within the bound", Beginning, "0 2 +500 1 C +800"),
    case("found beyond the bound", Beginning, "0 2 C +800 1"),
    case("found at the end", Beginning, "0 i3 c +800 1 2 3 C"),
    case(
        "found at the end in another order",
        Beginning,
        "0 i4 c +800 3 1 2 C",
    ),
    case(
        "a part of a window that was faulty, and is whole",
        Beginning,
        "0 2 c +800 1 3-4 c",
    ),
    case(
        "a part of a window that was lost whole, and is whole",
        Beginning,
        "i1 c +800 0 1-2 C",
    ),
    case("repaired after it was lost", Beginning, "0 2 C +800 1r"),
    case("repaired before it was lost", Beginning, "0 2 1r C +800"),
    case("re-sent and due", Beginning, "0 1r 2 C"),
    case("re-sent and ahead", Beginning, "0 2r 1 C"),
    case(
        "a repetition is compared once leaves are held",
        Beginning,
        "0 0 1 1 2 C",
    ),
    case("a repetition flagged re-sent", Beginning, "0 1 1r C"),
    case("a repetition of what came late", Beginning, "0 2 1 1 C"),
    case(
        "a repetition of what was lost and came",
        Beginning,
        "0 2 C +800 1 1",
    ),
    case("two lost and one of them found", Beginning, "0 3 C +800 2"),
    case(
        "the lateness bound counts from when it was first missed",
        Beginning,
        "0 2 +400 4 c +400 +400",
    ),
    case(
        "the last message may come with its checkpoint in between",
        Beginning,
        "0 i2 c 1 C +900",
    ),
    case(
        "the bound of a tail counts from its checkpoint",
        Beginning,
        "0 i4 c +500 3 +300 +500",
    ),
    case(
        "a leaf is held until a root proves it",
        Beginning,
        "0 0 1 1 C 1",
    ),
    // Clock
    case(
        "nothing is late while the clock stands",
        Beginning,
        "0 2 C stand +5000 run +799 +1",
    ),
    case(
        "a tail waits while the clock stands",
        Beginning,
        "0 i3 stand c +5000 run +800",
    ),
    // Order
    case("two neighbours swapped", Beginning, "1 0 2 C +800"),
    case("one overtaken by three", Beginning, "0 2-4 1 5 C"),
    case("one far too early", Beginning, "0 9 1-8 C"),
    case("a block that came late", Beginning, "3-5 0-2 6 C"),
    case(
        "two pairs swapped in one stretch",
        Beginning,
        "0 2 1 4 3 5 C",
    ),
    case("a stretch ends with a loss", Beginning, "0 3 2 4 C +800"),
    case("a stretch ends with a repair", Beginning, "0 3 2 1r 4 C"),
    case(
        "of two chains the one with the smaller last number stays",
        Beginning,
        "0 3 4 1 2 5 C",
    ),
    case("reversed", Beginning, "4 3 2 1 0 C"),
    case(
        "a hole that is lost moves nothing",
        Beginning,
        "0 2 3 C +800",
    ),
    case(
        "late and swapped with one that is missing",
        Beginning,
        "0 5 3 4 2 C +800 1r",
    ),
    // Content
    case("altered", Beginning, "0 1a 2 C +800"),
    case("altered, and repaired", Beginning, "0 1a 2 C +800 1r"),
    case(
        "altered, and the good one comes late",
        Beginning,
        "0 1a 2 1 C +800",
    ),
    case(
        "altered twice, and the good one comes",
        Beginning,
        "0 1a 1a 1 2 C",
    ),
    case("altered after the good one", Beginning, "0 1 1a 2 C"),
    case("altered as the last", Beginning, "0-2 3a C +800"),
    case(
        "altered as the first of its lane",
        Beginning,
        "0a 1 2 C +800",
    ),
    case(
        "altered far ahead moves nothing",
        Beginning,
        "0 4000000a 1 C",
    ),
    case("no stamp", Beginning, "0 1n 1 C"),
    case("an unreadable stamp", Beginning, "0 1u 1 C"),
    case("two stamps", Beginning, "0 1s 1 C"),
    case(
        "retained copies of before the lane, with and without stamps",
        Late,
        "0kn 0ku 0ks 7k d0 0-2 1kn 3 C +800",
    ),
    case("forged, and the root differs", Beginning, "0 1f 2 C"),
    case(
        "forged, and a descent names it",
        Beginning,
        "0 1f 2 C ask ask 1r ask",
    ),
    case("forged, and leaves name it", Beginning, "0 1f 2 L ask 1r"),
    case(
        "forged and folded, and fingerprints name its group",
        Beginning,
        "0-40 41f 42-70 F ask ask ask",
    ),
    case(
        "two forged in one group",
        Beginning,
        "0-4 5f 6 7f 8 C ask ask ask",
    ),
    case("forged and another lost", Beginning, "0 1f 3 C +800"),
    case(
        "forged first, then the real one",
        Beginning,
        "0 0 1f 1 2 C ask ask",
    ),
    case("the real one first, then forged", Beginning, "0 0 1 1f 2 C"),
    case(
        "forged copies of a number whose leaf is folded",
        Beginning,
        "0-3 1f C",
    ),
    // Parts
    case("a message in two parts", Beginning, "0 1p12 1p22 2 C"),
    case("a part that came twice", Beginning, "0 1p12 1p12 1p22 C"),
    case("a part that is lost", Beginning, "0 1p12 2 C +800"),
    case(
        "a part of another number of parts",
        Beginning,
        "0 1p12 1p13 1p22 C",
    ),
    case(
        "a part that came twice, flagged re-sent",
        Beginning,
        "0 1p12 1rp12 1p22 C",
    ),
    case(
        "a whole message in the place of its parts",
        Beginning,
        "0 1p12 2 C +800 1r",
    ),
    // Drops
    case("declared dropped", Beginning, "0 D1 2 C +800"),
    case(
        "declared dropped after it was missed",
        Beginning,
        "0 2 D1 C +800",
    ),
    case("declared dropped at the end", Beginning, "0 i3 D1,2 C +800"),
    case("dropped and lost in one window", Beginning, "0 D1 3 C +800"),
    case(
        "declared dropped, and they come",
        Beginning,
        "0 D1,2 3 1 2 C +800",
    ),
    case(
        "a forged drop record names messages before they come",
        Beginning,
        "0-2 D3,4,5,6~ 3-7 C +800",
    ),
    case(
        "a forged drop record behind a gap",
        Beginning,
        "0 D3,4,5~ 1-6 C +800",
    ),
    case(
        "one of two stretches that were declared dropped comes",
        Beginning,
        "0 D1,2,5,6 5 6 2 7 C +800",
    ),
    case(
        "declared dropped, and re-sent",
        Beginning,
        "0 D1 2 1r C +800",
    ),
    case(
        "declared dropped, and it comes in parts",
        Beginning,
        "0 D1 2 1p12 1p22 C",
    ),
    case(
        "declared dropped, and a copy is altered",
        Beginning,
        "0 D1 2 1a C",
    ),
    case(
        "declared dropped, proven, and it comes",
        Beginning,
        "0 D1 2 C 1",
    ),
    case(
        "declared dropped, it comes, and then again",
        Beginning,
        "0 D1 2 1 1 C",
    ),
    case(
        "declared dropped for a member, and it comes",
        Member,
        "0 D1 2 1 C",
    ),
    case(
        "a forged drop record, and leaves name what it forged",
        Beginning,
        "0 D1,2~ 3 L ask 1r 2r",
    ),
    case(
        "a forged drop record, and the message comes when that is known",
        Beginning,
        "0 D1~ 2 L 1",
    ),
    case("a drop record beyond the end", Beginning, "0-2 C D3 C@4#1"),
    case(
        "an end below what was declared dropped",
        Beginning,
        "0-2 D3 C@3",
    ),
    all_lanes(
        "a drop record of a lane that no directory lists",
        Beginning,
        "D0 +800",
    ),
    // Windows
    case(
        "two windows and a part of the third",
        Beginning,
        "0-1023 c 1024-2047 c 2048-2050 C",
    ),
    case(
        "a lost checkpoint costs nothing",
        Beginning,
        "0-2047 c#1 C#2",
    ),
    case(
        "a window closed by a repair is proven",
        Beginning,
        "0-2 4-1023 c +800 3r",
    ),
    case(
        "a late joiner proves each window by its own checkpoint",
        Late,
        "5-2047 c C",
    ),
    case(
        "a late joiner with a lost checkpoint",
        Late,
        "5-3071 c@3072 C",
    ),
    case(
        "a heartbeat tells a part of a window",
        Beginning,
        "0-4 c 5-9 c C",
    ),
    case(
        "a window without its checkpoint, and a descent for it",
        Beginning,
        "0-4 5f 6-2047 C@2048#1 ask ask ask",
    ),
    // Closed and cut epochs
    case("a message beyond the end", Beginning, "0-2 C 3 C@4#1"),
    case("an end below what was seen", Beginning, "0-4 C@3 5 C@6"),
    case("an altered message beyond the end", Beginning, "0-2 C 3a"),
    case("a checkpoint beyond the end", Beginning, "0-2 C i5 c +800"),
    case(
        "a cut epoch, and what comes beyond it",
        Beginning,
        "0-4 X@3 5 +30000",
    ),
    case(
        "a cut of an epoch that was never heard",
        Beginning,
        "i4 X +5000",
    ),
    case("what is missing below a cut", Beginning, "0 2-3 X +800"),
    case(
        "a closed epoch is open again after a larger checkpoint",
        Beginning,
        "0-2 C i5 c 3 4 5 C",
    ),
    case(
        "an end below the newest checkpoint",
        Beginning,
        "0-4 c C@3#1 5 C#2",
    ),
    case(
        "an end below the size told, with a lower number",
        Beginning,
        "0-2 c@9~#100 +800 3-4 C@5#1 +800",
    ),
    case(
        "an end below the size told, with its number",
        Beginning,
        "0-4 c#0 C@3#0",
    ),
    case(
        "an end below what a directory told",
        Beginning,
        "0-2 d5 C@3 +900",
    ),
    case("a directory after the end", Beginning, "0-2 C d5 +900"),
    case(
        "a directory after the end that tells of the same",
        Beginning,
        "0-2 C d3 +900",
    ),
    // Contradictions
    case("two roots for one size", Beginning, "0-2 c c~#1"),
    case("one number with two sizes", Beginning, "0-4 c#0 c@4#0"),
    case(
        "a later number with a smaller size",
        Beginning,
        "0-4 c#0 c@3#1",
    ),
    case(
        "an older number with a larger size",
        Beginning,
        "0-2 c#5 3-4 c#4",
    ),
    case(
        "a forged size loses messages until the next checkpoint contradicts it",
        Beginning,
        "0-2 c@9~ +800 3 c@4#1 +800",
    ),
    case(
        "two conflicts are two producers",
        Beginning,
        "0 0 1 1f 2 2f 3 C",
    ),
    case(
        "a conflict and a contradiction are two producers",
        Beginning,
        "0 0 1 1f c c~#1",
    ),
    case(
        "a third contradiction is not named again as two producers",
        Beginning,
        "0 0 1 1f 2 2f 3 3f",
    ),
    // Joining
    case(
        "a late joiner in the middle of a window",
        Late,
        "5-9 +1000 10-1030 c",
    ),
    case(
        "a late joiner at the begin of a window",
        Late,
        "1024-1026 C +800",
    ),
    case("a late joiner from number 0", Late, "0-2 4 C +800"),
    case(
        "a late joiner that hears a checkpoint first",
        Late,
        "i5 c 5-6 +800",
    ),
    case(
        "a new epoch whose first message is lost",
        Late,
        "5-9 C e1 1-2 C +800",
    ),
    case(
        "a recorded checkpoint of another epoch before a lane under way",
        Late,
        "e3 i5 C e7 2500-2509 c +800",
    ),
    case(
        "a recorded drop record of another epoch before a lane under way",
        Late,
        "e3 i5 D3 e7 2500-2509 c +800",
    ),
    case(
        "a new epoch of which nothing comes",
        Late,
        "5-9 C e1 i4 c +800",
    ),
    case("an epoch that a directory announced", Late, "d0 1-2 C +800"),
    case(
        "an epoch that a directory listed with messages",
        Late,
        "d2 3-4 C +800",
    ),
    case("another lane is joined for itself", Late, "0-2 l2 5-6 +800"),
    case(
        "a member of a group misses nothing",
        Member,
        "1 3 0 C +5000",
    ),
    // Directories
    case("a directory tells of the end", Beginning, "0-2 d5 +800"),
    case(
        "a directory that does not list a known lane",
        Beginning,
        "0-2 d3 d- +30000",
    ),
    case("a lane that no directory lists", Late, "0-2 +19999 +1 +1"),
    all_lanes("all lanes: one that is lost whole", Late, "d0 i3 d3 +800"),
    all_lanes(
        "all lanes: one that is not listed is injected",
        Beginning,
        "0 d0 0",
    ),
    all_lanes(
        "all lanes: listed and lost whole from the beginning",
        Beginning,
        "d3 +800",
    ),
    all_lanes(
        "all lanes: a late joiner takes what is not listed",
        Late,
        "0-2 C",
    ),
    case(
        "a lane that is listed again",
        Beginning,
        "0-2 d3 d- d3 +30000",
    ),
    case(
        "a forged start hides nothing that the producer lists later",
        Beginning,
        "0-2 d3 d-^9 d3 d5 d5 +30000",
    ),
    case(
        "a forged start that comes first hides nothing",
        Beginning,
        "0-2 d-^9 d3 d5 +800",
    ),
    case(
        "a forged number hides nothing that the producer lists later",
        Beginning,
        "0-2 d3 d3#4294967295 d3 d5 d5 +800",
    ),
    case(
        "two directories of one start and number",
        Beginning,
        "0-2 d3#0 d5#0 d3#0 d5#0 +800",
    ),
    case(
        "a copy of a directory that has been followed changes nothing",
        Beginning,
        "0-2 d3#0 d-#1 d3#0 d-#1 +800",
    ),
    all_lanes(
        "all lanes: a lane lost whole behind a forged number",
        Beginning,
        "d-#4294967295 d0 d3 +800",
    ),
    all_lanes(
        "all lanes: both of two starts list what may come",
        Beginning,
        "d0^9 d- d0 0-2 C",
    ),
    case(
        "a producer that begins anew contradicts nothing",
        Beginning,
        "0-2 d3 C d-^2 e1 d0^2 d0^2 0-1 C",
    ),
    case("a directory with messages, late", Late, "d5 i5 0-4 C +800"),
    // Silence
    case(
        "no checkpoint for two heartbeats",
        Beginning,
        "0 c +1999 +1 1 c",
    ),
    case(
        "an idle producer may be silent for longer",
        Beginning,
        "0 c c#1 +19999 +1 c#2",
    ),
    case("a closed lane is not silent", Beginning, "0 C +30000"),
    case(
        "a known checkpoint again is no sign of the producer",
        Beginning,
        "0 c +1000 c#0 +999 +1",
    ),
    case(
        "a known checkpoint again does not end a silence",
        Beginning,
        "0 c +2000 c#0 +30000 1 c",
    ),
    case(
        "a known checkpoint again allows no longer silence",
        Beginning,
        "0 c c#0 +1999 +1",
    ),
];
