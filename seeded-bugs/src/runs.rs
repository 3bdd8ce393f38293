//! Which scenario must find which bug, by which of its checks.
//!
//! Each of the checks named must fail, not only some check; others may fail too. The rates are such
//! that a bug strikes often enough on a slow machine, and seldom enough that the run does its work.

/// A run that must find a bug.
#[derive(Debug)]
pub struct Seeded {
    /// The bug: `NAME`, or `NAME/ONE_IN` if it strikes one time in so many.
    pub bug: &'static str,
    /// The arguments of `stress`.
    pub args: &'static str,
    /// The checks that must fail.
    pub found_by: &'static [&'static str],
}

impl Seeded {
    /// The bug's name.
    pub fn name(&self) -> &'static str {
        self.bug.split('/').next().unwrap_or_default()
    }
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
const ACK: &str = "ack --seconds 0.7 --fail-rate 0.1 --timeout-rate 0.01 \
        --duplicate-rate 0.02 --late-rate 0.1 \
                   --handoff-rate 0.2 --timeout 100ms --interval 1ms --in-flight 4000 \
        --threads 3 --allowance 5s";
const LATE: &str = "ack --seconds 0.5 --timeout-rate 0.05 --timeout 100ms --interval 1ms \
        --in-flight 2000 --allowance 2s";
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
    "timers --seconds 0.5 --in-flight 4000 --threads 3 --timeout 50ms --cancels 0.7 \
        --reschedules 0.2 --allowance 2s";
const WHEELS: &str =
    "timers --wheel --seconds 0.5 --in-flight 400 --timeout 200ms --cancels 0.6 --reschedules 0.2";
const GROWTH: &str = "growth --entries 50000 --threads 3";
const BOUNDED: &str = "growth --bounded --entries 20000 --threads 3";
const MASS: &str =
    "mass-expiry --entries 20000 --threads 3 --seconds 0.2 --intervals 10 --allowance 2s";
const SIMULATED_MASS: &str =
    "mass-expiry --simulated --entries 20000 --threads 3 --seconds 0.2 --intervals 10 --pollers 2";
const BARE_MAPS: &str = "compare --group maps --peers sharded --entries 1000 \
        --operations 40000 --rounds 1 --threads 1,2";
const EXPIRING_MAPS: &str =
    "compare --group expiring --peers sharded --entries 2000 --rounds 1 --threads 1,2";
const TIMEOUTS_BESIDE: &str = "compare --group timeouts --peers tokio --entries 1000 \
        --operations 10000 --rounds 1 --threads 1";
const TIMERS_BESIDE: &str = "compare --group timers --peers btree --entries 1000 \
        --operations 40000 --rounds 1 --threads 1,2";

const MAP_LAW: &[&str] = &["map_linearizable"];
const QUEUE_LAW: &[&str] = &["queue_linearizable"];
const ACKS_LAW: &[&str] = &["acks_linearizable"];
const ROOTS_LAW: &[&str] = &["roots_linearizable"];
const WHOLE: &[&str] = &["capacity_whole"];
const STUCK: &[&str] = &["nobody_stuck"];

