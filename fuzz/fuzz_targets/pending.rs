//! See `model`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| model::run("pending", bytes));
