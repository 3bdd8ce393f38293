//! See `fuzz-tests`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    fuzz_tests::timeouts(bytes);
});
