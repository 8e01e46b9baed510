//! The conformance set: inputs to a receiver, and what it is to say of them, as JSON that any
//! implementation can run. Its README says how.
//!
//! The scripts here make the inputs. What the ledger says of them is compared with the files, so a
//! change of a verdict is seen; that the files are right is checked by a reader of the page that
//! shares no code with the ledger, `testdata/conformance/verifier.py`.
//!
//! Run with `UPDATE_CONFORMANCE=1` to write the files anew. `CONFORMANCE_SEEDS` is how many random
//! scripts are written for the verifier, to `target/tmp/random-verdicts.json`.

#![allow(clippy::unwrap_used, reason = "a test fails by panic")]

mod found;
mod random;
mod scripts;

use std::env;
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use unbroken_merkle_log::ledger::{
    Answer, Event, Join, Ledger, LedgerLimits, Presence, Request, Taken, Verdict,
};
use unbroken_merkle_log::{
    Checkpoint, Detail, DetailLevel, Directory, DropReason, DropRecord, Epoch, EpochEnd, Hash,
    Hasher, Lane, LaneId, LaneLimits, OpenLane, Part, Property, Tree,
};

use self::found::FOUND;
use self::scripts::{SCRIPTS, Script};

const TOPIC: &[u8] = b"plant/7";
const WINDOW: u64 = 1_024;

/// A producer that follows a script, and the receiver that is tested.
struct Scene {
    hasher: Hasher,
    lane: Lane,
    tree: Tree,
    checkpoints: u32,
    directories: u32,
    ledger: Ledger<Hasher>,
    now: Duration,
    /// A stamped message has come on the topic.
    is_stamped: bool,
    steps: Vec<Value>,
}

impl Scene {
    fn new(script: &Script) -> Self {
        let hasher = Hasher::xxh3();
        let mut ledger = Ledger::new(hasher.clone(), LedgerLimits::default(), script.join);
        if script.all_lanes {
            ledger.expect_listed();
            if script.join == Join::Beginning {
                ledger.require_directories();
            }
        }
        ledger.resume(Duration::ZERO);
        Self {
            lane: new_lane(1, 0, DetailLevel::None),
            tree: Tree::new(),
            checkpoints: 0,
            directories: 0,
            hasher,
            ledger,
            now: Duration::ZERO,
            is_stamped: false,
            steps: Vec::new(),
        }
    }

    fn run(mut self, script: &Script) -> Value {
        for word in script.steps.split_whitespace() {
            self.word(word);
        }
        let join = match script.join {
            Join::Beginning => "beginning",
            Join::Late => "late",
            Join::Member => "member",
        };
        json!({
            "name": script.name, "join": join, "all_lanes": script.all_lanes, "steps": self.steps,
        })
    }

    /// The scripts' language; `scripts.rs` says what each word means.
    fn word(&mut self, word: &str) {
        if let Some(ms) = word.strip_prefix('+') {
            self.now += Duration::from_millis(ms.parse().unwrap());
            self.ledger.poll(self.now);
            return self.step(json!({ "time": true }));
        }
        match word {
            "stand" => {
                self.ledger.pause(self.now);
                return self.step(json!({ "clock": "stands" }));
            }
            "run" => {
                self.ledger.resume(self.now);
                return self.step(json!({ "clock": "runs" }));
            }
            "ask" => return self.ask(),
            _ => {}
        }
        let (kind, rest) = word.split_at(1);
        match kind {
            "e" => self.begin(self.lane.id().value(), rest.parse().unwrap()),
            "l" => self.begin(rest.parse().unwrap(), 0),
            "i" => self.issue(rest.parse().unwrap()),
            "c" | "C" | "X" => self.checkpoint(kind, rest),
            "d" => self.directory(rest),
            "D" => self.drop_record(rest),
            "F" | "L" => self.detailed(kind),
            _ => self.messages(word),
        }
    }

    fn begin(&mut self, lane: u64, epoch: u32) {
        self.lane = new_lane(lane, epoch, DetailLevel::None);
        self.tree = Tree::new();
        self.checkpoints = 0;
    }

