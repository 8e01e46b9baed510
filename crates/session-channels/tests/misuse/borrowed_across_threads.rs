//! A message that borrows does not go to a thread that may outlive what it borrows.
session_channels::proto! {
    pub feed<T: Send> { open: send(4) { Item(T) -> open, End -> ! } }
}

fn main() {
    let words = String::from("short");
    let (client, server) = feed::init();
    std::thread::spawn(move || drop(server));
    let _ = client.try_item(words.as_str());
}
