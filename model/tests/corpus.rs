//! What the fuzzer has kept, and what it has found, once more: each file of `fuzz/corpus/TARGET`.

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
