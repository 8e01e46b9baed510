//! The keys of tables of which there can be many: `[[listeners]]`, `[[roles]]`, `[[audit.rule]]`.

use unbroken_broker_core::AuditRule;

use super::changes::Applies;
use super::setting::Setting;
use super::table::{Key, key};
use super::value::Kind;
use super::{Listener, Role};

/// The name of the array of tables whose keys are [`LISTENER_KEYS`].
pub(super) const LISTENERS: &str = "listeners";
/// What [`LISTENERS`] is about.
pub(super) const LISTENERS_DOC: &str =
    "Where clients connect, and which clients may. One table for each address.";
/// The name of the array of tables whose keys are [`RULE_KEYS`].
pub(super) const RULES: &str = "audit.rule";
/// What [`RULES`] is about.
pub(super) const RULES_DOC: &str = "Treatment of messages by client and topic. The first matching rule applies; other messages\n\
     # are stamped, and verified if their publisher stamps them. As many tables as needed.";
/// The name of the array of tables whose keys are [`ROLE_KEYS`].
pub(super) const ROLES: &str = "roles";
/// What [`ROLES`] is about.
pub(super) const ROLES_DOC: &str = "What clients may do. With roles, what none of them allows is denied, and a denial beats any\n\
     # permission. A client has each role whose keys fit it; without keys a role is all clients', and\n\
     # with an empty list it is no client's.\n\
     # As many tables as needed. Read again on SIGHUP.";
/// Stands for `bind` and `port` together.
pub(super) const ADDRESS: &str = "address";

/// The keys of one `[[audit.rule]]` table.
pub(super) const RULE_KEYS: &[Key<AuditRule>] = &[
    key!(
        "client",
        Kind::Text,
        Restart,
        ["Client ids; * matches any characters."],
        client
    ),
    key!("topic", Kind::Text, Restart, ["A topic filter."], topic),
    key!(
        "action",
        Kind::Choice(&["verify", "stamp", "off"]),
        Restart,
        [
            "stamp: messages are numbered and hashed. verify: the same, and the publisher's stamp in",
            "the user property `audit` is verified. off: neither."
        ],
        action
    ),
    key!(
        "forward_stamp",
        Kind::Flag,
        Restart,
        ["Whether 5.0 receivers get number and hash, in the user property `audit`."],
        forward_stamp
    ),
];

/// The keys of one `[[roles]]` table.
pub(super) const ROLE_KEYS: &[Key<Role>] = &[
    key!(
        "name",
        Kind::Text,
        Live,
        ["A name, for logs and `unbroken access explain`."],
        name
    ),
    key!(
        "users",
        Kind::List,
        Live,
        ["Names of users that have it."],
        users
    ),
    key!(
        "anonymous",
        Kind::Flag,
        Live,
        ["Whether clients without a user name have it."],
        anonymous
    ),
    key!(
        "clients",
        Kind::List,
        Live,
        ["Client ids that have it; * matches any characters."],
        clients
    ),
    key!(
        "listeners",
        Kind::List,
        Live,
        ["Names of listeners whose clients have it."],
        listeners
    ),
    key!(
        "addresses",
        Kind::Networks,
        Live,
        ["Addresses and networks whose clients have it, such as \"10.0.0.0/8\"."],
        addresses
    ),
    key!(
        "granted",
        Kind::List,
        Live,
        ["Roles in a client's token, or in the answer of a service, with which it has this one."],
        granted
    ),
    key!(
        "connect",
        Kind::Choice(&["allow", "deny"]),
        Live,
        ["Whether its clients may connect."],
        connect
    ),
    key!(
        "client_id",
        Kind::Text,
        Live,
        [
            "What the ids of its clients must be like, as listeners.client_id, which must hold too:",
            "others are refused with 0x85 (before 5.0: 2). `clients` says which clients have the role."
        ],
        client_id
    ),
    key!(
        "max_qos",
        Kind::Count {
            min: 0,
            max: 2,
            absent: None
        },
        Live,
        [
            "The highest QoS at which its clients may publish and are granted subscriptions,",
            "whatever other roles allow. Clients of 5.0 are told it when they connect."
        ],
        max_qos
    ),
    key!(
        "retain",
        Kind::Flag,
        Live,
        ["Whether its clients may publish retained messages, whatever other roles allow."],
        retain
    ),
    key!(
        "allow",
        Kind::List,
        Live,
        [
            "Actions and topic filters, such as \"publish plant/{user}/#\" or",
            "\"subscribe,receive plant/#\". The actions are publish, subscribe, receive, and all;",
            "max_qos=N and retain=false among them limit what the line allows.",
            "{user} and {client} are the client's own names, {role} and {claim.NAME} what its token",
            "says; a brace is written {{."
        ],
        allow
    ),
    key!(
        "deny",
        Kind::List,
        Live,
        ["The same, whatever other roles allow."],
        deny
    ),
    key!(
        "mount_point",
        Kind::MountPoint,
        Live,
        [
            "As a listener's, and instead of it. One of a role with users counts before those of other",
            "roles; a client whose roles name different ones is refused."
        ],
        mount_point
    ),
];

