//! Options of `hostile`.

use clap::Args;
use serde::Serialize;

/// The long help's end.
pub const HELP: &str = "\
Attacks, each beside its friendly case in the same run, in turns, medians of three:
  weak_hasher          keys of a map whose low or high hash bits are all the same under a user's weak hasher; random keys
  integer_keys         integer keys that are multiples of 2^40; random ones
  aimed_keys           strings that collide under an attacker's own hasher; random ones
  aimed_roots          chosen roots that collide in an index with the attacker's secret; random ones. As a control the \
same is aimed at a tracker with that secret (which the docs warn of), and must hit
  unknown_issued       acks of roots that were never issued; acks of roots that are live
  unknown_chosen       acks of roots that nobody inits, held until they are too many; acks of roots that are live
  never_acked          inits that nobody acks, up to the capacity; inits that are acked
  one_tick             all deadlines in one tick; deadlines that are spread out
  cascading            all deadlines where each cascades through a level of the wheel; deadlines a second away
  guessed_roots        acks of ids that differ from a live root's in incarnation and random bits; acks of the root

What holds or not: nothing unknown is ever accepted, what is accepted ends once, refusals are the right ones, and the \
memory of a flood is flat and given back. Hostile keys and roots may cost at most 1.5 times as much as random ones, by \
the thread's own time: that is judged from 100000 keys on.

Examples:
  stress hostile
  stress hostile --only aimed_roots --size 1000000 --json";

/// Options of `hostile`.
#[derive(Debug, Clone, Args, Serialize)]
pub struct Hostile {
    /// This attack only; may be repeated
    #[arg(long, value_name = "ATTACK")]
    pub only: Vec<String>,
    /// How many keys, or roots; a flood has four times as many
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1_000..=50_000_000))]
    pub size: u32,
    /// Seed of the choices
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}
