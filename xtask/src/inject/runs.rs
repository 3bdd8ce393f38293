//! The runs of `stress`: their arguments, and which of their checks no seeded bug makes fail. They
//! stand in `xtask/bugs/runs`, and in the bugs' files.

use std::collections::{BTreeMap, BTreeSet};

/// A run that must find a bug.
#[derive(Debug)]
pub struct Run {
    /// The bug: `NAME/ONE_IN` strikes one time in so many.
    pub bug: String,
    /// The arguments of `stress`.
    pub args: String,
    /// The checks that must fail.
    pub found_by: Vec<String>,
}

/// What the file `runs` has.
#[derive(Debug, Default)]
pub struct Runs {
    /// Arguments, by the word in capitals that stands for them.
    commands: BTreeMap<String, String>,
    /// The forms of the scenarios: together they make every check that there is.
    pub forms: Vec<String>,
    /// The forms and the checks that no bug makes fail.
    pub excepted: BTreeSet<(String, String)>,
}

impl Runs {
    /// Reads the file.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut runs = Runs::default();
        let is_read = |line: &&str| !line.is_empty() && !line.starts_with('#');
        for line in text.lines().filter(is_read) {
            if let Some((command, args)) = line.split_once(" = ") {
                runs.commands.insert(command.into(), args.into());
            } else if let Some(form) = line.strip_prefix("form ") {
                runs.forms.push(form.into());
            } else {
                let excepted = line.strip_prefix("except ").map(|rest| rest.splitn(3, ": "));
                let excepted: Vec<&str> = excepted.into_iter().flatten().collect();
                let &[form, check, _] = &excepted[..] else {
                    return Err(format!("{line}: neither NAME = ARGS nor form nor except"));
                };
                runs.excepted.insert((form.into(), check.into()));
            }
        }
        Ok(runs)
    }

    /// Reads `ONE_IN ARGS: CHECKS` of the bug `name`.
    pub fn of(&self, name: &str, run: &str) -> Result<Run, String> {
        let wrong = || format!("{run}: not ONE_IN ARGS: CHECKS");
        let (one_in, rest) = run.split_once(' ').ok_or_else(wrong)?;
        let (args, checks) = rest.split_once(": ").ok_or_else(wrong)?;
        let one_in: u32 = one_in.parse().map_err(|_| wrong())?;
        if args.chars().all(|char| char.is_uppercase() || char == '_')
            && !self.commands.contains_key(args)
        {
            return Err(format!("{args}: not in `xtask/bugs/runs`"));
        }
        Ok(Run {
            bug: format!("{name}/{one_in}"),
            args: self.commands.get(args).map_or(args, String::as_str).into(),
            found_by: checks.split_whitespace().map(String::from).collect(),
        })
    }
}

/// The arguments of a scenario that decide which checks it makes.
pub fn form(args: &str) -> String {
    let words = || args.split_whitespace();
    let form: Vec<_> = words().take(1).chain(words().filter(|word| *word == "--bounded")).collect();
    form.join(" ")
}
