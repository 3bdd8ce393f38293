//! Tests that measure or change their process: memory, forks, limits, a global subscriber. Each
//! runs in a process of its own, on its main thread: the program starts itself anew for each test.

#![cfg(not(expiry_loom))]

#[allow(dead_code)] // the tests of `tests/it` use the rest
#[path = "../it/drops/census.rs"]
mod census;
mod dying_threads;
#[cfg(feature = "tracing")]
mod events;
#[cfg(all(feature = "tracing", target_os = "linux"))]
mod events_memory;
#[cfg(all(feature = "async", target_os = "linux"))]
mod fork;
mod heap;
#[cfg(target_os = "linux")]
mod memory;
mod reclaim;
mod rotating_memory;
mod seeds;
mod session_memory;
#[cfg(target_os = "linux")]
mod small_memory;
#[path = "../it/support/mod.rs"]
mod support;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod suspended;
mod table_memory;
mod thread_memory;
mod wheel_memory;

use libtest_mimic::{Arguments, Failed, Trial};
use std::env;
use std::process::Command;

/// Names the test that a process is to run.
const ALONE: &str = "EXPIRY_TEST_ALONE";

/// The names of these tests, and what they call.
macro_rules! tests {
    ($($(#[$attribute:meta])* $module:ident::$test:ident,)*) => {
        vec![$($(#[$attribute])* (concat!(stringify!($module), "::", stringify!($test)), $module::$test as fn()),)*]
    };
}

fn tests() -> Vec<(&'static str, fn())> {
    tests![
        dying_threads::thread_locals_older_than_the_threads_index_use_every_store,
        dying_threads::thread_locals_younger_than_the_threads_index_use_every_store,
        #[cfg(feature = "tracing")]
        events::a_handler_that_panics,
        #[cfg(feature = "tracing")]
        events::an_index_that_grows_and_shrinks,
        #[cfg(feature = "tracing")]
        events::a_process_that_was_stalled,
        #[cfg(feature = "tracing")]
        events::a_shutdown_and_what_was_left,
        #[cfg(feature = "tracing")]
        events::a_channel_that_begins_to_spill,
        #[cfg(feature = "tracing")]
        events::a_reaper_in_the_span_that_it_was_built_in,
        #[cfg(feature = "tracing")]
        events::a_subscriber_may_use_the_store,
        #[cfg(feature = "tracing")]
        events::a_subscriber_may_shut_the_store_down,
        #[cfg(feature = "tracing")]
        events::a_subscriber_that_panics_stops_nothing,
        #[cfg(all(feature = "tracing", target_os = "linux"))]
        events_memory::no_memory_is_said_once_until_there_is_some,
        #[cfg(all(feature = "tracing", target_os = "linux"))]
        events_memory::a_replacement_without_memory_frees_what_waits,
        #[cfg(all(feature = "async", target_os = "linux"))]
        fork::a_store_built_before_a_fork_can_be_used_and_dropped_in_the_child,
        #[cfg(all(feature = "async", target_os = "linux"))]
        fork::a_channel_is_the_parents,
        #[cfg(all(feature = "async", target_os = "linux"))]
        fork::a_child_draws_other_edges_than_its_parent,
        #[cfg(all(feature = "async", target_os = "linux"))]
        fork::a_shared_reaper_is_the_parents,
        #[cfg(target_os = "linux")]
        memory::f08_a_burst_that_has_drained_gives_its_memory_back,
        reclaim::a_refused_into_value_allocates_nothing_that_stays,
        reclaim::what_has_expired_is_dropped_untouched,
        reclaim::what_has_ended_is_dropped_within_an_interval,
        rotating_memory::d01_nothing_is_allocated_after_the_warm_up_and_shrinking_gives_it_back,
        seeds::two_processes_draw_differently,
        session_memory::touches_of_ended_sessions_are_not_kept_for_ever,
        #[cfg(target_os = "linux")]
        small_memory::a_store_of_sixteen_shards_with_one_entry_is_small,
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        suspended::a_boot_clock_counts_the_time_that_the_machine_is_suspended,
        table_memory::a_warm_table_allocates_nothing,
        #[cfg(target_os = "linux")]
        table_memory::a_burst_gives_its_memory_back_but_for_four_bytes_a_slot,
        thread_memory::a_thread_of_a_high_index_costs_a_store_its_own_stripe_only,
        thread_memory::a_thread_that_has_ended_leaves_its_stripe_only,
        wheel_memory::nothing_is_allocated_after_warm_up,
        wheel_memory::reserved_is_reserved,
    ]
}

/// Runs one test in a process of its own.
fn alone(test: &str) -> Result<(), Failed> {
    let output = Command::new(env::current_exe()?).env(ALONE, test).output()?;
    if output.status.success() {
        return Ok(());
    }
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}\n{out}{err}", output.status).into())
}

fn main() {
    if let Ok(name) = env::var(ALONE) {
        let (_, test) = tests().into_iter().find(|(known, _)| *known == name).expect("a test");
        return test();
    }
    let trial = |(name, _)| Trial::test(name, move || alone(name));
    let trials = tests().into_iter().map(trial).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
