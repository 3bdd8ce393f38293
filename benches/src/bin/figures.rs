//! Prints the published figures of `expiry`, as ratios of interleaved rounds.

fn main() -> std::process::ExitCode {
    expiry_benches::figures::main()
}