    /// Issues messages until there are so many.
    fn issue(&mut self, size: u64) {
        while self.lane.size() < size {
            let payload = payload_of(self.lane.size());
            let property = self.lane.issue(TOPIC, payload.as_bytes(), &self.hasher);
            self.tree.append(&self.hasher, property.digest);
        }
    }

    fn messages(&mut self, word: &str) {
        let split = word.find(|letter: char| !letter.is_ascii_digit() && letter != '-');
        let (numbers, marks) = word.split_at(split.unwrap_or(word.len()));
        match numbers.split_once('-') {
            None => self.message(numbers.parse().unwrap(), marks),
            Some((first, last)) => self.issued(first.parse().unwrap(), last.parse().unwrap()),
        }
    }

    /// Messages that come one after the other, as issued; with their verdicts as runs.
    fn issued(&mut self, first: u64, last: u64) {
        let mut verdicts: Vec<(&str, u64)> = Vec::new();
        self.issue(last + 1);
        let (id, epoch) = (self.lane.id(), self.lane.epoch());
        for number in first..=last {
            let payload = payload_of(number);
            let payload = payload.as_bytes();
            let property = Property::stamp(&self.hasher, id, epoch, number, TOPIC, payload);
            let verdict = word(self.ledger.message(&property, TOPIC, payload, self.now));
            match verdicts.last_mut() {
                Some((known, count)) if *known == verdict => *count += 1,
                _ => verdicts.push((verdict, 1)),
            }
        }
        self.is_stamped = true;
        let topic = String::from_utf8_lossy(TOPIC);
        let (lane, epoch) = (id.to_string(), epoch.0);
        let issued = json!({
            "lane": lane, "epoch": epoch, "topic": topic, "first": first, "last": last,
        });
        self.step(json!({ "issued": issued, "verdicts": verdicts }));
    }

    fn message(&mut self, number: u64, marks: &str) {
        if number < 1 << 20 {
            self.issue(number + 1);
        }
        let (id, epoch) = (self.lane.id(), self.lane.epoch());
        let mut payload = payload_of(number);
        if marks.contains('f') {
            payload += ", forged";
        }
        if marks.contains('g') {
            payload += ", forged otherwise";
        }
        let stamp = |payload: &str| {
            Property::stamp(&self.hasher, id, epoch, number, TOPIC, payload.as_bytes())
        };
        let mut property = stamp(&payload);
        property.flags.resent = marks.contains('r');
        if let Some(at) = marks.find('p') {
            let part: Vec<u8> = marks[at + 1..]
                .bytes()
                .take(2)
                .map(|digit| digit - b'0')
                .collect();
            property.part = Part::new(part[0], part[1]);
        }
        if marks.contains('a') {
            payload += ", altered";
        }
        let mut stamps = vec![property.to_text()];
        if marks.contains('s') {
            stamps.push(property.to_text());
        }
        if marks.contains('u') {
            stamps[0].push('!');
        }
        if marks.contains('n') {
            stamps.clear();
        }
        let is_retained = marks.contains('k');
        let verdict = match &stamps[..] {
            _ if is_retained => None,
            // On a topic on which stamped messages have come.
            [] => self.is_stamped.then_some(Verdict::Injected),
            [stamp] => Some(match Property::parse_text(stamp) {
                Ok(property) => self
                    .ledger
                    .message(&property, TOPIC, payload.as_bytes(), self.now),
                Err(_) => Verdict::Injected,
            }),
            _ => Some(Verdict::Injected),
        };
        self.is_stamped |= !is_retained && stamps.len() == 1;
        let topic = String::from_utf8_lossy(TOPIC);
        let mut message = json!({ "topic": topic, "payload": payload, "audit": stamps });
        if is_retained {
            message["retained"] = json!(true);
        }
        let mut step = json!({ "message": message });
        step["verdict"] = json!(verdict.map(word));
        self.step(step);
    }

