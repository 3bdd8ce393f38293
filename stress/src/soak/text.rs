//! Text for the word count, made up: the same for the same seed.

use crate::error::Error;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::PathBuf;

/// Files of text in a folder of their own, which goes when this does.
#[derive(Debug)]
pub struct Text(pub PathBuf);

impl Text {
    /// About so many kilobytes of it.
    pub fn write(seed: u64, kilobytes: usize) -> Result<Self, Error> {
        let name = format!("stress-soak-{}-{seed}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let unwritable = Error::unwritable(&folder);
        let text = Text(folder.clone());
        std::fs::create_dir_all(&folder).map_err(&unwritable)?;
        let mut rng = SmallRng::seed_from_u64(seed);
        for file in 0..8 {
            let mut lines = String::new();
            while lines.len() < kilobytes * 1024 / 8 {
                for _ in 0..rng.random_range(1..16) {
                    // Few words often, many seldom.
                    let words: u32 = 1 << rng.random_range(4..16);
                    let word = rng.random_range(0..words);
                    lines.push_str(&format!("word{word:x} "));
                }
                lines.push('\n');
            }
            std::fs::write(folder.join(format!("{file}.txt")), lines).map_err(&unwritable)?;
        }
        Ok(text)
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        // Left behind it is harmless.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
