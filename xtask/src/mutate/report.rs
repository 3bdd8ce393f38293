//! What was found, a line for each mutant: its name, its text, the verdict, which model killed it
//! and what that said.

use super::models::Found;
use super::sites::Mutant;
use crate::tree::failed;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A model failed.
pub const KILLED: &str = "killed";
/// All models passed in which the mutant makes a difference.
const SURVIVED: &str = "survived";
/// The mutant makes a difference in no model.
const UNMET: &str = "unmet";

/// The report's file. Lines are appended as they come; in the end there is one for each mutant, in
/// the order of the sources.
#[derive(Debug)]
pub struct Report {
    path: PathBuf,
    /// Lines by the names of their mutants.
    lines: Mutex<HashMap<String, String>>,
}

impl Report {
    /// Reads the recorded results of these mutants.
    pub fn open(path: &Path, mutants: &[(usize, Mutant)]) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let texts: HashMap<String, &str> =
            mutants.iter().map(|(_, mutant)| (mutant.name(), mutant.text.as_str())).collect();
        let lines = text.lines().filter_map(|line| {
            let mut columns = line.split('\t');
            let (name, text) = (columns.next()?, columns.next()?);
            // Otherwise it was another one.
            let same = texts.get(name) == Some(&text);
            same.then(|| (name.to_owned(), line.to_owned()))
        });
        Report { path: path.into(), lines: Mutex::new(lines.collect()) }
    }

    /// What is known of a mutant.
    pub fn verdict(&self, name: &str) -> Option<String> {
        let lines = self.lines.lock().unwrap();
        lines.get(name)?.split('\t').nth(2).map(String::from)
    }

    /// Notes what was found.
    pub fn add(&self, mutant: &Mutant, found: &Found) {
        let (verdict, (model, said)) = match &found.killed {
            Some((model, said)) => (KILLED, (model.as_str(), said.replace('\t', " "))),
            None if found.tried == 0 => (UNMET, ("", String::new())),
            None => (SURVIVED, ("", format!("{} models", found.tried))),
        };
        let name = mutant.name();
        println!("{verdict} {name}: {model} {said}");
        let line = format!("{name}\t{}\t{verdict}\t{model}\t{said}", mutant.text);
        let file = File::options().append(true).create(true).open(&self.path);
        if let Err(error) = file.and_then(|mut file| writeln!(file, "{line}")) {
            eprintln!("{}", failed(&self.path)(error));
        }
        self.lines.lock().unwrap().insert(name, line);
    }

    /// Writes the file in order, each mutant once, and says how many of which kind ended how.
    pub fn finish(&self, mutants: &[(usize, Mutant)]) -> Result<(), String> {
        let lines = self.lines.lock().unwrap();
        let mut text = String::new();
        let mut counts: BTreeMap<(&str, String), u32> = BTreeMap::new();
        for (_, mutant) in mutants {
            if let Some(line) = lines.get(&mutant.name()) {
                text += &format!("{line}\n");
                let verdict = line.split('\t').nth(2).unwrap_or_default();
                *counts.entry((mutant.kind.name(), verdict.into())).or_default() += 1;
            }
        }
        for ((kind, verdict), count) in counts {
            println!("{count} {kind} {verdict}");
        }
        fs::write(&self.path, text).map_err(failed(&self.path))
    }
}