    /// `c` as it is, `@N` of this size, `#N` with this number, `~` with wrong roots.
    fn checkpoint(&mut self, kind: &str, rest: &str) {
        let field = |mark| {
            let (_, behind) = rest.split_once(mark)?;
            let end = behind.find(|letter: char| !letter.is_ascii_digit());
            behind[..end.unwrap_or(behind.len())].parse::<u64>().ok()
        };
        let size = field('@').unwrap_or(self.lane.size());
        let number = field('#').map(|number| u32::try_from(number).unwrap());
        let number = number.unwrap_or_else(|| {
            self.checkpoints += 1;
            self.checkpoints - 1
        });
        let first = size.saturating_sub(1) / WINDOW * WINDOW;
        let roots = |first, end| {
            let root = self.tree.window_root(&self.hasher, first, end);
            root.filter(|_| !rest.contains('~'))
                .unwrap_or_else(|| Hash::from([0xee; 16]))
        };
        let checkpoint = Checkpoint {
            window_root: roots(first, size),
            lane_root: roots(0, size),
            end: match kind {
                "c" => EpochEnd::Open,
                "C" => EpochEnd::Closed,
                _ => EpochEnd::Cut,
            },
            ..self.blank(number, first, size)
        };
        self.hear(&checkpoint);
    }

    /// A closing checkpoint with fingerprints or leaves.
    fn detailed(&mut self, kind: &str) {
        let size = self.lane.size();
        let first = (size - 1) / WINDOW * WINDOW;
        let leaves: Vec<Hash> = (first..size).filter_map(|at| self.tree.leaf(at)).collect();
        let number = self.checkpoints;
        self.checkpoints += 1;
        let checkpoint = Checkpoint {
            window_root: self.tree.window_root(&self.hasher, first, size).unwrap(),
            lane_root: self.tree.root(&self.hasher),
            end: EpochEnd::Closed,
            detail: match kind {
                "F" => {
                    let prints = leaves
                        .iter()
                        .map(|leaf| leaf.as_bytes()[..4].try_into().unwrap());
                    Detail::Fingerprints(prints.collect())
                }
                _ => Detail::Leaves(leaves),
            },
            ..self.blank(number, first, size)
        };
        self.hear(&checkpoint);
    }

    fn blank(&self, number: u32, first: u64, size: u64) -> Checkpoint {
        let none = Hash::from([0; 16]);
        Checkpoint {
            lane: self.lane.id(),
            epoch: self.lane.epoch(),
            number,
            window_log2: 10,
            first,
            size,
            time_us: 0,
            window_root: none,
            lane_root: none,
            end: EpochEnd::Open,
            detail: Detail::None,
        }
    }

    fn hear(&mut self, checkpoint: &Checkpoint) {
        let mut bytes = Vec::new();
        checkpoint.encode(&self.hasher, &mut bytes);
        self.ledger.checkpoint(checkpoint, self.now);
        self.step(json!({ "checkpoint": hex(&bytes) }));
    }

    /// The lane with so many messages; `-` none at all. Of another start or with another number, if
    /// one is named.
    fn directory(&mut self, rest: &str) {
        let (rest, number) = if let Some((rest, number)) = rest.split_once('#') {
            (rest, number.parse().unwrap())
        } else {
            self.directories += 1;
            (rest, self.directories - 1)
        };
        let (rest, start) = rest.split_once('^').unwrap_or((rest, "1"));
        let open = rest.parse().ok().map(|size| OpenLane {
            lane: self.lane.id(),
            epoch: self.lane.epoch(),
            size,
        });
        let directory = Directory {
            producer: 9,
            epoch: Epoch(start.parse().unwrap()),
            number,
            time_us: 0,
            lanes: open.into_iter().collect(),
        };
        let mut bytes = Vec::new();
        directory.encode(&self.hasher, &mut bytes).unwrap();
        let taken = self.ledger.directory(&directory, self.now, |_| true);
        let mut step = json!({ "directory": hex(&bytes) });
        if taken == Taken::Contradicts {
            step["contradicts"] = json!(true);
        }
        self.step(step);
    }