/// The keys of one `[[listeners]]` table.
pub(super) const LISTENER_KEYS: &[Key<Listener>] = &[
    key!(
        "name",
        Kind::Text,
        Restart,
        ["A name, printed with the address when the broker starts."],
        name
    ),
    key!(
        "protocol",
        Kind::Choice(&["mqtt", "mqtts", "ws", "wss"]),
        Restart,
        [
            "What clients speak: mqtt; mqtts, which is MQTT over TLS; ws, over WebSocket; or wss, over",
            "both. It decides the default port: 1883, 8883, 8083 or 8084."
        ],
        protocol
    ),
    key!(
        "bind",
        Kind::Addresses,
        Restart,
        [
            "IP address to listen on, or several in an array. \"0.0.0.0\" is all of IPv4, \"::\" all of",
            "IPv6, \"*\" both. `address = \"127.0.0.1:1883\"` stands for bind and port together."
        ],
        bind
    ),
    key!(
        "port",
        Kind::Count {
            min: 0,
            max: u16::MAX as u64,
            absent: None
        },
        Restart,
        ["Port; 0 chooses a free one and prints it."],
        port
    ),
    key!(
        "socket",
        Kind::Path,
        Restart,
        [
            "A unix socket to listen on instead of bind and port. Its directory must exist. A file",
            "of that name is replaced if it is a socket on which no program answers."
        ],
        socket
    ),
    key!(
        "socket_mode",
        Kind::Mode,
        Restart,
        ["Permissions of the unix socket: the users who may write to it may connect."],
        socket_mode
    ),
    key!(
        "socket_owner",
        Kind::Text,
        Restart,
        [
            "Owner of the unix socket: \"user\", \"user:group\" or \":group\". Default: the broker's."
        ],
        socket_owner
    ),
    key!(
        "insecure",
        Kind::Flag,
        Live,
        [
            "Beyond loopback a listener without TLS needs `insecure = true`: passwords and messages",
            "cross the network in the clear."
        ],
        insecure
    ),
    key!(
        "allow_anonymous",
        Kind::Flag,
        Live,
        [
            "Whether clients without a user name may connect. Default: only on loopback, and only",
            "without password_file and stored_users."
        ],
        allow_anonymous
    ),
    key!(
        "password_file",
        Kind::Path,
        Live,
        [
            "Users and password hashes, in the format of mosquitto_passwd and `unbroken passwd`.",
            "Relative to the directory of this file. Read again on SIGHUP."
        ],
        password_file
    ),
    key!(
        "jwt",
        Kind::List,
        Live,
        [
            "Names of `[[jwt]]` tables: its clients may show a token of theirs as the password, and",
            "any or no user name."
        ],
        jwt
    ),
    key!(
        "http_auth",
        Kind::List,
        Live,
        [
            "Names of `[[http_auth]]` tables: their services are asked about its clients, in this order."
        ],
        http_auth
    ),
    key!(
        "stored_users",
        Kind::Flag,
        Live,
        [
            "Whether users of the store may connect: those that `unbroken user add` has added. If the",
            "password_file has a user too, the file decides."
        ],
        stored_users
    ),
    key!(
        "client_id_from",
        Kind::Choice(&["connect", "user"]),
        Live,
        [
            "user: a client's id is the name of its user, of whichever source, whatever it says; a",
            "client without a user is refused with 0x85 (before 5.0: 2). connect: what it says."
        ],
        client_id_from
    ),
    key!(
        "client_id",
        Kind::Text,
        Live,
        [
            "What client ids are like: * matches any characters, {user} is the client's user name, as",
            "in \"{user}-*\". Clients with other ids are refused with 0x85 (before 5.0: 2)."
        ],
        client_id
    ),
    key!(
        "takeover",
        Kind::Choice(&["same_user", "anyone"]),
        Live,
        [
            "same_user: a session that a user has begun is that user's; another user with its client",
            "id is refused with 0x87 (before 5.0: 5). anyone: who connects with the id takes it over."
        ],
        takeover
    ),
    key!(
        "acl_file",
        Kind::Path,
        Live,
        [
            "What its clients may publish and receive, in the format of Mosquitto's acl_file, where",
            "`subscribe` is an access of its own. Relative to the directory of this file. Read again",
            "on SIGHUP."
        ],
        acl_file
    ),
    key!(
        "mount_point",
        Kind::MountPoint,
        Live,
        [
            "The part of the topic tree in which its clients live without knowing it, such as",
            "\"plant-a/{user}/\": it is put in front of their topics and filters, and taken off what they",
            "get. {user}, {client}, {role} and {claim.NAME} as in rules; it ends with /. Access rules are",
            "about whole topics. Clients whose mount point changes are disconnected."
        ],
        mount_point
    ),
    key!(
        "max_connections",
        Kind::Count {
            min: 1,
            max: u32::MAX as u64,
            absent: Some("unlimited")
        },
        Live,
        [
            "Open connections of this listener, within limits.connections_max. A client beyond",
            "either limit is refused with 0x97 (before 5.0: 3), unless it replaces a connection of",
            "its own."
        ],
        max_connections
    ),
    key!(
        "trusted_proxies",
        Kind::Networks,
        Live,
        [
            "Addresses and networks of proxies, in an array. Their connections must begin with a",
            "PROXY header (version 1 or 2), and it says for which client; others have none."
        ],
        trusted_proxies
    ),
    key!(
        "forwarded_header",
        Kind::Choice(&["x-forwarded-for", "forwarded", "off"]),
        Live,
        [
            "forwarded, x-forwarded-for: trusted proxies send no PROXY header. They are proxies for HTTP,",
            "and this field of their WebSocket requests says for which client. Name the one that they",
            "set or append to: the other is what a client writes, and does not count."
        ],
        forwarded_header
    ),
    key!(
        "proxy_common_name",
        Kind::Flag,
        Live,
        [
            "Whether the common name of a client's certificate that a trusted proxy has verified",
            "names the client's user."
        ],
        proxy_common_name
    ),
    key!(
        "websocket_path",
        Kind::Text,
        Live,
        ["The path that WebSocket clients must ask for, without a query."],
        websocket_path
    ),
    key!(
        "allowed_origins",
        Kind::List,
        Live,
        [
            "Origins whose pages may connect over WebSocket, such as \"https://example.org\", beside",
            "pages of the same host; \"*\": all. A client that names no origin is no page."
        ],
        allowed_origins
    ),
    key!(
        "certificate_file",
        Kind::Paths,
        Live,
        [
            "The certificate of a listener with TLS and its chain, in PEM. Of several, in an array,",
            "the one is used that has the host name a client asks for, otherwise the first. The files",
            "of a listener are read again on SIGHUP; connected clients stay."
        ],
        tls.certificate_files
    ),
    key!(
        "key_file",
        Kind::Paths,
        Live,
        ["The private key of the certificate, in PEM; of several in the same order."],
        tls.key_files
    ),
    key!(
        "client_ca_file",
        Kind::Path,
        Live,
        [
            "Authorities that issue clients' certificates, in PEM. With it a client must present a",
            "certificate of one of them."
        ],
        tls.client_ca_file
    ),
    key!(
        "require_client_certificate",
        Kind::Flag,
        Live,
        ["false: a client may also connect without a certificate, if it may otherwise."],
        tls.require_client_certificate
    ),
    key!(
        "certificate_user",
        Kind::Choice(&["common_name", "dns", "email", "uri", "off"]),
        Live,
        [
            "The part of a client's certificate that names its user; a certificate without it is",
            "refused. No password is asked for then, and the name in CONNECT does not count, unless",
            "the password_file has it. off: certificates name no users."
        ],
        tls.certificate_user
    ),
    key!(
        "crl_file",
        Kind::Path,
        Live,
        [
            "Lists of revoked certificates, in PEM: one for each authority of a client's chain. A",
            "certificate whose authority has no list here is refused."
        ],
        tls.crl_file
    ),
    key!(
        "enforce_crl_expiry",
        Kind::Flag,
        Live,
        [
            "true: when a revocation list has expired, no certificate of its authority is accepted.",
            "false: the list is used all the same, and the log has an error."
        ],
        tls.enforce_crl_expiry
    ),
    key!(
        "min_tls_version",
        Kind::Choice(&["1.2", "1.3"]),
        Live,
        ["The oldest version of TLS that clients may use."],
        tls.min_version
    ),
    key!(
        "max_handshakes",
        Kind::Count {
            min: 1,
            max: 1_000_000,
            absent: None
        },
        Live,
        [
            "Unfinished TLS handshakes of this listener; each takes up to 40 KiB. Further clients",
            "wait in the system's queue. A handshake may take limits.connect_timeout."
        ],
        tls.max_handshakes
    ),
];
