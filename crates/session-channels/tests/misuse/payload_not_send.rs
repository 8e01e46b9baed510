//! A payload that must stay on its thread keeps the endpoints there, also when it comes later on.
session_channels::proto! {
    pub local {
        start: send { Start -> share }
        share: recv { Share(std::rc::Rc<u8>) -> ! }
    }
}

fn main() {
    let (client, _server) = local::init();
    std::thread::spawn(move || drop(client));
}