    /// Numbers, with commas between them, filtered out by a processor.
    fn drop_record(&mut self, rest: &str) {
        let (id, epoch) = (self.lane.id(), self.lane.epoch());
        let (numbers, forged) = match rest.strip_suffix('~') {
            Some(numbers) => (numbers, ", forged"),
            None => (rest, ""),
        };
        let dropped = numbers.split(',').map(|number| {
            let number = number.parse().unwrap();
            let payload = payload_of(number) + forged;
            Property::stamp(&self.hasher, id, epoch, number, TOPIC, payload.as_bytes())
        });
        let dropped: Vec<Property> = dropped.collect();
        let record = DropRecord::of(DropReason::FILTERED, &dropped).unwrap();
        let mut bytes = Vec::new();
        record.encode(&self.hasher, &mut bytes).unwrap();
        self.ledger.dropped(&record, self.now);
        self.step(json!({ "drop": hex(&bytes) }));
    }

    /// What the receiver asks for now; the producer answers about hashes.
    fn ask(&mut self) {
        let asked: Vec<_> = self.ledger.requests().collect();
        let requests = asked.iter().map(|(_, epoch, request)| {
            let mut bytes = Vec::new();
            request.encode(*epoch, &mut bytes);
            hex(&bytes)
        });
        let requests: Vec<String> = requests.collect();
        self.step(json!({ "requests": requests }));
        for (lane, epoch, request) in asked {
            if matches!(request, Request::Numbers(_)) {
                continue;
            }
            let Some(answer) = self.lane.answer(&request, &self.hasher) else {
                continue;
            };
            if matches!(answer, Answer::NotHeld(_)) {
                continue;
            }
            let mut bytes = Vec::new();
            answer.encode(epoch, &mut bytes);
            let taken = self.ledger.answer(lane, epoch, &answer);
            let mut answer = json!({ "lane": lane.to_string(), "answer": hex(&bytes) });
            if taken.is_err() {
                answer["refused"] = json!(true);
            }
            self.step(answer);
        }
    }

    fn step(&mut self, mut step: Value) {
        step["at_ms"] = json!(u64::try_from(self.now.as_millis()).unwrap());
        let mut events = Vec::new();
        for (lane, epoch, event) in self.ledger.take_events() {
            if let Some(mut event) = told(&event) {
                event["lane"] = json!(lane.to_string());
                event["epoch"] = json!(epoch.0);
                events.push(event);
            }
        }
        for (lane, presence) in self.ledger.take_presences() {
            let name = match presence {
                Presence::Absent(_) => "absent",
                Presence::Come(_) => "come",
                Presence::Unannounced(_) => "unannounced",
            };
            events.push(json!({ "event": name, "lane": lane.to_string() }));
        }
        if !events.is_empty() {
            step["events"] = json!(events);
        }
        self.steps.push(step);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn new_lane(id: u64, epoch: u32, detail: DetailLevel) -> Lane {
    let mut limits = LaneLimits::default();
    limits.detail = detail;
    let id = LaneId::new(id).unwrap();
    Lane::new(id, Epoch(epoch), limits, Duration::ZERO)
}

fn payload_of(number: u64) -> String {
    format!("21.{number}")
}

/// A verdict in the words of the page.
fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::InOrder => "in order",
        Verdict::Ahead => "ahead",
        Verdict::Late => "late",
        Verdict::Found => "found",
        Verdict::Repaired => "repaired",
        Verdict::Part => "part",
        Verdict::Duplicate => "duplicate",
        Verdict::Repeated => "repeated",
        Verdict::Replayed => "replayed",
        Verdict::Conflict => "conflict",
        Verdict::Altered => "altered",
        Verdict::Injected => "injected",
        Verdict::OutOfScope => "out of scope",
        Verdict::NotAudited => "not audited",
    }
}

