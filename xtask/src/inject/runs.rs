//! The runs of `stress`: with which arguments, and which of its checks no seeded bug makes fail.

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

/// Arguments that several bugs name. The rates in the bugs are such that a bug strikes often enough
/// on a slow machine, and seldom enough that the run does its work.
pub const COMMANDS: &[(&str, &str)] = &[
    ("MAP", "histories --on map --seconds 2"),
    ("QUEUE", "histories --on queue --seconds 2"),
    ("ACKS", "histories --on acks --seconds 2"),
    ("ROOTS", "histories --on roots --seconds 2"),
    (
        "ACK",
        "ack --seconds 0.7 --fail-rate 0.1 --timeout-rate 0.01 --duplicate-rate 0.02 \
         --late-rate 0.1 --handoff-rate 0.2 --timeout 100ms --interval 1ms --in-flight \
         4000 --threads 3 --allowance 5s",
    ),
    (
        "LATE",
        "ack --seconds 0.5 --timeout-rate 0.05 --timeout 100ms --interval 1ms \
         --in-flight 2000 --allowance 2s",
    ),
    (
        "FEW",
        "ack --seconds 0.3 --timeout 50ms --interval 1ms --in-flight 100 --threads 2 \
         --allowance 5s",
    ),
    (
        "SESSIONS",
        "sessions --seconds 0.5 --keys 512 --threads 3 --allowance 5s",
    ),
    (
        "LATE_SESSIONS",
        "sessions --seconds 0.5 --keys 512 --threads 3 --allowance 2s",
    ),
    (
        "SIMULATED_SESSIONS",
        "sessions --simulated --seconds 0.5 --keys 512 --threads 3 --allowance 1s",
    ),
    ("CONTENDED", "sessions --contended --keys 1"),
    (
        "TRACKER",
        "sessions --tracker --seconds 0.5 --keys 512 --allowance 5s",
    ),
    (
        "LATE_TRACKER",
        "sessions --tracker --seconds 0.5 --keys 512 --allowance 2s",
    ),
    (
        "SIMULATED_TRACKER",
        "sessions --tracker --simulated --seconds 0.5 --keys 512 --allowance 1s",
    ),
    ("TTL", "ttl --row 9 --seconds 2"),
    ("REPLACED", "ttl --row 53 --seconds 2 --keys 100"),
    (
        "LATE_TTL",
        "ttl --row 9 --seconds 6 --interval 1ms --allowance 2s",
    ),
    (
        "SIMULATED_TTL",
        "ttl --row 53 --simulated --requests 200000",
    ),
    ("WORDS", "wordcount src --timeout 1s"),
    ("DROPPED", "wordcount src --timeout 300ms --drop 0.002"),
    ("LATE_WORDS", "wordcount src --timeout 200ms --late 0.01"),
    ("GROWTH", "growth --entries 50000 --threads 3"),
    ("BOUNDED", "growth --bounded --entries 20000 --threads 3"),
    (
        "MASS",
        "mass-expiry --entries 20000 --threads 3 --seconds 0.2 --intervals 10 --allowance 2s",
    ),
    (
        "SIMULATED_MASS",
        "mass-expiry --simulated --entries 20000 --threads 3 --seconds 0.2 --intervals \
         10 --pollers 2",
    ),
];

/// The forms of the scenarios, without a bug: together they make every check that there is.
pub const FORMS: &[&str] = &[
    "ack --seconds 0.3",
    "sessions --seconds 0.3",
    "sessions --simulated --seconds 0.3",
    "sessions --tracker --seconds 0.3",
    "sessions --tracker --simulated --seconds 0.3",
    "sessions --contended --keys 1",
    "ttl --seconds 0.5",
    "ttl --simulated --requests 20000",
    "wordcount src",
    "faults --size 2000 --stall 100ms",
    "hostile --size 2000",
    "histories --seconds 0.5",
    "growth --entries 20000",
    "growth --bounded --entries 20000",
    "mass-expiry --entries 20000 --seconds 0.2",
    "mass-expiry --simulated --entries 20000 --seconds 0.2",
    "soak --minutes 1 --cycles 1 --each 100ms --only ack",
];

/// The checks that no seeded bug makes fail: the form, the check, and the reason.
pub const EXCEPT: &[(&str, &str, &str)] = &[
    (
        "histories",
        "clock_in_order",
        "of the machine's clock, before there is an engine",
    ),
    (
        "sessions --contended",
        "threads_met",
        "of the harness: that its threads were at one key at once",
    ),
    (
        "sessions --simulated",
        "none_late",
        "in simulated time nobody comes late: not looked at",
    ),
    (
        "sessions --tracker --simulated",
        "none_late",
        "in simulated time nobody comes late: not looked at",
    ),
    (
        "ttl",
        "values_intact",
        "of memory that is freed too early or torn: to seed that would be undefined behaviour",
    ),
    (
        "wordcount",
        "same_input",
        "of the files: that nobody has changed them meanwhile",
    ),
];

/// The arguments of a scenario that decide which checks it makes.
pub fn form(args: &str) -> String {
    let forms = ["--tracker", "--contended", "--simulated", "--bounded"];
    let is_form = |word: &&str| forms.contains(word);
    let words = || args.split_whitespace();
    let form: Vec<_> = words().take(1).chain(words().filter(is_form)).collect();
    form.join(" ")
}

/// Reads `ONE_IN ARGS: CHECKS` of the bug `name`.
pub fn parse(name: &str, run: &str) -> Result<Run, String> {
    let wrong = || format!("{run}: not ONE_IN ARGS: CHECKS");
    let (one_in, rest) = run.split_once(' ').ok_or_else(wrong)?;
    let (args, checks) = rest.split_once(": ").ok_or_else(wrong)?;
    let one_in: u32 = one_in.parse().map_err(|_| wrong())?;
    let command = COMMANDS.iter().find(|(command, _)| *command == args);
    Ok(Run {
        bug: format!("{name}/{one_in}"),
        args: command.map_or(args, |(_, args)| args).into(),
        found_by: checks.split_whitespace().map(String::from).collect(),
    })
}
