//! What listeners speak besides MQTT over TCP: unix sockets, with programs of others as clients.

mod programs;
mod unix;
