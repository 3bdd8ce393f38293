//! Every seeded bug is found, and every check of every scenario is seen to fail because of one (`cargo xtask inject`).
//!
//! Demanded is that each of the checks named fails, not only some check; others may fail too, and are printed. The rates are such that
//! a bug strikes often enough on a slow machine, and seldom enough that it is not the only thing that happens; as it strikes at
//! random, a run is repeated if it has had none of the luck that it needs.
#![cfg(expiry_inject)]

use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A bug, as `name/one in how many`; the scenario that runs with it; and the checks that must find it.
struct Seeded {
    bug: &'static str,
    args: &'static str,
    found_by: &'static [&'static str],
}

const fn seeded(
    bug: &'static str,
    args: &'static str,
    found_by: &'static [&'static str],
) -> Seeded {
    Seeded {
        bug,
        args,
        found_by,
    }
}

const MAP: &str = "histories --on map --seconds 2";
const ONE_KEY: &str = "histories --on map --seconds 4 --keys 1";
const QUEUE: &str = "histories --on queue --seconds 2";
const ACKS: &str = "histories --on acks --seconds 2";
const ROOTS: &str = "histories --on roots --seconds 2";
const ACK: &str = "ack --seconds 0.7 --fail-rate 0.1 --timeout-rate 0.01 --duplicate-rate 0.02 --late-rate 0.1 \
                   --handoff-rate 0.2 --timeout 100ms --interval 1ms --in-flight 4000 --threads 3 --allowance 5s";
const LATE: &str = "ack --seconds 0.5 --timeout-rate 0.05 --timeout 100ms --interval 1ms --in-flight 2000 --allowance 2s";
const FEW: &str =
    "ack --seconds 0.3 --timeout 50ms --interval 1ms --in-flight 100 --threads 2 --allowance 5s";
const SESSIONS: &str = "sessions --seconds 0.5 --keys 512 --threads 3 --allowance 5s";
const LATE_SESSIONS: &str = "sessions --seconds 0.5 --keys 512 --threads 3 --allowance 2s";
const SIMULATED_SESSIONS: &str =
    "sessions --simulated --seconds 0.5 --keys 512 --threads 3 --allowance 1s";
const CONTENDED: &str = "sessions --contended --keys 1";
const TRACKER: &str = "sessions --tracker --seconds 0.5 --keys 512 --allowance 5s";
const LATE_TRACKER: &str = "sessions --tracker --seconds 0.5 --keys 512 --allowance 2s";
const SIMULATED_TRACKER: &str =
    "sessions --tracker --simulated --seconds 0.5 --keys 512 --allowance 1s";
const TTL: &str = "ttl --row 9 --seconds 2";
const REPLACED: &str = "ttl --row 53 --seconds 2 --keys 100";
const LATE_TTL: &str = "ttl --row 9 --seconds 6 --interval 1ms --allowance 2s";
const SIMULATED_TTL: &str = "ttl --row 53 --simulated --requests 200000";
const WORDS: &str = "wordcount src --timeout 1s";
const DROPPED: &str = "wordcount src --timeout 300ms --drop 0.002";
const LATE_WORDS: &str = "wordcount src --timeout 200ms --late 0.01";

const TIMERS: &str =
    "timers --seconds 0.5 --in-flight 4000 --threads 3 --timeout 50ms --cancels 0.7 --reschedules 0.2 --allowance 2s";
const WHEELS: &str =
    "timers --wheel --seconds 0.5 --in-flight 400 --timeout 200ms --cancels 0.6 --reschedules 0.2";
const GROWTH: &str = "growth --entries 50000 --threads 3";
const BOUNDED: &str = "growth --bounded --entries 20000 --threads 3";
const MASS: &str =
    "mass-expiry --entries 20000 --threads 3 --seconds 0.2 --intervals 10 --allowance 2s";
const SIMULATED_MASS: &str =
    "mass-expiry --simulated --entries 20000 --threads 3 --seconds 0.2 --intervals 10 --pollers 2";
const BARE_MAPS: &str = "compare --group maps --peers sharded --entries 1000 --operations 40000 --rounds 1 --threads 1,2";
const EXPIRING_MAPS: &str =
    "compare --group expiring --peers sharded --entries 2000 --rounds 1 --threads 1,2";
