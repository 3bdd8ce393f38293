//! What random histories and the fuzzer found, kept as it was found.

/// The clock was moved by nearly half the circle with no work done. Then something was scheduled
/// for the very end of the other half: the cursor took its digits for the recent past.
#[test]
fn a_deadline_almost_all_of_the_circle_ahead_of_the_cursor() {
    super::drive::run(&[
        0, 0, 0, 3, 7, 128, 103, 215, 196, 91, 165, 20, 60, 68, 30, 248, 23, 235, 6, 90, 84, 198,
        143, 204, 217, 106, 120, 54, 34, 108, 98, 186, 99, 203, 240, 15, 127, 81, 91, 71, 175, 178,
        233, 144, 231, 112, 58, 34, 154, 189, 218, 139, 160, 9, 189, 60, 128, 97, 227, 184, 251,
        60, 14, 26, 134, 161, 56, 48, 178, 85, 129, 20, 24, 238, 129, 98, 124, 252, 105, 21, 109,
        223, 60, 90, 8, 188, 251, 26, 248,
    ]);
}

/// What the fuzzer has kept, once more: each file of `fuzz/corpus/wheel`, which is not in the
/// package.
#[test]
fn the_corpus_holds() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/wheel");
    let Ok(files) = std::fs::read_dir(corpus) else {
        return;
    };
    let mut ran = 0;
    for file in files {
        let path = file.expect("it can be listed").path();
        // Which one it was, if it panics.
        println!("{}", path.display());
        super::drive::run(&std::fs::read(&path).expect("it can be read"));
        ran += 1;
    }
    assert!(ran > 0, "it is empty");
}
