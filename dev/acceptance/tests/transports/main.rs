//! What listeners speak besides MQTT over TCP, with programs of others as clients.

mod behind_proxies;
mod certificates;
mod clients;
mod expiry;
mod expose;
mod handshake_limits;
mod hostile;
mod listener_rates;
mod load;
mod misplaced;
mod mounted;
mod own_authority;
mod own_clients;
mod own_trust;
mod pages;
mod programs;
mod proxy;
mod records;
mod reloading;
mod renewal;
mod secured;
mod tls;
mod unix;
mod websocket;
