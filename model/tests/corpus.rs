//! What the fuzzer has kept, and what it has found, once more: each file of `fuzz/corpus/TARGET`.
//! And random bytes, for the targets that no test of `tests/it/oracle.rs` runs.

use std::path::Path;

#[test]
fn the_corpus_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    for (name, run) in model::TARGETS {
        let files = std::fs::read_dir(corpus.join(name)).expect("there is one for each target");
        let mut ran = 0;
        for file in files {
            let path = file.expect("it can be listed").path();
            let bytes = std::fs::read(&path).expect("it can be read");
            // Which one it was, if it panics.
            println!("{}", path.display());
            run(&bytes);
            ran += 1;
        }
        assert!(ran > 0, "the corpus of {name} is empty");
    }
}

/// Runs the target on so many histories of random bytes, the same ones each time.
fn random_bytes(target: &str, cases: usize) {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut bytes = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    });
    for _ in 0..cases {
        model::run(target, &bytes.by_ref().take(4000).collect::<Vec<u8>>());
    }
}

#[cfg(feature = "async")]
#[test]
fn histories_of_timeouts_match_the_model() {
    random_bytes("timeouts", 3000);
}

#[test]
fn histories_of_time_caches_match_the_model() {
    random_bytes("time_cache", 1000);
}
