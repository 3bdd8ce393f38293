//! The machine that a run was on.

use serde::Serialize;

/// What figures depend on.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Its processor.
    pub processor: String,
    /// Hardware threads that this process may use.
    pub threads: usize,
    /// Memory in bytes; 0 where the system does not say.
    pub memory: u64,
    /// The system and its version.
    pub system: String,
    /// How many threads wanted to run just before the run, on the mean of a minute.
    pub load: f64,
    /// How this program was built.
    pub build: &'static str,
}

impl Machine {
    /// This one.
    pub fn this() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_string())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let kib = memory.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
        let release = read("/proc/sys/kernel/osrelease");
        let load = read("/proc/loadavg");
        Machine {
            processor: field(&read("/proc/cpuinfo"), "model name")
                .unwrap_or_else(|| std::env::consts::ARCH.into()),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            memory: kib.unwrap_or(0) * 1024,
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
