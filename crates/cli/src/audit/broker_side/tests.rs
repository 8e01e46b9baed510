use super::*;

const WINDOW: &[u8] = br#"{"lane":"0000000000000007","epoch":3,"first":0,"size":1024,
    "state":"proven","issued":1024,"arrived":1024,"lost":0,"altered":0}"#;
const FAULT: &[u8] = br#"{"lane":"0000000000000007","epoch":3,"kind":"lost",
    "place":"before the broker","client":"pump","first":5,"count":2}"#;
const STATE: &[u8] = br#"{"lane":"0000000000000008","epoch":9,"messages":120,"root":"00",
    "since":0,"state":"proven","expected":240,"handed_to_network":200,"acknowledged":38,"processed":0,
    "dropped":{"queue-full":2},"open":0}"#;

const PART: &[u8] = br#"{"lane":"0000000000000009","epoch":1,"client":"pump","state":"part",
    "messages":5632,"left_out":3072,"words":"rules leave out some of its messages"}"#;

fn lane(id: u64) -> LaneId {
    LaneId::new(id).unwrap()
}

#[test]
fn nothing_is_believed_of_a_broker_that_keeps_no_account() {
    let mut broker = BrokerSide::default();
    broker.take("$audit/0000000000000007/fault", FAULT);
    assert_eq!(
        (broker.lane(lane(7), 3), broker.found_faults()),
        (None, false)
    );
    assert_eq!(broker.take_news(), []);
    broker.take(BrokerSide::VERDICT, b"3 received, 3 expected deliveries");
    assert!(broker.found_faults());
    assert_eq!(broker.take_news().len(), 1);
}

#[test]
fn of_lanes_that_are_not_heard_nothing_counts() {
    let mut broker = BrokerSide::default();
    broker.only_of(&["plant/#".to_owned()]);
    broker.take(BrokerSide::VERDICT, b"3 received");
    broker.take("$audit/0000000000000007/fault", FAULT);
    broker.take("$audit/0000000000000008/state", STATE);
    assert!(!broker.found_faults() && !broker.has_judged());
    assert_eq!(broker.take_news(), []);
    broker.hear(lane(7));
    assert!(broker.found_faults() && !broker.has_judged());
    assert_eq!(
        broker.take_news().len(),
        1,
        "it was kept for when the lane is heard"
    );
}

