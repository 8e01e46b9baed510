use super::*;

struct Book {
    account: Account,
    totals: AuditTotals,
}

impl Book {
    fn new() -> Self {
        let (account, totals) = (Account::default(), AuditTotals::default());
        Self { account, totals }
    }

    fn accept(&mut self, count: u64) {
        for _ in 0..count {
            self.account.accept(&mut self.totals, Counting::Shown);
        }
    }

    fn settle(&mut self, number: u64, fate: Fate) -> Option<(FaultKind, u64, u64)> {
        let found = self.account.settle(&mut self.totals, number, fate)?;
        Some((found.kind, found.first, found.count))
    }
}

#[test]
fn what_is_owed_is_sent_waits_or_was_dropped() {
    let mut book = Book::new();
    book.accept(5);
    assert_eq!(book.account.imbalance(5), 0);
    assert_eq!(book.settle(0, Fate::Sent), None);
    assert_eq!(book.settle(1, Fate::Dropped), None);
    assert_eq!(book.settle(2, Fate::Sent), None);
    assert_eq!(book.settle(2, Fate::Acknowledged), None);
    book.account.sent_qos0(&mut book.totals, Counting::Shown);
    book.account
        .refused_entry(&mut book.totals, Counting::Shown);
    // Number 0 is in flight, 3 and 4 wait.
    assert_eq!(book.account.imbalance(3), 0);
    assert_eq!(book.totals.waiting(), 2);
}

#[test]
fn a_delivery_that_is_nowhere_breaks_the_law() {
    let mut book = Book::new();
    book.accept(3);
    assert_eq!(book.account.imbalance(2), 1);
    assert_eq!(book.account.imbalance(4), 1);
}

#[test]
fn what_was_passed_over_is_lost_and_late_if_it_comes_after_all() {
    let mut book = Book::new();
    book.accept(4);
    assert_eq!(book.settle(0, Fate::Sent), None);
    let lost = Some((FaultKind::Lost, 1, 2));
    assert_eq!(book.settle(3, Fate::Sent), lost);
    let late = Some((FaultKind::Reordered, 2, 1));
    assert_eq!(book.settle(2, Fate::Sent), late);
    let twice = Some((FaultKind::Duplicated, 2, 1));
    assert_eq!(book.settle(2, Fate::Sent), twice);
}

#[test]
fn what_is_dropped_may_overtake_what_is_held() {
    let mut book = Book::new();
    book.accept(6);
    assert_eq!(book.settle(1, Fate::Dropped), None);
    assert_eq!(book.settle(2, Fate::Dropped), None);
    assert_eq!(book.settle(4, Fate::HandedOn), None);
    assert_eq!(book.account.imbalance(3), 0);
    assert_eq!(book.settle(0, Fate::Sent), None);
    assert_eq!(book.settle(3, Fate::Sent), None);
    assert_eq!(book.settle(5, Fate::Sent), None);
    assert_eq!(book.account.imbalance(3), 0);
}

#[test]
fn what_went_ahead_is_neither_lost_nor_sent_later() {
    let mut book = Book::new();
    book.accept(5);
    assert_eq!(book.settle(1, Fate::Dropped), None);
    let lost = Some((FaultKind::Lost, 0, 2));
    assert_eq!(book.settle(3, Fate::Sent), lost, "0 and 2");
    assert_eq!(book.settle(4, Fate::Sent), None);
    let mut book = Book::new();
    book.accept(3);
    assert_eq!(book.settle(2, Fate::Dropped), None);
    let twice = Some((FaultKind::Duplicated, 2, 1));
    assert_eq!(book.settle(2, Fate::Dropped), twice);
    assert_eq!(book.settle(2, Fate::Sent), twice);
}

#[test]
fn more_acknowledgements_than_were_sent_break_the_law() {
    let mut book = Book::new();
    book.accept(1);
    book.settle(0, Fate::Sent);
    book.settle(0, Fate::Acknowledged);
    assert_eq!(book.account.imbalance(0), 0);
    book.settle(0, Fate::Acknowledged);
    assert_eq!(book.account.imbalance(0), 1);
}

#[test]
fn the_audits_own_traffic_is_counted_apart_and_obeys_the_law() {
    let mut book = Book::new();
    book.account
        .sent_qos0(&mut book.totals, Counting::OwnTraffic);
    book.account
        .refused_entry(&mut book.totals, Counting::OwnTraffic);
    book.account.accept(&mut book.totals, Counting::OwnTraffic);
    book.accept(1);
    book.account.accept(&mut book.totals, Counting::OwnTraffic);
    book.account.accept(&mut book.totals, Counting::OwnTraffic);
    for number in 0..3 {
        assert_eq!(book.settle(number, Fate::Sent), None);
    }
    book.settle(0, Fate::Acknowledged);
    book.settle(1, Fate::Acknowledged);
    // Number 2 is in flight, 3 waits; both are the audit's own.
    assert_eq!(book.account.imbalance(2), 0);
    let text = book.account.write(0, Object::new()).end();
    let shown = r#"{"expected":1,"stored":1,"handed_to_network":0,"sent":1,"acknowledged":1,"#;
    assert!(text.starts_with(shown), "{text}");
    assert!(text.contains(r#""waiting":0,"in_flight":0"#), "{text}");
    assert_eq!(book.totals.shown_waiting(), 0);
    assert_eq!(book.totals.waiting(), 1);
    book.settle(2, Fate::GivenUp);
    book.settle(3, Fate::Dropped);
    assert_eq!(book.account.imbalance(0), 0);
    assert_eq!(book.totals.aside.waiting(), 0);
}

#[test]
fn deliveries_to_a_watcher_are_counted_apart_and_obey_the_law() {
    let mut book = Book::new();
    let topics = Topics::new("audit");
    book.accept(1);
    book.account.set_watcher(true);
    let counting = book.account.counting_of(&topics, "t");
    assert_eq!(counting, Counting::Watcher);
    assert_eq!(
        book.account.counting_of(&topics, "$SYS/a"),
        Counting::OwnTraffic
    );
    book.account.sent_qos0(&mut book.totals, counting);
    book.account.accept(&mut book.totals, counting);
    assert_eq!(book.account.refused_entries(&mut book.totals, 7), 7);
    // What it is sent after it has come back as another client is shown again.
    book.account.set_watcher(false);
    let counting = book.account.counting_of(&topics, "t");
    book.account.accept(&mut book.totals, counting);
    assert_eq!(book.account.imbalance(3), 0);
    let shown = book.totals.expected - book.totals.aside.expected;
    assert_eq!((shown, book.totals.to_watchers), (2, 9));
    for number in 0..3 {
        assert_eq!(book.settle(number, Fate::Dropped), None);
    }
    assert_eq!(book.account.imbalance(0), 0);
    assert_eq!(book.totals.dropped - book.totals.aside.dropped, 2);
}