const TIMEOUTS_BESIDE: &str = "compare --group timeouts --peers tokio --entries 1000 --operations 10000 --rounds 1 --threads 1";
const TIMERS_BESIDE: &str = "compare --group timers --peers btree --entries 1000 --operations 40000 --rounds 1 --threads 1,2";

const MAP_LAW: &[&str] = &["map_linearizable"];
const QUEUE_LAW: &[&str] = &["queue_linearizable"];
const ACKS_LAW: &[&str] = &["acks_linearizable"];
const ROOTS_LAW: &[&str] = &["roots_linearizable"];
const WHOLE: &[&str] = &["capacity_whole"];
const STUCK: &[&str] = &["nobody_stuck"];

const SEEDED: &[Seeded] = &[
    // The work of a comparison.
    seeded("lost-ack/1000", BARE_MAPS, &["trees_complete"]),
    seeded("lost-insert/1000", EXPIRING_MAPS, &["entries_kept"]),
    seeded("late-expiry", EXPIRING_MAPS, &["entries_expire"]),
    seeded("double-outcome/10", TIMERS_BESIDE, &["timers_fire"]),
    seeded("lost-outcome/10", TIMERS_BESIDE, &["timers_fire"]),
    seeded("never-expires", TIMEOUTS_BESIDE, &["futures_end"]),
    seeded(
        "kept-shard/10",
        "compare --group timers --peers btree --entries 1000 --operations 10000 --rounds 1 --stuck-after 10s",
        STUCK,
    ),
    // Ack trees.
    seeded("lost-ack/1000", ACKS, ACKS_LAW),
    seeded("lost-ack/1000", ROOTS, ROOTS_LAW),
    seeded("lost-ack/1000", ACK, &["completions_true", "late_harmless"]),
    seeded("lost-fail/500", ACKS, ACKS_LAW),
    seeded("lost-fail/500", ROOTS, ROOTS_LAW),
    seeded("lost-fail/100", ACK, &["one_outcome_each"]),
    seeded("duplicate-init/1000", ACKS, ACKS_LAW),
    seeded(
        "unbounded-early/10",
        "hostile --size 2000 --only unknown_chosen",
        &["unknown_chosen"],
    ),
    seeded(
        "stale-generation",
        "hostile --size 2000 --only unknown_issued --only guessed_roots",
        &["guessed_roots", "unknown_issued"],
    ),
    // Renewals.
    seeded("late-touch/50", MAP, MAP_LAW),
    seeded("late-touch/1000", QUEUE, QUEUE_LAW),
    seeded("late-touch/5", ACKS, ACKS_LAW),
    seeded("late-touch/200", ROOTS, ROOTS_LAW),
    seeded("late-touch/100", SESSIONS, &["renewed_is_renewed"]),
    seeded("late-touch/100", SIMULATED_SESSIONS, &["renewed_is_renewed"]),
    seeded("late-touch/10", TRACKER, &["renewed_is_renewed"]),
    seeded("late-touch/10", SIMULATED_TRACKER, &["renewed_is_renewed"]),
    seeded("late-touch/1000", CONTENDED, &["ends_when_asked"]),
    seeded("held-deadline/200", MAP, MAP_LAW),
    seeded("held-deadline/200", QUEUE, QUEUE_LAW),
    seeded("held-deadline/5", ACKS, ACKS_LAW),
    seeded("held-deadline/2", ROOTS, ROOTS_LAW),
    seeded("held-deadline/20", SESSIONS, &["renewed_is_renewed"]),
    seeded("held-deadline/20", SIMULATED_SESSIONS, &["renewed_is_renewed"]),
    seeded("held-deadline/20", TRACKER, &["renewed_is_renewed"]),
    seeded("held-deadline/20", SIMULATED_TRACKER, &["renewed_is_renewed"]),
    // What is put in and taken out.
    seeded("lost-insert/1000", MAP, MAP_LAW),
    seeded("lost-insert/1000", QUEUE, QUEUE_LAW),
    seeded("lost-insert/1000", ACKS, ACKS_LAW),
    seeded("lost-insert/100", SESSIONS, &["every_stay_ends"]),
    seeded("lost-insert/100", SIMULATED_SESSIONS, &["every_stay_ends"]),
    seeded("lost-insert/1000", CONTENDED, &["none_lost"]),
    seeded("lost-insert/1000", TRACKER, &["every_session_ends"]),
    seeded("lost-insert/100", SIMULATED_TRACKER, &["every_session_ends"]),
    seeded("lost-insert/1000", TTL, &["one_end_each"]),
    seeded(
        "lost-insert/1000",
        SIMULATED_TTL,
        &["ends_agree", "length_agrees", "results_agree"],
    ),
    seeded(
        "lost-insert/200",
        "hostile --size 2000 --only weak_hasher --only integer_keys --only aimed_keys --only aimed_roots",
        &["aimed_keys", "aimed_roots", "integer_keys", "weak_hasher"],
    ),
    seeded("lost-remove/1000", QUEUE, QUEUE_LAW),
    seeded("lost-remove/100", SESSIONS, &["told_once"]),
    seeded("lost-remove/100", SIMULATED_SESSIONS, &["told_once"]),
    seeded("lost-remove/100", CONTENDED, &["told_once"]),
    seeded("lost-remove/10", TRACKER, &["ended_is_ended", "ends_once"]),
    seeded(
        "lost-remove/10",
        SIMULATED_TRACKER,
        &["ended_is_ended", "ends_once"],
    ),
    seeded("missed-look-up/100", SESSIONS, &["histories_explained"]),
    seeded(
        "missed-look-up/100",
        SIMULATED_SESSIONS,
        &["histories_explained"],
    ),
    seeded("missed-look-up/100", TRACKER, &["refusals_true"]),
    seeded("missed-look-up/100", SIMULATED_TRACKER, &["refusals_true"]),
    seeded("false-full/20", ACK, &["no_surprises"]),
    seeded("false-full/20", SESSIONS, &["no_surprises"]),
    seeded("false-full/2", SIMULATED_SESSIONS, &["no_surprises"]),
    seeded("false-full/5", TRACKER, &["no_surprises"]),
    seeded("false-full/5", SIMULATED_TRACKER, &["no_surprises"]),
    seeded("false-full/20", TTL, &["no_surprises"]),
    seeded("false-full/20", SIMULATED_TTL, &["no_surprises"]),
    seeded("false-full/20", MAP, &["no_surprises"]),
    seeded(
        "over-capacity/10",
        "hostile --size 2000 --only never_acked",
        &["never_acked"],
    ),
    // Ends, and who is told.
    seeded("double-outcome/200", MAP, MAP_LAW),
    seeded("double-outcome/1000", ACKS, ACKS_LAW),
    seeded("double-outcome/1000", ROOTS, ROOTS_LAW),
    seeded("double-outcome/1000", ACK, &["one_outcome_each"]),
    seeded("double-outcome/100", SESSIONS, &["told_once"]),
    seeded("double-outcome/100", TRACKER, &["ends_once"]),
    seeded("double-outcome/1000", TTL, &["told_once"]),
    seeded(
        "double-outcome/20",
        "faults --only handlers_reenter --size 5000",
        &["handlers_reenter"],
    ),
    seeded("lost-outcome/200", MAP, MAP_LAW),
    seeded("lost-outcome/1000", ACKS, ACKS_LAW),
    seeded("lost-outcome/1000", ROOTS, ROOTS_LAW),
    seeded(
        "lost-outcome/1000",
        ACK,
        &["every_root_ended", "metrics_add_up"],
    ),
    seeded("lost-outcome/1000", TTL, &["one_end_each"]),
    seeded("lost-outcome/1000", WORDS, &["every_root_ended"]),
    seeded(
        "lost-outcome/100",
        "hostile --size 2000 --only one_tick --only cascading",
        &["cascading", "one_tick"],
    ),
    seeded("wrong-cause/10", TTL, &["returns_agree"]),
    seeded("lost-count/100", MAP, &["metrics_add_up", "nothing_left"]),
    seeded("lost-count/100", ROOTS, &["metrics_add_up"]),
    seeded("lost-count/100", WORDS, &["metrics_add_up"]),
    seeded(
        "lost-panic/10",
        "faults --only handlers_panic --size 5000 --limit 20s",
        &["handlers_panic"],
    ),
    seeded(
        "lost-spill/10",
        "faults --only consumers_stop --size 5000 --limit 20s",
        &["consumers_stop"],
    ),
    // Elsewhere it goes so wrong that the engine itself no longer comes to an end.
    seeded("torn-end", ROOTS, ROOTS_LAW),
    // The slots of the handles that are kept must have others by then.
    seeded(
        "stale-generation",
        "sessions --simulated --seconds 3 --keys 2048 --threads 3",
        &["histories_explained"],
    ),
    seeded("stale-generation", ROOTS, ROOTS_LAW),
    seeded(
        "stale-generation",
        ACK,
        &["completions_true", "late_harmless"],
    ),
    seeded("stale-generation", LATE_WORDS, &["late_refused"]),
    seeded("stale-get/1000", MAP, MAP_LAW),
    seeded("stale-get/100", REPLACED, &["ended_is_gone"]),
    seeded(
        "stale-get/100",
        SIMULATED_TTL,
        &["results_agree", "values_intact"],
    ),
    // Time.
    seeded("resurrect/100", MAP, MAP_LAW),
    seeded("resurrect/10", SIMULATED_TTL, &["none_late"]),
    seeded("unlapsed", ONE_KEY, MAP_LAW),
    seeded("stale-clock", LATE, &["none_early"]),
    seeded("stale-clock/20", SIMULATED_SESSIONS, &["deadlines_right"]),
    seeded("stale-clock", DROPPED, &["none_early"]),
    seeded("late-deadline/5", LATE, &["none_late"]),
    seeded(
        "late-deadline/100",
        LATE_SESSIONS,
        &["deadlines_right", "none_late"],
    ),
    seeded("late-deadline/50", LATE_TRACKER, &["none_late"]),
    seeded(
        "late-deadline/20",
        LATE_TTL,
        &["none_found_late", "none_late"],
    ),
    seeded("zero-timeout/20", CONTENDED, &["zero_refused"]),
    seeded(
        "unseen-jump",
        "faults --only clock_jumps --size 5000 --limit 20s",
        &["clock_jumps"],
    ),
    seeded("early-expiry/20", MAP, MAP_LAW),
    seeded("early-expiry/20", QUEUE, QUEUE_LAW),
    seeded("early-expiry/20", ACKS, ACKS_LAW),
    seeded("early-expiry/20", ROOTS, ROOTS_LAW),
    seeded("early-expiry/10", ACK, &["none_early"]),
    seeded("early-expiry/10", SESSIONS, &["none_early"]),
    seeded("early-expiry/4", SIMULATED_SESSIONS, &["none_early"]),
    seeded("early-expiry/10", TTL, &["none_early"]),
    seeded("early-expiry/2", SIMULATED_TTL, &["none_early"]),
    seeded(
        "fast-driver",
        "faults --only clock_stands_still --size 5000 --stall 300ms --limit 20s",
        &["clock_stands_still"],
    ),
    seeded("never-expires/20", MAP, MAP_LAW),
    seeded("never-expires/50", QUEUE, QUEUE_LAW),
    seeded("never-expires/10", ACKS, ACKS_LAW),
    seeded("never-expires/50", ROOTS, ROOTS_LAW),
    seeded("never-expires/50", SIMULATED_SESSIONS, &["nothing_left"]),
    seeded("never-expires/50", LATE_SESSIONS, &["nothing_left"]),
    seeded("never-expires/50", LATE_TRACKER, &["none_immortal"]),
    seeded("never-expires/50", SIMULATED_TRACKER, &["none_immortal"]),
    seeded(
        "never-expires/100",
        CONTENDED,
        &["none_stranded", "queue_empty"],
    ),
    seeded(
        "never-expires",
        DROPPED,
        &["every_line_acked_once", "nothing_left"],
    ),
    seeded("late-expiry/10", LATE, &["none_late"]),
    seeded("late-expiry/50", LATE_SESSIONS, &["none_late"]),
    seeded("late-expiry/20", LATE_TRACKER, &["none_late"]),
    // Sessions.
    seeded(
        "closing-expires",
        TRACKER,
        &["none_expires_while_closing"],
    ),
    seeded(
        "closing-expires",
        SIMULATED_TRACKER,
        &["none_expires_while_closing"],
    ),
    seeded("reopened/4", TRACKER, &["closing_is_final"]),
    seeded("reopened/4", SIMULATED_TRACKER, &["closing_is_final"]),
    seeded("lost-report/20", TRACKER, &["touches_reported"]),
    seeded("lost-report/20", SIMULATED_TRACKER, &["touches_reported"]),
    seeded("false-report/2", TRACKER, &["reports_true"]),
    seeded("false-report/2", SIMULATED_TRACKER, &["reports_true"]),
    seeded("lost-move/20", TRACKER, &["owners_right"]),
    seeded("lost-move/20", SIMULATED_TRACKER, &["owners_right"]),
    seeded("double-upgrade/20", TRACKER, &["upgrades_right"]),
    seeded("double-upgrade/20", SIMULATED_TRACKER, &["upgrades_right"]),
    seeded("id-again/20", TRACKER, &["ids_in_order", "ids_unique"]),
    seeded(
        "id-again/20",
        SIMULATED_TRACKER,
        &["ids_in_order", "ids_unique"],
    ),
    // Slots, memory, the driver.
    seeded("leak-slot/1000", MAP, WHOLE),
    seeded("leak-slot/1000", QUEUE, WHOLE),
    seeded("leak-slot/1000", ACKS, WHOLE),
    seeded("leak-slot/1000", ROOTS, WHOLE),
    seeded(
        "leak-node",
        "soak --minutes 5 --cycles 7 --each 1s --only ttl",
        &["memory_flat"],
    ),
    seeded(
        "dead-thread",
        "faults --only threads_die --size 20000",
        &["threads_die"],
    ),
    seeded(
        "wrong-refusal",
        "faults --only memory_refused --size 5000",
        &["memory_refused"],
    ),
    seeded("lost-news/2", MAP, MAP_LAW),
    seeded("lost-news/2", QUEUE, QUEUE_LAW),
    seeded("lost-news/2", ACKS, ACKS_LAW),
    seeded("lost-news/100", ROOTS, ROOTS_LAW),
    seeded("lost-wakeup", FEW, &["every_root_ended", "nothing_left"]),
    seeded(
        "idle-poll",
        "faults --only reaper_blocked --size 5000 --stall 300ms --limit 20s",
        &["reaper_blocked"],
    ),
    seeded(
        "self-wait",
        "faults --only handlers_reenter --size 5000 --limit 10s",
        STUCK,
    ),
    seeded(
        "lost-close",
        "faults --only handlers_shut_down --size 5000 --limit 20s",
        &["handlers_shut_down"],
    ),
    seeded("kept-shard/10", "ack --seconds 0.3 --stuck-after 10s", STUCK),
    seeded(
        "kept-shard/10",
        "sessions --seconds 0.3 --keys 512 --stuck-after 10s",
        STUCK,
    ),
    seeded(
        "kept-shard/10",
        "sessions --simulated --seconds 0.3 --keys 512 --stuck-after 10s",
        STUCK,
    ),
    seeded(
        "kept-shard/10",
        "sessions --tracker --seconds 0.3 --keys 512 --stuck-after 10s",
        STUCK,
    ),
    seeded(
        "kept-shard/10",
        "sessions --tracker --simulated --seconds 0.3 --keys 512 --stuck-after 10s",
        STUCK,
    ),
    seeded(
        "kept-shard/10",
        "sessions --contended --keys 1 --stuck-after 10s",
        STUCK,
    ),
    seeded("kept-shard/10", "ttl --row 9 --seconds 1 --stuck-after 10s", STUCK),
    seeded(
        "kept-shard/10",
        "ttl --row 53 --simulated --requests 100000 --stuck-after 10s",
        STUCK,
    ),
    seeded("kept-shard/10", "wordcount src --timeout 300ms --stuck-after 10s", STUCK),
    seeded(
        "kept-shard/10",
        "histories --seconds 1 --stuck-after 10s",
        STUCK,
    ),
    seeded(
        "kept-shard/10",
        "soak --minutes 1 --cycles 1 --each 300ms --patience 10s --only ack",
        STUCK,
    ),
    seeded(
        "lost-ack/1000",
        "soak --minutes 1 --cycles 1 --each 300ms --only ack",
        &["runs_pass"],
    ),
    // Loads: timers, growth, mass expiry.
    seeded(
        "lost-insert/1000",
        TIMERS,
        &["every_timer_ends", "refusals_true"],
    ),
    seeded(
        "never-expires/50",
        TIMERS,
        &["every_timer_ends", "nothing_left"],
    ),
    seeded("double-outcome/100", TIMERS, &["fires_once"]),
    seeded("lost-remove/100", TIMERS, &["cancelled_never_fires"]),
    seeded("early-expiry/10", TIMERS, &["none_early"]),
    seeded("late-touch/100", TIMERS, &["none_early"]),
    seeded("late-deadline/100", TIMERS, &["none_late"]),
    seeded("missed-look-up/100", TIMERS, &["refusals_true"]),
    seeded("lost-count/100", TIMERS, &["metrics_add_up"]),
    seeded("false-full/20", TIMERS, &["no_surprises"]),
    seeded(
        "leak-slot",
        "timers --seconds 2 --in-flight 4000 --timeout 50ms",
        &["memory_given_back"],
    ),
    seeded(
        "kept-shard/10",
        "timers --seconds 0.3 --timeout 50ms --stuck-after 10s",
        STUCK,
    ),
    seeded(
        "lost-insert/1000",
        WHEELS,
        &["length_agrees", "none_late", "results_agree"],
    ),
    seeded(
        "late-deadline/100",
        WHEELS,
        &["ends_agree", "none_late", "wakes_in_time"],
    ),
    seeded("late-touch/100", WHEELS, &["ends_agree"]),
    seeded("early-expiry/100", WHEELS, &["none_early"]),
    seeded("stale-generation", WHEELS, &["results_agree"]),
    seeded("leak-slot/2", WHEELS, &["memory_given_back"]),
    seeded(
        "lost-insert/1000",
        GROWTH,
        &["none_lost", "readers_see_all"],
    ),
    seeded(
        "missed-look-up/100",
        GROWTH,
        &["drained_once", "readers_see_all"],
    ),
    seeded("lost-count/100", GROWTH, &["count_exact"]),
    seeded("false-full/20", GROWTH, &["no_surprises"]),
    seeded(
        "skipped-slots/2",
        "growth --on issued --on chosen",
        &["memory_per_entry"],
    ),
    seeded("leak-slot", "growth --on issued", &["given_back"]),
    seeded("leak-node", "growth --on map", &["given_back"]),
    seeded(
        "kept-shard/10",
        "growth --entries 50000 --stuck-after 10s",
        STUCK,
    ),
    seeded("over-capacity/10", BOUNDED, &["capacity_exact"]),
    seeded("false-full/20", BOUNDED, &["refusals_right"]),
    seeded("leak-slot/10", BOUNDED, &["room_comes_back"]),
    seeded("lost-insert/1000", BOUNDED, &["none_lost"]),
    seeded("missed-look-up/100", BOUNDED, &["drained_once"]),
    seeded("lost-count/100", BOUNDED, &["count_exact"]),
    seeded(
        "kept-shard/10",
        "growth --bounded --entries 20000 --stuck-after 10s",
        STUCK,
    ),
    seeded("never-expires/50", MASS, &["all_expire"]),
    seeded("double-outcome/100", MASS, &["one_end_each"]),
    seeded("lost-remove/10", MASS, &["one_end_each"]),
    // Long intervals: nobody is so slow that their time has come when they are told.
    seeded(
        "early-expiry/10",
        "mass-expiry --entries 20000 --seconds 0.2 --intervals 10 --interval 50ms --pollers 1",
        &["none_early"],
    ),
    seeded("late-expiry/50", MASS, &["none_late"]),
    seeded("late-touch/50", MASS, &["renewed_stay"]),
    seeded("missed-look-up/100", MASS, &["foreground_right"]),
    seeded("waiting-insert", MASS, &["nobody_stopped"]),
    seeded("lost-count/100", MASS, &["metrics_add_up"]),
    seeded(
        "boundless-poll",
        "mass-expiry --entries 20000 --seconds 0.2 --pollers 1 --budget 100",
        &["budget_kept"],
    ),
    seeded(
        "kept-shard/10",
        "mass-expiry --entries 20000 --seconds 0.2 --stuck-after 10s",
        STUCK,
    ),
    seeded(
        "never-expires/50",
        SIMULATED_MASS,
        &["all_expire", "none_late"],
    ),
    seeded("lost-remove/10", SIMULATED_MASS, &["one_end_each"]),
    seeded("early-expiry/10", SIMULATED_MASS, &["none_early"]),
    seeded("late-expiry/50", SIMULATED_MASS, &["none_late"]),
    seeded("late-touch/50", SIMULATED_MASS, &["renewed_stay"]),
    seeded("missed-look-up/100", SIMULATED_MASS, &["foreground_right"]),
    seeded("lost-count/100", SIMULATED_MASS, &["metrics_add_up"]),
    seeded(
        "boundless-poll",
        "mass-expiry --simulated --entries 20000 --seconds 0.2 --budget 100",
        &["budget_kept"],
    ),
    seeded(
        "kept-shard/10",
        "mass-expiry --simulated --entries 20000 --seconds 0.2 --stuck-after 10s",
        STUCK,
    ),
    // The executor.
    seeded(
        "skipped-tuple/100",
        WORDS,
        &["acked_means_counted", "counts_exact", "counts_explained"],
    ),
    seeded("lost-batch/50", WORDS, &["no_surprises"]),
    seeded("lost-edge/1000", WORDS, &["counts_exact"]),
    seeded(
        "lost-replay/2",
        DROPPED,
        &["every_line_acked_once", "every_root_ended"],
    ),
    seeded("double-ack/100", WORDS, &["one_outcome_each"]),
    seeded("leak-place/1000", WORDS, &["max_pending_exact"]),
];