#[test]
fn a_fault_that_tells_its_topic_counts_by_its_topic() {
    let mut broker = BrokerSide::default();
    broker.only_of(&["$share/g/plant/#".to_owned(), "b".to_owned()]);
    broker.take(BrokerSide::VERDICT, b"3 received");
    broker.hear(lane(7));
    let fault = |topic: &str| {
        let fault = String::from_utf8_lossy(FAULT);
        fault.replace(r#""count":2"#, &format!(r#""count":1,"topic":"{topic}""#))
    };
    broker.take("$audit/0000000000000007/fault", fault("other").as_bytes());
    assert!(
        !broker.found_faults(),
        "its lane is heard, its topic is not"
    );
    assert_eq!(broker.take_news(), []);
    let said = broker.lane(lane(7), 3).unwrap().to_string();
    assert_eq!(said, "1 faults on other topics");
    broker.take("$audit/0000000000000009/fault", fault("plant/x").as_bytes());
    assert!(broker.found_faults(), "its topic is heard");
    assert_eq!(broker.take_news().len(), 1);
}

#[test]
fn of_some_of_the_topics_a_fault_without_a_topic_may_be_on_another() {
    let mut broker = BrokerSide::default();
    broker.only_of(&["plant".to_owned()]);
    broker.take(BrokerSide::VERDICT, b"3 received");
    broker.hear(lane(7));
    broker.take("$audit/0000000000000007/fault", FAULT);
    assert!(broker.found_faults());
    broker.expect_part();
    assert!(!broker.found_faults());
    assert_eq!(broker.faults_perhaps_elsewhere(), 2);
    let here = String::from_utf8_lossy(FAULT);
    let here = here.replace(r#""count":2"#, r#""count":1,"topic":"plant""#);
    broker.take("$audit/0000000000000007/fault", here.as_bytes());
    assert!(broker.found_faults());
}

#[test]
fn at_least_one_forged_among_many_is_one_fault() {
    for kind in ["root-differs", "forged"] {
        let mut broker = BrokerSide::default();
        broker.take(BrokerSide::VERDICT, b"3 received");
        let fault = String::from_utf8_lossy(FAULT);
        let fault = fault
            .replace("lost", kind)
            .replace(r#""count":2"#, r#""count":100"#);
        broker.take("$audit/0000000000000007/fault", fault.as_bytes());
        assert_eq!(broker.lane(lane(7), 3).unwrap().to_string(), "1 faults");
    }
}

#[test]
fn a_lane_that_its_publisher_numbers_is_known_by_what_is_said_of_it() {
    let mut broker = BrokerSide::default();
    broker.take(BrokerSide::VERDICT, b"3 received");
    broker.take("$audit/0000000000000007/window", WINDOW);
    broker.take("$audit/0000000000000008/state", STATE);
    broker.take("$audit/0000000000000009/state", PART);
    let lanes = broker.lanes();
    let stamped: Vec<_> = lanes.map(|(_, said)| said.stamps_itself()).collect();
    assert_eq!(stamped, [true, false, true]);
}

#[test]
fn an_intrusion_is_news_and_no_fault_of_the_lane() {
    let mut broker = BrokerSide::default();
    broker.take(BrokerSide::VERDICT, b"3 received");
    let intruded = String::from_utf8_lossy(FAULT).replace("lost", "intruded");
    broker.take("$audit/0000000000000007/fault", intruded.as_bytes());
    assert!(!broker.found_faults());
    assert_eq!(broker.take_news().len(), 1);
    let told: Vec<_> = broker
        .intruded()
        .map(|(key, times, _)| (key, times))
        .collect();
    assert_eq!(told, [((lane(7), Some(3)), 2)]);
}

#[test]
fn each_epoch_of_a_lane_is_summed_for_itself() {
    let mut broker = BrokerSide::default();
    broker.take(BrokerSide::VERDICT, b"3 received");
    let later = String::from_utf8_lossy(WINDOW).replace(r#""epoch":3"#, r#""epoch":4"#);
    let later = later.replace(r#""lost":0"#, r#""lost":0,"out_of_scope":1024"#);
    for window in [WINDOW, WINDOW, later.as_bytes()] {
        broker.take("$audit/0000000000000007/window", window);
    }
    let said = |epoch| broker.lane(lane(7), epoch).map(Said::to_string);
    assert_eq!(said(3).unwrap(), "windows: 2 proven");
    let expect = "windows: 1 proven; 1024 OUT OF SCOPE; proven from 1024";
    assert_eq!(said(4).unwrap(), expect);
    assert_eq!(said(5), None);
}

#[test]
fn what_it_says_of_a_lane_is_one_line() {
    let mut broker = BrokerSide::default();
    broker.take(BrokerSide::VERDICT, b"123 received");
    broker.take("$audit/0000000000000007/window", WINDOW);
    broker.take("$audit/0000000000000007/fault", FAULT);
    broker.take("$audit/0000000000000008/state", STATE);
    broker.take("$audit/0000000000000009/state", PART);
    let said = |id, epoch| broker.lane(lane(id), epoch).map(Said::to_string);
    assert_eq!(said(7, 3).unwrap(), "windows: 1 proven; 2 faults");
    assert_eq!(said(7, 4), None, "another epoch");
    let state = "120 messages, 38 of 240 acknowledged; 200 handed to the network; \
                 2 dropped by name; proven";
    assert_eq!(said(8, 9).unwrap(), state);
    let part = "5632 messages; 3072 left out by rules; part";
    assert_eq!(said(9, 1).unwrap(), part);
    let news: Vec<_> = broker.take_news().iter().map(Word::to_string).collect();
    let expect = [
        "broker: lane 0000000000000007: numbers 0 to 1023 proven".to_owned(),
        format!(
            "broker: lane 0000000000000007: numbers 5 to 6 lost: before the broker, client pump; \
             {MAY_BE_FORGED}"
        ),
    ];
    assert_eq!(news, expect);
}

#[test]
fn what_was_refused_is_no_fault_and_the_account_of_a_session_is_one_line() {
    let refused = br#"{"lane":"0000000000000007","epoch":3,"client":"pump","first":17,
        "count":1,"reason":"denied","words":"number 17: refused, denied"}"#;
    let account = br#"{"client":"a/b","lane":"f9c884a42c2efadf","session":true,
        "connected":false,"on_disk":2,"expected":5,"stored":3,"handed_to_network":0,"sent":2,"acknowledged":1,
        "processed":1,"waiting":1,"in_flight":1,"handed_on":0,"given_up":0,
        "dropped":{"queue-full":2},"windows":{"proven":0,"faulty":0}}"#;
    let mut broker = BrokerSide::told_to("listener".to_owned());
    broker.take("$audit/account/listener", account);
    broker.take("$audit/account/a/b", account);
    assert_eq!(broker.accounts().count(), 0, "it keeps no account");
    broker.take(BrokerSide::VERDICT, b"123 received");
    broker.take("$audit/0000000000000007/refused", refused);
    assert!(!broker.found_faults());
    let said = broker.lane(lane(7), 3).unwrap().to_string();
    assert_eq!(said, "1 refused by name");
    let news = broker.take_news()[0].to_string();
    let words = "number 17: refused, denied, client pump";
    assert_eq!(news, format!("broker: lane 0000000000000007: {words}"));
    let lines: Vec<_> = broker.accounts().map(|(of, its)| its.line(of)).collect();
    let figures: Vec<_> = lines[0].split_whitespace().collect();
    let expect = ["5", "3", "0", "2", "1", "1", "3", "2", "a/b", "(away)"];
    assert_eq!(figures, expect);
    broker.take("$audit/account/a/b", br#"{"client":"a/b","session":false}"#);
    assert_eq!(broker.accounts().count(), 0);
}

#[test]
fn what_cannot_be_read_is_left_alone() {
    let mut broker = BrokerSide::default();
    broker.take(BrokerSide::VERDICT, b"");
    for (topic, payload) in [
        ("$audit/0000000000000007/window", &b"[]"[..]),
        ("$audit/0000000000000007/window", b"{"),
        ("$audit/0000000000000007/more", b"{}"),
        ("$audit/client/pump", b"{}"),
        ("$SYS/audit/lost", b"0"),
    ] {
        broker.take(topic, payload);
    }
    assert_eq!(broker.take_news(), []);
    assert!(!broker.found_faults());
}
