//! Figures as they are printed: with their load, their spread, and whether they reach what was asked.

use serde_json::{json, Map, Value};

/// Median, least and greatest of several rounds.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Of at least one number.
    ///
    /// # Panics
    ///
    /// Without any.
    #[must_use]
    pub fn of(rounds: impl IntoIterator<Item = f64>) -> Self {
        let mut rounds: Vec<f64> = rounds.into_iter().collect();
        rounds.sort_by(f64::total_cmp);
        let half = rounds.len() / 2;
        let median = if rounds.len() % 2 == 1 {
            rounds[half]
        } else {
            f64::midpoint(rounds[half - 1], rounds[half])
        };
        Spread { median, min: rounds[0], max: rounds[rounds.len() - 1] }
    }

    /// What `f` makes of it, a monotonic function.
    #[must_use]
    pub fn map(self, f: impl Fn(f64) -> f64) -> Self {
        let (a, b) = (f(self.min), f(self.max));
        Spread { median: f(self.median), min: a.min(b), max: a.max(b) }
    }

    /// As an object.
    #[must_use]
    pub fn json(self) -> Value {
        json!({ "median": self.median, "min": self.min, "max": self.max })
    }
}

/// What is asked of a figure's median.
#[derive(Debug, Clone, Copy)]
pub enum Target {
    /// At least this.
    AtLeast(f64),
    /// At most this.
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

/// Collects figures and prints them as they come.
pub struct Report {
    json: bool,
    figures: Vec<Value>,
    checks: Vec<Check>,
}

/// A figure that something is asked of.
struct Check {
    name: String,
    figure: f64,
    unit: String,
    target: Target,
}

/// One column of a [row](Report::row): its name, the nanoseconds of processor time, the median of
/// wall time, and for each store of ours the ratio of its time to this one's.
pub type Column<'a> = (&'a str, Spread, f64, Vec<(String, Spread)>);

impl Report {
    /// A report that prints text as it goes, or one object at the end.
    #[must_use]
    pub fn new(json: bool) -> Self {
        Report { json, figures: Vec::new(), checks: Vec::new() }
    }

    /// Opens a table.
    pub fn head(&self, title: &str, load: &str) {
        if !self.json {
            println!("\n## {title}\n   {load}");
        }
    }

    /// A line of text under the title of a table.
    pub fn note(&self, text: &str) {
        if !self.json {
            println!("   {text}");
        }
    }

    /// Names the columns of the rows that follow.
    pub fn columns(&self, title: &str, names: &[&str]) {
        if !self.json {
            let names: String = names.iter().map(|name| format!("{name:<46}")).collect();
            println!("   {title:<36} {}", names.trim_end());
        }
    }

    /// A figure of several columns, some of which may be missing.
    pub fn row(&mut self, table: &str, name: &str, columns: &[Option<Column<'_>>]) {
        let mut text = String::new();
        for column in columns {
            let mut cell = String::new();
            if let Some((column, nanos, wall, times)) = column {
                let ratios: Map<String, Value> =
                    times.iter().map(|(ours, times)| (ours.clone(), times.json())).collect();
                self.figures.push(json!({
                    "table": table, "name": name, "column": column, "unit": "ns",
                    "figure": nanos.json(), "wall_ns": wall, "ours_over_this": ratios,
                }));
                let Spread { median, min, max } = nanos;
                cell = format!("{median:.1} [{min:.1} .. {max:.1}]");
                for (_, times) in times {
                    cell += &format!(" x {:.2}", times.median);
                }
            }
            text += &format!("{cell:<46}");
        }
        if !self.json {
            println!("     {name:<34} {}", text.trim_end());
        }
    }

    /// A figure that nothing is asked of.
    pub fn figure(&mut self, table: &str, name: &str, unit: &str, figure: Spread, load: &Value) {
        self.figures.push(json!({
            "table": table, "name": name, "unit": unit, "figure": figure.json(), "load": load,
        }));
        if !self.json {
            let Spread { median, min, max } = figure;
            let extra = match load {
                Value::Object(load) => load
                    .iter()
                    .map(|(key, value)| match value {
                        Value::String(text) => format!("{key} {text}"),
                        value => format!("{key} {value}"),
                    })
                    .collect::<Vec<_>>()
                    .join(", "),
                _ => String::new(),
            };
            println!("   {name:<44} {median:>11.2} {unit:<12} [{min:.2} .. {max:.2}]  {extra}");
        }
    }

    /// A figure that something is asked of.
    pub fn check(&mut self, table: &str, name: &str, unit: &str, figure: Spread, target: Target) {
        let pass = target.reached(figure.median);
        self.checks.push(Check {
            name: format!("{table}: {name}"),
            figure: figure.median,
            unit: unit.to_string(),
            target,
        });
        self.figures.push(json!({
            "table": table, "name": name, "unit": unit, "figure": figure.json(),
            "target": target.to_string(), "pass": pass,
        }));
        if !self.json {
            let Spread { median, min, max } = figure;
            let verdict = if pass { "pass" } else { "SHORT" };
            println!(
                " > {name:<44} {median:>11.2} {unit:<12} [{min:.2} .. {max:.2}]  {target}  {verdict}"
            );
        }
    }

    /// Ends the report: prints the table of targets, or the object. Returns whether all are met.
    pub fn finish(self, seconds: f64) -> bool {
        let is_met = |check: &Check| check.target.reached(check.figure);
        let short = self.checks.iter().filter(|check| !is_met(check)).count();
        if self.json {
            let checks: Map<String, Value> = self
                .checks
                .iter()
                .map(|check| (check.name.clone(), json!(is_met(check))))
                .collect();
            println!(
                "{}",
                json!({
                    "scenario": "figures",
                    "seconds": seconds,
                    "cores": std::thread::available_parallelism().map_or(0, usize::from),
                    "figures": self.figures,
                    "checks": checks,
                })
            );
        } else {
            println!(
                "\n## Targets: {} of {} are met ({seconds:.0} s)",
                self.checks.len() - short,
                self.checks.len()
            );
            for check in &self.checks {
                let verdict = if is_met(check) { "met" } else { "SHORT" };
                let Check { name, figure, unit, target } = check;
                println!("   {verdict:<5} {figure:>9.2} {unit:<8} {target:<9}  {name}");
            }
        }
        short == 0
    }
}