/// A scenario's form, without a bug: together they make every check that there is.
const FORMS: &[&str] = &[
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
    "timers --seconds 0.3",
    "timers --wheel --seconds 0.3",
    "growth --entries 20000",
    "growth --bounded --entries 20000",
    "mass-expiry --entries 20000 --seconds 0.2",
    "mass-expiry --simulated --entries 20000 --seconds 0.2",
    "soak --minutes 1 --cycles 1 --each 100ms --only ack",
    "compare --entries 1000 --operations 10000 --rounds 1 --threads 1,2 --peers sharded,btree,tokio",
];

/// A check of a form that no seeded bug makes fail, and why.
const EXCEPT: &[(&str, &str, &str)] = &[
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
        "timers --wheel",
        "nobody_stuck",
        "a wheel has one owner, who waits for nobody",
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

/// How long a run may take, with the patience of the scenarios that wait for what does not come.
const PATIENCE: Duration = Duration::from_secs(180);
/// How often a run is made for its bug to be found.
const ATTEMPTS: usize = 3;

/// Of a scenario's arguments, what says which checks it makes.
fn form(args: &str) -> String {
    let forms = [
        "--tracker",
        "--contended",
        "--simulated",
        "--wheel",
        "--bounded",
    ];
    let is_form = |word: &&str| forms.contains(word);
    let words = || args.split_whitespace();
    let form: Vec<_> = words().take(1).chain(words().filter(is_form)).collect();
    form.join(" ")
}

/// What came of a run: all its checks, and those that failed; or why there are none to be looked at.
fn run(bug: &str, args: &str) -> Result<[BTreeSet<String>; 2], String> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stress"))
        .args(args.split_whitespace())
        .arg("--json")
        .args((!bug.is_empty()).then(|| format!("--inject-bug={bug}")))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let mut out = child.stdout.take().expect("it was asked for");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).map(|_| text)
    });
    let began = Instant::now();
    while child.try_wait().expect("it is a child").is_none() {
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let status = child.wait().expect("it is a child");
    let text = reader.join().expect("no panic").expect("text");
    let json: Value = serde_json::from_str(&text).map_err(|_| status.to_string())?;
    let checks = json["checks"].as_object().expect("checks by name").iter();
    let failed = checks.clone().filter(|(_, holds)| **holds == false);
    Ok([
        checks.map(|(name, _)| name.clone()).collect(),
        failed.map(|(name, _)| name.clone()).collect(),
    ])
}

