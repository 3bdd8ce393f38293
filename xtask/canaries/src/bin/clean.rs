//! A correct program, with the locks and channels of the real tests. A tool that reports this one
//! cannot be trusted when it reports a bug.

use std::sync::{mpsc, Arc, Mutex};
use std::thread;

fn a_lock_that_is_fought_for() -> u64 {
    let sum = Arc::new(Mutex::new(vec![0; 10]));
    let add = |sum: Arc<Mutex<Vec<u64>>>| {
        move || (0..20_000).for_each(|n| sum.lock().unwrap()[n % 10] += 1)
    };
    let threads: Vec<_> = (0..4).map(|_| thread::spawn(add(sum.clone()))).collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    let sum = sum.lock().unwrap().iter().sum();
    sum
}

fn a_channel() -> u64 {
    let (send, receive) = mpsc::channel();
    let thread = thread::spawn(move || (0..10_000).for_each(|n| send.send(Box::new(n)).unwrap()));
    let sum = receive.iter().map(|n| *n).sum();
    thread.join().unwrap();
    sum
}

fn main() {
    assert_eq!(
        [a_lock_that_is_fought_for(), a_channel()],
        [80_000, 49_995_000]
    );
}
