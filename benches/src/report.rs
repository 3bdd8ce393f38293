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
        Spread {
            median,
            min: rounds[0],
            max: rounds[rounds.len() - 1],
        }
    }

    /// What `f` makes of it, a monotonic function.
    #[must_use]
    pub fn map(self, f: impl Fn(f64) -> f64) -> Self {
        let (a, b) = (f(self.min), f(self.max));
        Spread {
            median: f(self.median),
            min: a.min(b),
            max: a.max(b),
        }
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
    checks: Vec<(String, bool)>,
}

impl Report {
    /// A report that prints text as it goes, or one object at the end.
    #[must_use]
    pub fn new(json: bool) -> Self {
        Report {
            json,
            figures: Vec::new(),
            checks: Vec::new(),
        }
    }

    /// Opens a table.
    pub fn head(&self, title: &str, load: &str) {
        if !self.json {
            println!("\n## {title}\n   {load}");
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
        self.checks.push((format!("{table}: {name}"), pass));
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

    /// Ends the report: how many figures reach what was asked, or the object. True if all do.
    pub fn finish(self, seconds: f64) -> bool {
        let short = self.checks.iter().filter(|(_, pass)| !pass).count();
        if self.json {
            let checks: Map<String, Value> = self
                .checks
                .iter()
                .map(|(name, pass)| (name.clone(), json!(pass)))
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
                "\n{} of {} figures reach what was asked ({seconds:.0} s)",
                self.checks.len() - short,
                self.checks.len()
            );
            for (name, _) in self.checks.iter().filter(|(_, pass)| !pass) {
                println!("  short: {name}");
            }
        }
        short == 0
    }
}