/// Runs with a bug until the checks that must find it have. What came of it, in words; false if they have not.
fn is_found(one: &Seeded) -> (String, bool) {
    let mut said = format!("{:<20} {}", one.bug, one.args);
    let began = Instant::now();
    for _ in 0..ATTEMPTS {
        let failed = run(one.bug, one.args).map(|[_, failed]| failed);
        let took = began.elapsed().as_secs_f64();
        let found = match &failed {
            Ok(failed) => one.found_by.iter().all(|&check| failed.contains(check)),
            Err(_) => false,
        };
        // To text: it cannot fail.
        let _ = match failed {
            Ok(failed) => write!(said, "\n{:<20} {took:.0} s, found by {failed:?}", ""),
            Err(why) => write!(said, "\n{:<20} {took:.0} s, {why}", ""),
        };
        if found {
            return (said, true);
        }
    }
    (said, false)
}

#[test]
fn every_seeded_bug_is_found() {
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    // Mostly they wait.
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(one) = SEEDED.get(next.fetch_add(1, Relaxed)) {
                    let (said, found) = is_found(one);
                    println!("{said}");
                    if !found {
                        let Seeded {
                            bug,
                            args,
                            found_by,
                        } = one;
                        let text = format!("{bug} by {found_by:?}: {args}");
                        missed.lock().expect("no panic").push(text);
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().expect("no panic");
    assert!(missed.is_empty(), "not found: {missed:#?}");
}

#[test]
fn every_bug_is_seeded() {
    let name = |one: &Seeded| one.bug.split('/').next().unwrap_or_default();
    let seeded: BTreeSet<_> = SEEDED.iter().map(name).collect();
    let bugs = expiry::inject::BUGS
        .iter()
        .chain(expiry_topology::inject::BUGS);
    assert_eq!(seeded, bugs.map(|(name, _)| *name).collect());
}

#[test]
fn every_check_holds_without_a_bug_and_has_one_that_makes_it_fail() {
    let mut checks = BTreeSet::new();
    let runs = FORMS.iter().copied();
    let runs: BTreeSet<_> = runs.chain(SEEDED.iter().map(|one| one.args)).collect();
    for args in runs {
        let [all, failed] = run("", args).unwrap_or_else(|why| panic!("{args}: {why}"));
        let is_excepted = |check: &&String| {
            let mut excepted = EXCEPT.iter();
            excepted.any(|(of, name, _)| *of == form(args) && name == check)
        };
        let failed: Vec<_> = failed.iter().filter(|check| !is_excepted(check)).collect();
        assert!(failed.is_empty(), "{args}: {failed:?}");
        checks.extend(all.into_iter().map(|check| (form(args), check)));
    }
    let found = SEEDED.iter().flat_map(|one| {
        let checks = one.found_by.iter();
        checks.map(|check| (form(one.args), (*check).to_string()))
    });
    let found: BTreeSet<_> = found.collect();
    let excepted = EXCEPT.iter();
    let excepted = excepted.map(|(form, check, _)| ((*form).to_string(), (*check).to_string()));
    let never: BTreeSet<_> = checks.difference(&found).cloned().collect();
    println!(
        "{} bugs, {} runs, {} checks, of which {} never fail",
        expiry::inject::BUGS.len() + expiry_topology::inject::BUGS.len(),
        SEEDED.len(),
        checks.len(),
        never.len()
    );
    assert_eq!(never, excepted.collect(), "checks that no bug makes fail");
    let unknown: Vec<_> = found.difference(&checks).collect();
    assert!(unknown.is_empty(), "no such checks: {unknown:?}");
}

#[test]
fn every_scenario_has_its_form() {
    let help = Command::new(env!("CARGO_BIN_EXE_stress"))
        .arg("--help")
        .output();
    let help = String::from_utf8(help.expect("the binary runs").stdout).expect("text");
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = commands
        .take_while(|line| !line.is_empty())
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help");
    let first = |args: &&'static str| args.split(' ').next().unwrap_or_default();
    let forms: BTreeSet<_> = FORMS.iter().map(first).collect();
    assert_eq!(names.collect::<BTreeSet<_>>(), forms);
}

/// `docs/data/seeded-bugs.tsv` is of what is here; `EXPIRY_INJECT_TABLE=1` writes it anew.
#[test]
fn the_table_of_the_docs_is_of_these_bugs() {
    let mut table = String::from("bug\trun\tfailing checks, or why none\n");
    // To text: it cannot fail.
    for Seeded {
        bug,
        args,
        found_by,
    } in SEEDED
    {
        let _ = writeln!(table, "{bug}\tstress {args}\t{}", found_by.join(", "));
    }
    for (form, check, why) in EXCEPT {
        let _ = writeln!(table, "-\tstress {form}\t{check}: {why}");
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/data/seeded-bugs.tsv");
    if std::env::var_os("EXPIRY_INJECT_TABLE").is_some() {
        std::fs::write(path, &table).expect("the docs can be written");
    }
    let there = std::fs::read_to_string(path).expect("there is a table");
    assert_eq!(there, table, "EXPIRY_INJECT_TABLE=1 writes it anew");
}
