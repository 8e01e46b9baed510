use super::*;
use std::time::Duration;
use tempfile::TempDir;

fn lane_id() -> LaneId {
    LaneId::new(7).unwrap()
}

fn open(directory: &TempDir) -> Result<(Spool, Remembered), SpoolError> {
    let limits = LaneLimits::default();
    Spool::open(
        directory.path(),
        lane_id(),
        1 << 20,
        &limits,
        &Hasher::xxh3(),
    )
}

fn message(number: u64) -> Message {
    let message = Message::new("topic", number.to_string().as_bytes()).unwrap();
    message.retained().user_property("a", "b").unwrap()
}

fn new_lane() -> Lane {
    Lane::new(lane_id(), Epoch(3), LaneLimits::default(), Duration::ZERO)
}

/// A lane, then frames of two messages each.
fn written(directory: &TempDir, frames: u64) {
    let (mut spool, _) = open(directory).unwrap();
    spool.put_lane(&new_lane(), &Hasher::xxh3());
    spool.commit().unwrap();
    for frame in 0..frames {
        spool.put_message(frame * 2, &message(frame * 2));
        spool.put_message(frame * 2 + 1, &message(frame * 2 + 1));
        spool.put_acknowledged(frame);
        spool.commit().unwrap();
    }
}

fn path(directory: &TempDir) -> PathBuf {
    directory.path().join(format!("{}.spool", lane_id()))
}

#[test]
fn what_was_written_is_remembered() {
    let directory = tempfile::tempdir().unwrap();
    written(&directory, 4);
    let (_, remembered) = open(&directory).unwrap();
    assert_eq!(remembered.lane.as_ref().map(Lane::size), Some(8));
    assert_eq!(remembered.acknowledged, 3);
    let expect: Vec<_> = (0..8).map(message).collect();
    assert_eq!(remembered.messages, expect);
}

#[test]
fn wherever_the_end_is_torn_off_whole_frames_are_remembered_and_the_rest_is_cut() {
    let directory = tempfile::tempdir().unwrap();
    written(&directory, 3);
    let whole = fs::read(path(&directory)).unwrap();
    let mut last = [0, 0];
    for length in 0..whole.len() {
        for (zeros, last) in [0, 40].into_iter().zip(&mut last) {
            if zeros > 0 && length % 3 > 0 {
                continue;
            }
            let torn = [&whole[..length], &vec![0; zeros][..]].concat();
            fs::write(path(&directory), torn).unwrap();
            if length < MAGIC.len() && zeros > 0 {
                // No spool is this; it is not overwritten.
                assert!(open(&directory).is_err());
                continue;
            }
            let (mut spool, remembered) = open(&directory).unwrap();
            let size = remembered.lane.as_ref().map_or(0, Lane::size);
            assert!(size == *last || size == *last + 2, "{size} after {last}");
            *last = size;
            // It can be continued. Syncing takes time, so not everywhere.
            if remembered.lane.is_some() && length % 11 == 0 {
                spool.put_message(size, &message(size));
                spool.commit().unwrap();
                drop(spool);
                let (_, remembered) = open(&directory).unwrap();
                assert_eq!(remembered.lane.as_ref().map(Lane::size), Some(size + 1));
            }
        }
    }
    assert_eq!(last[0], 4);
}

#[test]
fn a_changed_byte_before_the_last_frame_is_an_error_with_its_place() {
    let directory = tempfile::tempdir().unwrap();
    written(&directory, 3);
    let whole = fs::read(path(&directory)).unwrap();
    let last_frame = (0..whole.len())
        .rev()
        .find(|at| {
            let (limits, hasher) = (LaneLimits::default(), Hasher::xxh3());
            let reading = Reading::new(&whole, &limits, &hasher);
            *at >= 8 && matches!(reading.frame(*at), Ok(Some(body)) if !body.is_empty())
        })
        .unwrap();
    for at in 0..last_frame {
        let mut bad = whole.clone();
        bad[at] ^= 1;
        fs::write(path(&directory), bad).unwrap();
        let error = open(&directory).unwrap_err();
        assert!(
            matches!(error, SpoolError::Damaged { .. }),
            "byte {at}: {error}"
        );
    }
}

#[test]
fn spools_are_found_by_their_lanes() {
    let directory = tempfile::tempdir().unwrap();
    let (limits, hasher) = (LaneLimits::default(), Hasher::xxh3());
    let lanes = [3, 0xAB].map(|id| LaneId::new(id).unwrap());
    for lane in lanes.into_iter().rev() {
        Spool::open(directory.path(), lane, 1 << 20, &limits, &hasher).unwrap();
    }
    assert_eq!(spooled_lanes(directory.path()).unwrap(), lanes);
    assert_eq!(spooled_lanes(&directory.path().join("absent")).unwrap(), []);
}

#[test]
fn two_processes_cannot_continue_one_lane() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(&directory).unwrap();
    assert!(matches!(open(&directory), Err(SpoolError::InUse(_))));
    drop(first);
    open(&directory).unwrap();
}

#[test]
fn a_spool_written_anew_remembers_the_same_from_its_lane_on() {
    let directory = tempfile::tempdir().unwrap();
    written(&directory, 4);
    let (mut spool, remembered) = open(&directory).unwrap();
    let mut saved = Vec::new();
    let lane = remembered.lane.unwrap();
    let from = lane.save(5, &Hasher::xxh3(), &mut saved);
    let messages: Vec<_> = (from..8).map(|number| (number, message(number))).collect();
    let messages = messages.iter().map(|(number, message)| (*number, message));
    let rest = Rest {
        acknowledged: 6,
        told: Some((4, 7)),
        taken: None,
        dropped: Vec::new(),
        start: 9,
    };
    spool.rewrite(&saved, messages, &rest).unwrap();
    spool.put_message(8, &message(8));
    spool.commit().unwrap();
    drop(spool);
    let (_, remembered) = open(&directory).unwrap();
    assert_eq!(remembered.messages, (5..9).map(message).collect::<Vec<_>>());
    assert_eq!(
        (remembered.acknowledged, remembered.told, remembered.start),
        (6, Some((4, 7)), 9)
    );
    assert_eq!(remembered.lane.map(|lane| lane.size()), Some(9));
}

#[test]
fn a_closed_epoch_is_not_continued() {
    let directory = tempfile::tempdir().unwrap();
    written(&directory, 1);
    let (mut spool, _) = open(&directory).unwrap();
    spool.put_start(5);
    spool.put_closed(Epoch(3));
    spool.commit().unwrap();
    drop(spool);
    let (_, remembered) = open(&directory).unwrap();
    assert!(remembered.lane.is_none());
    assert_eq!((remembered.closed, remembered.start), (Some(Epoch(3)), 5));
}