/// Every run.
pub const SEEDED: &[Seeded] = &[
    // The work of a comparison.
    seeded("lost-ack/1000", BARE_MAPS, &["trees_complete"]),
    seeded("lost-insert/1000", EXPIRING_MAPS, &["entries_kept"]),
    seeded("late-expiry", EXPIRING_MAPS, &["entries_expire"]),
    seeded("double-outcome/10", TIMERS_BESIDE, &["timers_fire"]),
    seeded("lost-outcome/10", TIMERS_BESIDE, &["timers_fire"]),
    seeded("never-expires", TIMEOUTS_BESIDE, &["futures_end"]),
    seeded(
        "kept-shard/10",
        "compare --group timers --peers btree --entries 1000 --operations 10000 \
        --rounds 1 --stuck-after 10s",
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
    seeded(
        "late-touch/100",
        SIMULATED_SESSIONS,
        &["renewed_is_renewed"],
    ),
    seeded("late-touch/10", TRACKER, &["renewed_is_renewed"]),
    seeded("late-touch/10", SIMULATED_TRACKER, &["renewed_is_renewed"]),
    seeded("late-touch/1000", CONTENDED, &["ends_when_asked"]),
    seeded(
        "held-deadline/5",
        "histories --on map --seconds 10",
        MAP_LAW,
    ),
    seeded("held-deadline/200", QUEUE, QUEUE_LAW),
    seeded("held-deadline/5", ACKS, ACKS_LAW),
    seeded("held-deadline/2", ROOTS, ROOTS_LAW),
    seeded("held-deadline/20", SESSIONS, &["renewed_is_renewed"]),
    seeded(
        "held-deadline/20",
        SIMULATED_SESSIONS,
        &["renewed_is_renewed"],
    ),
    seeded("held-deadline/20", TRACKER, &["renewed_is_renewed"]),
    seeded(
        "held-deadline/20",
        SIMULATED_TRACKER,
        &["renewed_is_renewed"],
    ),
    // What is put in and taken out.
    seeded("lost-insert/1000", MAP, MAP_LAW),
    seeded("lost-insert/1000", QUEUE, QUEUE_LAW),
    seeded("lost-insert/1000", ACKS, ACKS_LAW),
    seeded("lost-insert/100", SESSIONS, &["every_stay_ends"]),
    seeded("lost-insert/100", SIMULATED_SESSIONS, &["every_stay_ends"]),
    seeded("lost-insert/1000", CONTENDED, &["none_lost"]),
    seeded("lost-insert/1000", TRACKER, &["every_session_ends"]),
    seeded(
        "lost-insert/100",
        SIMULATED_TRACKER,
        &["every_session_ends"],
    ),
    seeded("lost-insert/1000", TTL, &["one_end_each"]),
    seeded(
        "lost-insert/1000",
        SIMULATED_TTL,
        &["ends_agree", "length_agrees", "results_agree"],
    ),
    seeded(
        "lost-insert/200",
        "hostile --size 2000 --only weak_hasher --only integer_keys --only aimed_keys \
        --only aimed_roots",
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
    // Ends, and their delivery.
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
    seeded("closing-expires", TRACKER, &["none_expires_while_closing"]),
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
    seeded(
        "kept-shard/10",
        "ack --seconds 0.3 --stuck-after 10s",
        STUCK,
    ),
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
    seeded(
        "kept-shard/10",
        "ttl --row 9 --seconds 1 --stuck-after 10s",
        STUCK,
    ),
    seeded(
        "kept-shard/10",
        "ttl --row 53 --simulated --requests 100000 --stuck-after 10s",
        STUCK,
    ),
    seeded(
        "kept-shard/10",
        "wordcount src --timeout 300ms --stuck-after 10s",
        STUCK,
    ),
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
    "timers --seconds 0.3",
    "timers --wheel --seconds 0.3",
    "growth --entries 20000",
    "growth --bounded --entries 20000",
    "mass-expiry --entries 20000 --seconds 0.2",
    "mass-expiry --simulated --entries 20000 --seconds 0.2",
    "soak --minutes 1 --cycles 1 --each 100ms --only ack",
    "compare --entries 1000 --operations 10000 --rounds 1 --threads 1,2 \
        --peers sharded,btree,tokio",
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

/// The arguments of a scenario that decide which checks it makes.
pub fn form(args: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::patches;
    use std::collections::BTreeSet;

    #[test]
    fn every_bug_has_a_run_and_every_run_a_bug() {
        let run: BTreeSet<_> = SEEDED.iter().map(|one| one.name().to_owned()).collect();
        let patches = patches().unwrap();
        let seeded = patches.into_iter().map(|patch| patch.name);
        assert_eq!(run, seeded.collect());
    }
}
