//! What was found, a line for each mutant.

use super::models::Settings;
use super::sites::Mutant;
use crate::tree::failed;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// What became of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Killed,
    Survived,
    /// Models come to its site, and in none does it make a difference.
    Idle,
    /// No model comes to its site.
    Unreached,
}

impl Verdict {
    const ALL: [Verdict; 4] = [
        Verdict::Killed,
        Verdict::Survived,
        Verdict::Idle,
        Verdict::Unreached,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Verdict::Killed => "killed",
            Verdict::Survived => "survived",
            Verdict::Idle => "idle",
            Verdict::Unreached => "unreached",
        }
    }
}

/// The same with what led to it.
#[derive(Debug)]
pub struct Found {
    pub verdict: Verdict,
    /// Which killed it.
    pub model: String,
    /// What that said.
    pub said: String,
    /// How many models it met.
    pub tried: usize,
    pub settings: Settings,
}

/// The report's file. Lines are appended as they come; in the end there is one for each mutant, in
/// the order of the sources.
#[derive(Debug)]
pub struct Report {
    path: PathBuf,
    /// The names of all mutants, in order.
    names: Vec<String>,
    rows: Mutex<HashMap<String, Row>>,
    file: Mutex<File>,
}

const HEAD: &str =
    "file\tfunction\tmutation\tplace\ttext\tverdict\tmodel\tsaid\tmodels\tseconds\tpreemptions";

/// A line of the file.
#[derive(Debug, Clone)]
struct Row([String; 11]);

impl Row {
    fn of(mutant: &Mutant, found: &Found) -> Self {
        Row([
            mutant.file.clone(),
            mutant.function.clone(),
            format!("{}#{}", mutant.kind.name(), mutant.nth),
            mutant.place(),
            mutant.text.clone(),
            found.verdict.name().into(),
            found.model.clone(),
            found.said.replace('\t', " "),
            found.tried.to_string(),
            found.settings.seconds.to_string(),
            found.settings.preemptions.to_string(),
        ])
    }

    fn read(line: &str) -> Option<Self> {
        let columns: Vec<String> = line.split('\t').map(String::from).collect();
        Some(Row(columns.try_into().ok()?))
    }

    /// All that a file has, but for its head.
    fn all(text: &str) -> impl Iterator<Item = Self> + '_ {
        text.lines().skip(1).filter_map(Self::read)
    }

    fn name(&self) -> String {
        self.0[..3].join(" ")
    }

    fn verdict(&self) -> Option<Verdict> {
        let is = |verdict: &Verdict| verdict.name() == self.0[5];
        Verdict::ALL.into_iter().find(is)
    }

    fn line(&self) -> String {
        self.0.join("\t") + "\n"
    }
}

impl Report {
    /// Reads what there is of these mutants, and goes on.
    pub fn open(path: &Path, mutants: &[(usize, Mutant)]) -> Result<Self, String> {
        let known: HashMap<String, &Mutant> = mutants
            .iter()
            .map(|(_, mutant)| (mutant.name(), mutant))
            .collect();
        let mut rows = HashMap::new();
        for mut row in Row::all(&fs::read_to_string(path).unwrap_or_default()) {
            let name = row.name();
            // Otherwise it was another one.
            if let Some(mutant) = known.get(&name).filter(|mutant| mutant.text == row.0[4]) {
                row.0[3] = mutant.place();
                rows.insert(name, row);
            }
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed(path))?;
        }
        let file = File::options()
            .append(true)
            .create(true)
            .open(path)
            .map_err(failed(path))?;
        let report = Report {
            path: path.into(),
            names: mutants.iter().map(|(_, mutant)| mutant.name()).collect(),
            rows: Mutex::new(rows),
            file: Mutex::new(file),
        };
        report.finish()?;
        Ok(report)
    }

    /// What is known of a mutant.
    pub fn verdict(&self, name: &str) -> Option<Verdict> {
        self.rows.lock().unwrap().get(name)?.verdict()
    }

    /// Notes what was found.
    pub fn add(&self, mutant: &Mutant, found: &Found) {
        let row = Row::of(mutant, found);
        let (name, verdict) = (mutant.name(), found.verdict.name());
        println!("{verdict} {name}: {} {}", found.model, found.said);
        let written = self.file.lock().unwrap().write_all(row.line().as_bytes());
        if let Err(error) = written {
            eprintln!("{}: {error}", self.path.display());
        }
        self.rows.lock().unwrap().insert(name, row);
    }

    /// Writes it in order, each mutant once. Returns it.
    pub fn finish(&self) -> Result<String, String> {
        let rows = self.rows.lock().unwrap();
        let mut text = format!("{HEAD}\n");
        for row in self.names.iter().filter_map(|name| rows.get(name)) {
            text += &row.line();
        }
        fs::write(&self.path, &text).map_err(failed(&self.path))?;
        Ok(text)
    }
}

/// How many of which kind ended how: a table, of what a report's file has.
pub fn summary(text: &str) -> String {
    let mut counts: BTreeMap<String, [usize; Verdict::ALL.len()]> = BTreeMap::new();
    for row in Row::all(text) {
        let kind = row.0[2].split('#').next().unwrap_or_default().to_owned();
        if let Some(verdict) = row.verdict() {
            counts.entry(kind).or_default()[verdict as usize] += 1;
        }
    }
    let mut table = "| |".to_owned();
    for verdict in Verdict::ALL {
        table += &format!(" {} |", verdict.name());
    }
    table += &format!("\n|---|{}\n", "---:|".repeat(Verdict::ALL.len()));
    for (kind, counts) in counts {
        let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
        table += &format!("| {kind} | {} |\n", counts.join(" | "));
    }
    table
}
