//! Listeners: their protocols, certificates and sockets.

use super::*;

#[test]
fn the_protocol_of_a_listener_may_be_named_and_is_mqtt() {
    assert!(load("[[listeners]]\nprotocol = \"mqtt\"\n", &[]).is_ok());
    let of = |name| format!("[[listeners]]\nprotocol = \"{name}\"\n");
    check(&of("quic"), &["broker.toml:2", "QUIC is not supported yet"]);
    check(&of("websockets"), &["broker.toml:2", "\"wss\""]);
    let ws = "[[listeners]]\nprotocol = \"ws\"\nallowed_origins = [\"https://a\", \"https://b\"]\n";
    let config = load(ws, &[]).unwrap().config;
    assert_eq!(config.listeners[0].port, 8083);
    assert_eq!(
        config.listeners[0].allowed_origins,
        ["https://a", "https://b"]
    );
    check(
        "[[listeners]]\nwebsocket_path = \"/x\"\n",
        &["broker.toml:2", "needs WebSocket"],
    );
    for path in ["", "mqtt", "/a b", "/a?b"] {
        check(
            &format!("{ws}websocket_path = \"{path}\"\n"),
            &["broker.toml:4", "not a path"],
        );
    }
    check(&of("amqp"), &["`amqp` is not", "\"mqtt\""]);
}

#[test]
fn a_listener_with_tls_needs_certificates_and_their_keys() {
    let tls = "[[listeners]]\nprotocol = \"mqtts\"\n";
    check(
        tls,
        &["broker.toml:2", "0 certificates and 0 keys", "`key_file ="],
    );
    let files = "certificate_file = [\"a.pem\", \"b.pem\"]\nkey_file = \"a.key\"\n";
    check(
        &format!("{tls}{files}"),
        &["broker.toml:3", "2 certificates and 1 keys"],
    );
    let files = files.replace("\"a.key\"", "[\"a.key\", \"b,c.key\"]");
    let config = load(&format!("{tls}{files}"), &[]).unwrap().config;
    let listener = &config.listeners[0];
    assert_eq!(listener.port, 8883);
    let secured_pages = format!("[[listeners]]\nprotocol = \"wss\"\n{files}");
    assert_eq!(
        load(&secured_pages, &[]).unwrap().config.listeners[0].port,
        8084
    );
    assert_eq!(
        listener.tls.certificate_files,
        [PathBuf::from("a.pem"), "b.pem".into()]
    );
    assert_eq!(
        listener.tls.key_files,
        [PathBuf::from("a.key"), "b,c.key".into()]
    );
    check(
        "[[listeners]]\nkey_file = \"a\"\n",
        &["broker.toml:2", "needs TLS"],
    );
    let lists = format!("{tls}{files}crl_file = \"c\"\n");
    check(&lists, &["broker.toml:5", "needs a `client_ca_file`"]);
    check(
        "[broker]\nshards = [\"a\", \"b\"]\n",
        &["`[…]` is not a whole number"],
    );
    let variables = [
        (
            "UNBROKEN__LISTENERS__0__CERTIFICATE_FILE",
            "[\"a.pem\", \"b.pem\"]",
        ),
        ("UNBROKEN__LISTENERS__0__KEY_FILE", "[\"a.key\", \"b.key\"]"),
    ];
    let config = load(tls, &variables).unwrap().config;
    assert_eq!(
        config.listeners[0].tls.key_files,
        [PathBuf::from("a.key"), "b.key".into()]
    );
}

#[test]
fn a_certificate_of_a_client_is_enough_to_say_which_clients_may_connect() {
    let tls = "[[listeners]]\nprotocol = \"mqtts\"\nbind = \"0.0.0.0\"\n\
               certificate_file = \"a\"\nkey_file = \"b\"\n";
    check(tls, &["does not specify"]);
    for (keys, admits) in [
        ("", "client certificate"),
        (
            "certificate_user = \"off\"\n",
            "client certificate, anonymous allowed",
        ),
        ("require_client_certificate = false\n", "client certificate"),
        (
            "require_client_certificate = false\npassword_file = \"p\"\n",
            "client certificate, or user name and password",
        ),
    ] {
        let text = format!("{tls}client_ca_file = \"c\"\n{keys}");
        let config = load(&text, &[]).unwrap().config;
        assert_eq!(config.listeners[0].admits(), admits, "{keys}");
    }
}

#[test]
fn a_unix_socket_has_no_port_and_takes_anonymous_clients_of_this_machine() {
    let text = "[[listeners]]\nsocket = \"run/mqtt.sock\"\nsocket_mode = \"600\"\n";
    let config = load(text, &[]).unwrap().config;
    let listener = &config.listeners[0];
    assert_eq!(listener.address().to_string(), "unix:run/mqtt.sock");
    assert_eq!(listener.socket_mode.to_string(), "0600");
    assert!(listener.allow_anonymous);
    check(
        &format!("{text}port = 1\n"),
        &["broker.toml:4", "`listeners.0.port` has no effect"],
    );
    check(
        "[[listeners]]\nsocket_mode = \"0600\"\n",
        &["broker.toml:2", "needs a `socket`"],
    );
    for mode in ["\"0888\"", "\"66\"", "\"1777\"", "\"rw\"", "660"] {
        let text = format!("[[listeners]]\nsocket = \"a\"\nsocket_mode = {mode}\n");
        check(&text, &["broker.toml:3", "octal"]);
    }
    let twice = "[[listeners]]\nsocket = \"a\"\n".repeat(2);
    check(&twice, &["both on unix:a"]);
}

#[test]
fn a_listener_behind_a_proxy_is_not_only_of_this_machine() {
    let text = "[[listeners]]\ntrusted_proxies = [\"127.0.0.1\"]\n";
    check(text, &["does not specify which clients may connect"]);
    let named = format!("{text}proxy_common_name = true\n");
    let config = load(&named, &[]).unwrap().config;
    assert!(
        !config.listeners[0].allow_anonymous,
        "its certificates name users"
    );
}

#[test]
fn a_role_with_an_empty_list_is_no_clients() {
    for (text, is_for_none) in [
        ("users = []", true),
        ("users = []\nanonymous = true", false),
        ("clients = []", true),
        ("addresses = []", true),
        ("listeners = []", true),
        ("users = [\"a\"]", false),
        ("allow = []", false),
    ] {
        let config = load(&format!("[[roles]]\n{text}\n"), &[]).unwrap().config;
        assert_eq!(config.roles[0].is_for_none, is_for_none, "{text}");
        let members = config.roles[0].compile(&config.listeners).unwrap().members;
        assert_eq!(members.is_empty(), is_for_none, "{text}");
    }
}
