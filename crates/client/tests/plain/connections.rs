//! Connections that are lost, refused or taken over.

use super::*;

#[tokio::test]
async fn a_lost_client_leaves_its_will_and_one_that_says_goodbye_does_not() {
    for kind in Kind::installed() {
        let broker = Broker::start(kind);
        for version in VERSIONS {
            let watcher = connect(options(broker.address(), "watcher").version(version)).await;
            let mut wills = watcher.subscribe(filter("will/#")).await.unwrap();
            let relay = Relay::to(broker.address()).await;
            let mortal = |id: &str| {
                options(relay.address(), id)
                    .version(version)
                    .session(Session::Temporary)
                    .will(message(&format!("will/{id}"), "gone"), 0)
            };
            let polite = connect(mortal("polite")).await;
            within("the end", polite.disconnect()).await;
            let unlucky = connect(mortal("unlucky")).await;
            relay.close();
            let received = within("the will", wills.recv()).await.unwrap();
            assert_eq!(received.topic(), "will/unlucky", "{kind:?} {version}");
            drop(unlucky);
        }
    }
}

#[tokio::test]
async fn a_client_without_an_answer_gives_up_when_its_patience_ends() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let patience = TotalDuration(Duration::from_millis(50));
    let error = options(nobody, "patient")
        .patience(patience)
        .connect()
        .await
        .unwrap_err();
    assert!(matches!(error, ConnectError::GaveUp { .. }), "{error}");
    // Something listens and says nothing.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let to: ConnectTo = mute.local_addr().unwrap().into();
    let error = options(to, "patient")
        .attempt(RetryDuration(Duration::from_millis(20)))
        .patience(patience)
        .connect()
        .await
        .unwrap_err();
    let ConnectError::GaveUp { last, .. } = error else {
        panic!("{error}");
    };
    assert!(matches!(*last, ConnectError::NoAnswer { .. }), "{last}");
}

#[tokio::test]
async fn what_another_try_cannot_change_ends_the_client_at_once() {
    let broker = Broker::start(Kind::Unbroken);
    let relay = Relay::to(broker.address()).await;
    relay.inject_to_client(|packet| match packet.first() {
        Some(0x20) => Fate::pass(&[0x20, 3, 0, 0x86, 0]),
        _ => Fate::pass(packet),
    });
    let error = within("an end", options(relay.address(), "who").connect())
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("check user name and password"),
        "{error}"
    );
}

#[tokio::test]
async fn a_session_that_is_kept_is_refused_without_a_name_of_its_own() {
    let broker = Broker::start(Kind::Unbroken);
    let kept = Session::Kept { expiry_s: 60 };
    let nameless = || Options::new(broker.address().into()).session(kept);
    for options in [nameless(), nameless().client_id("")] {
        let error = within("an end", options.connect()).await.unwrap_err();
        assert!(matches!(error, ConnectError::Nameless), "{error}");
    }
    connect(nameless().client_id("named")).await;
}

#[tokio::test]
async fn two_clients_with_one_name_do_not_throw_each_other_out_for_ever() {
    // Mosquitto closes without saying that another took the session over.
    let broker = Broker::start(Kind::Unbroken);
    let first = connect(options(broker.address(), "twin")).await;
    let mut events = first.events();
    let second = connect(options(broker.address(), "twin")).await;
    let why = loop {
        match within("an event", events.next()).await {
            Some(Event::Ended { why }) => break why,
            Some(_) => {}
            None => panic!("no end"),
        }
    };
    assert!(why.to_string().contains("taken over"), "{why}");
    assert!(first.publish(message("a", "x")).await.is_err());
    second.publish(message("a", "x")).await.unwrap();
}

#[tokio::test]
async fn a_client_that_is_to_return_throws_its_twin_out() {
    let broker = Broker::start(Kind::Unbroken);
    let returning = options(broker.address(), "twin").taken_over(TakenOver::Return);
    let first = connect(returning).await;
    let mut events = first.events();
    let second = connect(options(broker.address(), "twin")).await;
    let mut ended = second.events();
    loop {
        match within("an event", events.next()).await.unwrap() {
            Event::Connected { .. } => break,
            Event::Ended { why } => panic!("{why}"),
            _ => {}
        }
    }
    while !matches!(
        within("an event", ended.next()).await.unwrap(),
        Event::Ended { why } if why.is_taken_over()
    ) {}
    first.publish(message("a", "x")).await.unwrap();
}
