//! Reads a freed allocation. Every tool that claims to find this must, before it is believed anything else.

fn main() {
    let boxed = Box::new(std::env::args().count());
    let pointer: *const usize = &*boxed;
    drop(boxed);
    // SAFETY: there is none; that is what it is for.
    println!("{}", unsafe { pointer.read_volatile() });
}
