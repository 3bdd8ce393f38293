//! Loses an allocation.

#[inline(never)]
fn lose(n: usize) {
    std::mem::forget(std::hint::black_box(vec![n; 1000]));
}

fn main() {
    for n in 0..10 {
        lose(n);
    }
    // Writes over what is left of the pointer on the stack.
    println!("{:?}", std::hint::black_box([0_u8; 4096]).len());
}
