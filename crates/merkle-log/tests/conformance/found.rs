//! Cases in which the ledger and the verifier once differed in a random script.

use unbroken_merkle_log::ledger::Join::{Beginning, Late, Member};

use super::scripts::{Script, all_lanes, case};

pub(crate) const FOUND: &[Script] = &[
    case("a cut hides no contradiction", Beginning, "0-4 c#0 X c@3#1"),
    case("an end below the size of a cut", Beginning, "0-4 X C@3#1"),
    case(
        "a cut below the newest checkpoint",
        Beginning,
        "0-4 c X@3 C",
    ),
    case(
        "what comes beyond a cut ends no window",
        Beginning,
        "0-2 0 3 X@3 4 c",
    ),
    case(
        "a loss in a window that only a later checkpoint covers",
        Beginning,
        "0-1020 1022-1024 C +800 1021r",
    ),
    case(
        "a loss in a window of which a checkpoint covered a part",
        Beginning,
        "0-1019 c 1022-1024 C +800",
    ),
    case(
        "a window that fills behind a later checkpoint",
        Beginning,
        "0-1022 c 1024 c#2 1023 C",
    ),
    case(
        "losses that two checkpoints told of are one range",
        Beginning,
        "0 i3 c i5 c +800",
    ),
    case(
        "what two checkpoints told of is suspected as one range",
        Beginning,
        "0 i2 c +100 i4 c 5 +2000",
    ),
    case(
        "the bound of what a drop record shows counts from its checkpoint",
        Beginning,
        "0 i4 c +500 D3 +300",
    ),
    case(
        "nothing is issued and nothing is silent",
        Beginning,
        "c +3000",
    ),
    case(
        "a size below the largest is nothing new",
        Beginning,
        "0-2 c@9~ c@3#1 +2000 +17999 +1",
    ),
    case(
        "silence ends before what the checkpoint contradicts",
        Beginning,
        "0-4 c +2000 c@3#1",
    ),
    case("a member compares repetitions", Member, "0-2 1 1f"),
    case(
        "a leaf behind a hole of another window is folded",
        Beginning,
        "0-1020 1022-1025 1024f",
    ),
    case(
        "a root over less than has come is not compared",
        Beginning,
        "0 0 1-3 c@2~ c#1",
    ),
    case(
        "a detail is compared beside a loss",
        Beginning,
        "0 2 3f F +800",
    ),
    case(
        "fingerprints of folded messages are compared beside a loss",
        Beginning,
        "0 1f 3 F +800",
    ),
    case(
        "a detail that comes after the size was told",
        Beginning,
        "1 i2 C#0 L 0f",
    ),
    case(
        "a checkpoint before the scope contradicts nothing",
        Late,
        "C@3#1~ 2-7 c@11 c",
    ),
    case(
        "a directory tells no size that a checkpoint contradicts",
        Beginning,
        "0-2 c#5 d5 3-4 c#4",
    ),
    case(
        "suspicion ends when an altered copy comes",
        Beginning,
        "0 2 1a C +800",
    ),
    case(
        "an altered copy among what is suspected",
        Beginning,
        "0 4 2a 1 3 C +800",
    ),
    case(
        "a message that was altered is late, and ends a stretch",
        Beginning,
        "0 2 1a 3 1 C",
    ),
    case(
        "the last of a window comes late, and proves it",
        Beginning,
        "1-2 i3 C 0",
    ),
    case(
        "a drop record in a window that is faulty",
        Beginning,
        "0 2 i4 c +800 D1 c",
    ),
    case(
        "a drop record of the last that is missing",
        Beginning,
        "0 2 i3 C D1",
    ),
    case("a member to which a forged message came", Member, "0f 1 L"),
    case(
        "a member of what was declared and is sent again",
        Member,
        "0-2 D4 6 5r 4r",
    ),
    case(
        "checkpoints alone are a sign of a lane",
        Late,
        "c +19999 +1",
    ),
    case(
        "a conflict that comes twice is decided once",
        Beginning,
        "0 0 1 1f 1f C",
    ),
    case(
        "two contradictory roots prove nothing",
        Beginning,
        "0-2 c~ C",
    ),
    case(
        "a smaller root with the number of the newest",
        Beginning,
        "0-2 c#0 c#1 c@1#1",
    ),
    case(
        "a lost message that a later end leaves out",
        Beginning,
        "d1 +1000 C 0",
    ),
    all_lanes(
        "all lanes: one that was listed stays one",
        Beginning,
        "d0 0-1 d- 2 C +800",
    ),
    all_lanes(
        "all lanes: a checkpoint of one that no directory lists",
        Beginning,
        "i3 c +800",
    ),
    all_lanes(
        "all lanes: a late joiner that knows another epoch",
        Late,
        "0 e1 d3 +800",
    ),
];
