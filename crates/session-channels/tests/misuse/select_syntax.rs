//! What cannot be read in a `select!`, each with what was expected.
use session_channels::{select_blocking, stream};

fn main() {
    let (_sender, mut numbers) = stream::<u8>(1);
    select_blocking! { numbers { n => drop(n) } }
    select_blocking! { numbers => { n => drop(n), closed => {} } }
    select_blocking! { numbers => { n => drop(n), closed(_) => {}, closed(_) => {} } }
    select_blocking! { numbers => { n => drop(n) } else => {} else => {} }
    select_blocking! {
        numbers => { n => drop(n), closed(_) => {} }
        after(std::time::Duration::ZERO) => {}
        after(std::time::Duration::ZERO) => {}
    }
}
