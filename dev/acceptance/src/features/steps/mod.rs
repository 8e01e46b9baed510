//! The steps. Each one only translates; what it does is done by the room and its clients.

mod brokers;
mod clients;
mod commands;
mod many_clients;
mod messages;
mod recordings;
mod restarts;
