//! Figures as they are printed: with their load, their spread, and whether they reach the target.

use serde_json::{json, Value};

#[derive(Debug, Clone, Copy)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    pub fn of(rounds: impl IntoIterator<Item = f64>) -> Self {
        let mut rounds: Vec<f64> = rounds.into_iter().collect();
        rounds.sort_by(f64::total_cmp);
        let half = rounds.len() / 2;
        let median = f64::midpoint(rounds[(rounds.len() - 1) / 2], rounds[half]);
        Spread { median, min: rounds[0], max: rounds[rounds.len() - 1] }
    }

    pub fn ratio(over: &[f64], under: &[f64]) -> Self {
        Spread::of(over.iter().zip(under).map(|(over, under)| over / under))
    }

    /// What `f` makes of it, a monotonic function.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Self {
        let (a, b) = (f(self.min), f(self.max));
        Spread { median: f(self.median), min: a.min(b), max: a.max(b) }
    }
}

#[derive(Debug, Clone, Copy)]
pub enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    fn reached(self, figure: f64) -> bool {
        match self {
            Target::AtLeast(limit) => figure >= limit,
            Target::AtMost(limit) => figure <= limit,
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::AtLeast(limit) => write!(f, ">= {limit:.2}"),
            Target::AtMost(limit) => write!(f, "<= {limit:.2}"),
        }
    }
}

#[derive(Default)]
pub struct Report {
    /// Figures with a target: name, median, unit, target.
    checks: Vec<(String, f64, String, Target)>,
}

/// One column of a [row](Table::row): nanoseconds of processor time, and for each store of ours the
/// ratio of its time to this one's.
pub type Column = (Spread, Vec<Spread>);

pub struct Table<'a> {
    report: &'a mut Report,
    title: String,
    /// The title, and that of the section.
    name: String,
}

fn say(text: &str) {
    println!("{}", text.trim_end_matches(' '));
}

impl Report {
    pub fn table(&mut self, title: String, load: &str) -> Table<'_> {
        say(&format!("\n## {title}\n   {load}"));
        Table { report: self, name: title.clone(), title }
    }

    /// Ends the report: prints the table of targets.
    pub fn finish(self, seconds: f64) {
        let met = |(_, figure, _, target): &&(_, f64, _, Target)| target.reached(*figure);
        let (met, all) = (self.checks.iter().filter(met).count(), self.checks.len());
        println!("\n## Targets: {met} of {all} are met ({seconds:.0} s)");
        for (name, figure, unit, target) in &self.checks {
            let verdict = if target.reached(*figure) { "met" } else { "SHORT" };
            println!("   {verdict:<5} {figure:>9.2} {unit:<8} {target:<9}  {name}");
        }
    }
}

impl Table<'_> {
    pub fn note(&self, text: &str) {
        say(&format!("   {text}"));
    }

    pub fn part(&mut self, name: &str) {
        self.name = format!("{}: {name}", self.title);
        self.note(name);
    }

    /// Begins a part of the table, of rows with these columns.
    pub fn columns(&mut self, name: &str, columns: &[&str]) {
        self.name = format!("{}: {name}", self.title);
        let columns: String = columns.iter().map(|name| format!("{name:<46}")).collect();
        self.note(&format!("{name:<36} {columns}"));
    }

    /// A figure of several columns, some of which may be missing.
    pub fn row(&self, name: &str, columns: &[Option<Column>]) {
        let mut text = String::new();
        for column in columns {
            let mut cell = String::new();
            if let Some((Spread { median, min, max }, times)) = column {
                cell = format!("{median:.1} [{min:.1} .. {max:.1}]");
                for times in times {
                    cell += &format!(" x {:.2}", times.median);
                }
            }
            text += &format!("{cell:<46}");
        }
        self.note(&format!("  {name:<34} {text}"));
    }

    fn line(&self, mark: char, name: &str, unit: &str, figure: Spread, more: &str) {
        let Spread { median, min, max } = figure;
        let figure = format!("{median:>11.2} {unit:<12} [{min:.2} .. {max:.2}]");
        say(&format!(" {mark} {name:<44} {figure}  {more}"));
    }

    /// A figure without a target.
    pub fn figure(&self, name: &str, unit: &str, figure: Spread) {
        self.loaded(name, unit, figure, &json!({}));
    }

    /// A figure without a target, and what else there is to say of it.
    pub fn loaded(&self, name: &str, unit: &str, figure: Spread, load: &Value) {
        let load = load.as_object().into_iter().flatten();
        let load: Vec<_> = load.map(|(key, value)| format!("{key} {value}")).collect();
        self.line(' ', name, unit, figure, &load.join(", "));
    }

    /// A figure with a target.
    pub fn check(&mut self, name: &str, unit: &str, figure: Spread, target: Target) {
        let pass = target.reached(figure.median);
        let check = (format!("{}: {name}", self.name), figure.median, unit.to_string(), target);
        self.report.checks.push(check);
        let verdict = if pass { "pass" } else { "SHORT" };
        self.line('>', name, unit, figure, &format!("{target}  {verdict}"));
    }

    /// A figure that may have a target.
    pub fn judge(&mut self, name: &str, unit: &str, figure: Spread, target: Option<Target>) {
        match target {
            Some(target) => self.check(name, unit, figure, target),
            None => self.figure(name, unit, figure),
        }
    }
}
