//! What listeners speak besides MQTT over TCP, with programs of others as clients.

mod certificates;
mod clients;
mod load;
mod own_authority;
mod own_clients;
mod programs;
mod proxy;
mod reloading;
mod tls;
mod unix;
mod websocket;
