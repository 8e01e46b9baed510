//! A listener with a mount point, beside one without, before and after a reload.

use std::net::{Ipv4Addr, SocketAddr};

use unbroken_acceptance::raw::{Connect, Publish};
use unbroken_acceptance::{Client, Launch};

use crate::programs::port_named;

const CONFIG: &str = "\
[[listeners]]
name = \"plain\"
port = 0

[[listeners]]
name = \"tenants\"
port = 0
mount_point = \"PLACE/{client}/\"
";

/// The mount point has changed.
const ADMINISTRATIVE_ACTION: u8 = 0x98;

#[test]
fn clients_of_a_listener_live_behind_its_mount_point() {
    for shards in [1, 3] {
        let config = |place: &str| CONFIG.replace("PLACE", place);
        let broker = Launch::listeners(&config("m")).shards(shards).start();
        let port = port_named(&broker, "tenants");
        let tenants = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut service = broker.connect("service");
        service.subscribe_to("#", 0);
        let mut tenant = Client::connect(tenants, &Connect::v5("x"));
        tenant.subscribe_to("t", 0);
        tenant.publish(Publish::new("u", "out").qos(1));
        service.expect_message("m/x/u", "out");
        service.publish(Publish::new("m/x/t", "in").qos(1));
        tenant.expect_message("t", "in");
        service.expect_message("m/x/t", "in");

        broker.rewrite_config(&config("n"));
        broker.reload();
        tenant.expect_disconnect(ADMINISTRATIVE_ACTION);
        let mut tenant = Client::connect(tenants, &Connect::v5("x"));
        tenant.publish(Publish::new("u", "elsewhere").qos(1));
        service.expect_message("n/x/u", "elsewhere");
    }
}
