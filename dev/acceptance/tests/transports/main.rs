//! What listeners speak besides MQTT over TCP, with programs of others as clients.

mod behind_proxies;
mod certificates;
mod clients;
mod expose;
mod hostile;
mod load;
mod own_authority;
mod own_clients;
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
