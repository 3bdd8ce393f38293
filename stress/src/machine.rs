//! The machine that a run was on.

use crate::usage::memory;
use serde::Serialize;

/// What figures depend on.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Machine {
    pub processor: String,
    /// Hardware threads that this process may use.
    pub threads: usize,
    /// Memory in bytes; 0 where the system does not say.
    pub memory: u64,
    pub system: String,
    /// How many threads wanted to run just before the run, on the mean of a minute.
    pub load: f64,
    pub build: &'static str,
}

impl Machine {
    /// This one.
    pub fn this() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpus = read("/proc/cpuinfo");
        let name = cpus.lines().find(|line| line.starts_with("model name"));
        let name = name.and_then(|line| Some(line.split_once(':')?.1.trim()));
        let release = read("/proc/sys/kernel/osrelease");
        let load = read("/proc/loadavg");
        Machine {
            processor: name.unwrap_or(std::env::consts::ARCH).into(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory("/proc/meminfo", "MemTotal"),
            system: format!("{} {}", std::env::consts::OS, release.trim()),
            load: load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
        }
    }
}

/// How this process was called: the program's name and its arguments.
pub fn command() -> String {
    let quoted = |argument: String| {
        if argument.contains([' ', '"', '\'', '\\', '$']) {
            format!("'{}'", argument.replace('\'', "'\\''"))
        } else {
            argument
        }
    };
    let arguments = std::env::args().skip(1).map(quoted);
    std::iter::once("stress".into()).chain(arguments).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn there_is_a_machine() {
        let machine = super::Machine::this();
        assert!(machine.threads > 0 && !machine.processor.is_empty());
        assert!(!machine.system.trim().is_empty());
    }
}