/// An event in the words of the page; `None` for what it says nothing about.
fn told(event: &Event) -> Option<Value> {
    let range = |name: &str, numbers: &std::ops::Range<u64>| json!({ "event": name, "first": numbers.start, "end": numbers.end });
    Some(match event {
        Event::Suspected(numbers) => range("suspected", numbers),
        Event::Settled => json!({ "event": "settled" }),
        Event::Lost { numbers, tail } => {
            let mut lost = range("lost", numbers);
            lost["tail"] = json!(tail);
            lost
        }
        Event::Overtaken { number, by } => {
            json!({ "event": "overtaken", "number": number, "by": by })
        }
        Event::Moved(moved) => {
            let mut told = range("moved", &moved.numbers);
            told["displacement"] = json!(moved.displacement);
            told
        }
        Event::Injected { number, copies } => {
            json!({ "event": "injected", "number": number, "copies": copies })
        }
        Event::Forged(numbers) => range("forged", numbers),
        Event::ForgedAmong(numbers) => range("forged among", numbers),
        Event::Decided {
            number,
            second_is_real,
        } => json!({ "event": "decided", "number": number, "second_is_real": second_is_real }),
        Event::Window {
            numbers,
            state,
            account,
        } => {
            let mut told = range(&format!("{state:?}").to_lowercase(), numbers);
            told["arrived"] = json!(account.arrived);
            told["dropped"] = json!(account.dropped);
            told["lost"] = json!(account.lost);
            told["altered"] = json!(account.altered);
            told["forged"] = json!(account.forged);
            told
        }
        Event::RootDiffers(numbers) => range("root differs", numbers),
        Event::CheckpointContradicts(number) => {
            json!({ "event": "checkpoint contradicts", "number": number })
        }
        Event::EndContradicted { size, number } => {
            json!({ "event": "end contradicted", "size": size, "number": number })
        }
        Event::DropContradicted(number) => {
            json!({ "event": "drop contradicted", "number": number })
        }
        Event::TwoProducers => json!({ "event": "two producers" }),
        Event::OutOfScope(below) => json!({ "event": "out of scope", "below": below }),
        Event::OtherWindows(number) => json!({ "event": "other windows", "number": number }),
        Event::Silent(_) => json!({ "event": "silent" }),
        Event::Heard(_) => json!({ "event": "heard" }),
        Event::Unlisted => json!({ "event": "unlisted" }),
        Event::CheckpointsMissed(_) | Event::Forgotten(_) | Event::Unnamed(_) => return None,
    })
}

/// One step a line.
fn written(head: &str, cases: &[Value]) -> String {
    let mut text = format!("{{\n{head},\n\"cases\": [\n");
    for (at, case) in cases.iter().enumerate() {
        let steps = case["steps"].as_array().unwrap().iter();
        let steps: Vec<String> = steps.map(Value::to_string).collect();
        let (name, join, all) = (&case["name"], &case["join"], &case["all_lanes"]);
        let steps = steps.join(",\n");
        let end = if at + 1 < cases.len() { "," } else { "" };
        let head = format!(r#""name": {name}, "join": {join}, "all_lanes": {all}"#);
        writeln!(text, "{{{head}, \"steps\": [\n{steps}\n]}}{end}").unwrap();
    }
    text + "]\n}\n"
}

#[test]
fn the_ledger_says_of_each_case_what_the_set_says() {
    let cases: Vec<Value> = SCRIPTS
        .iter()
        .chain(FOUND)
        .map(|script| Scene::new(script).run(script))
        .collect();
    assert!(cases.len() >= 80, "{} cases", cases.len());
    let text = written(r#""version": 1"#, &cases);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/conformance/verdicts.json");
    if env::var_os("UPDATE_CONFORMANCE").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let known: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let known = known["cases"].as_array().unwrap();
    for (case, known) in cases.iter().zip(known) {
        assert_eq!(case, known, "{}", case["name"]);
    }
    assert_eq!(cases.len(), known.len());
}

/// For the verifier, which `cargo xtask ci` runs with what is written here.
#[test]
fn random_scripts_are_judged_and_written() {
    let seeds = env::var("CONFORMANCE_SEEDS").map_or(2_000, |seeds| seeds.parse().unwrap());
    let scripts = (0..seeds).map(random::script);
    let cases: Vec<Value> = scripts
        .map(|script| Scene::new(&script).run(&script))
        .collect();
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("random-verdicts.json");
    let head = r#""version": 1, "exact": false"#;
    fs::write(path, written(head, &cases)).unwrap();
}
