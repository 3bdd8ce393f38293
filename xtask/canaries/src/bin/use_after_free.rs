//! Reads a freed allocation. A tool that claims to find this must do so before we believe anything
//! else of it.

fn main() {
    let boxed = Box::new(std::env::args().count());
    let pointer: *const usize = &*boxed;
    drop(boxed);
    // SAFETY: there is none; that is what it is for.
    println!("{}", unsafe { pointer.read_volatile() });
}
