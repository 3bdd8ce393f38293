//! Keys and ids that are chosen to collide.

use super::{Field, Figure};
use expiry::{AckError, AckTracker, ExpiringMap, ManualClock};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use std::hash::{BuildHasher, Hash, Hasher};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// Bits of its hash that an attacker makes the same for all keys.
const AIMED: u32 = 8;

/// A hasher that a user may think good enough: an integer is its own hash.
#[derive(Debug, Clone, Default)]
struct Weak;

#[derive(Debug, Default)]
struct Itself(u64);

impl BuildHasher for Weak {
    type Hasher = Itself;

    fn build_hasher(&self) -> Itself {
        Itself::default()
    }
}

impl Hasher for Itself {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn write_u64(&mut self, bits: u64) {
        self.0 = bits;
    }
}

/// A key that goes through the hasher: an integer would not.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key(u64);

/// Inserts, gets twice, and removes all keys of a map, and lets the driver maintain it.
fn use_map<K, S>(field: &Field<'_>, hasher: S, keys: &[K]) -> Figure
where
    K: Hash + Eq + Clone + std::fmt::Debug + Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    let clock = ManualClock::new();
    let map = ExpiringMap::builder()
        .time_to_live(3600 * SECOND)
        .interval(SECOND)
        .shards(4)
        .clock(clock.clone())
        .hasher(hasher)
        .build_manual();
    // Settings that a builder accepts.
    let map = map.expect("a map is built");
    let figures = Figure::of(|| {
        for (at, key) in keys.iter().enumerate() {
            let inserted = map.insert(key.clone(), at);
            field.expect(matches!(inserted, Ok(None)), || {
                format!("key {at} of {} was refused: {inserted:?}", keys.len())
            });
            if at % 1024 == 0 {
                map.poll(4096);
            }
        }
        while map.poll(4096).more {}
        for _ in 0..2 {
            for (at, key) in keys.iter().enumerate() {
                let found = map.get(key).map(|value| *value);
                field.expect(found == Some(at), || format!("key {at} has {found:?}"));
            }
        }
        for (at, key) in keys.iter().enumerate() {
            let removed = map.remove(key).map(|ended| *ended);
            field.expect(removed == Some(at), || format!("key {at} had {removed:?}"));
        }
        4 * keys.len() as u64
    });
    field.expect(map.is_empty(), || format!("{} entries are left", map.len()));
    figures
}

fn random(field: &Field<'_>) -> Vec<u64> {
    let mut rng = SmallRng::seed_from_u64(field.seed());
    (0..field.size()).map(|_| rng.next_u64()).collect()
}

/// A user's weak hasher: half of the runs have keys whose low bits are all the same, half have
/// equal high bits.
pub fn weak_hasher(field: &Field<'_>, hostile: bool) -> Figure {
    let keys: Vec<Key> = if hostile {
        let shift = if field.run & 1 == 0 { 40 } else { 0 };
        (0..field.size()).map(|n| Key(n << shift)).collect()
    } else {
        random(field).into_iter().map(Key).collect()
    };
    use_map(field, Weak, &keys)
}

/// Integers, which only the index's own hasher hashes.
pub fn integer_keys(field: &Field<'_>, hostile: bool) -> Figure {
    let keys: Vec<u64> =
        if hostile { (0..field.size()).map(|n| n << 40).collect() } else { random(field) };
    use_map(field, foldhash::fast::RandomState::default(), &keys)
}

/// Strings that collide under an attacker's own hasher of the same kind, and the map's default one.
pub fn aimed_keys(field: &Field<'_>, hostile: bool) -> Figure {
    let own = foldhash::fast::FixedState::with_seed(field.seed());
    let mut rng = SmallRng::seed_from_u64(field.seed());
    let mut keys = Vec::new();
    while (keys.len() as u64) < field.size() {
        let key = format!("user-{:016x}", rng.next_u64());
        if !hostile || own.hash_one(&key) & ((1 << AIMED) - 1) == 0 {
            keys.push(key);
        }
    }
    use_map(field, foldhash::fast::RandomState::default(), &keys)
}

/// The hash of an id in the index of a tracker with this seed, as an attacker who has read the
/// source computes it.
#[allow(clippy::cast_possible_truncation)] // halves
fn index_hash(seed: u64) -> impl Fn(u64) -> u64 {
    let secret = SmallRng::seed_from_u64(seed).next_u64();
    let factor = (secret.rotate_left(32) ^ 0x9E37_79B9_7F4A_7C15) | 1;
    move |id| {
        let product = u128::from(id ^ secret) * u128::from(factor);
        let folded = product as u64 ^ (product >> 64) as u64;
        folded.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
    }
}

/// So many ids that have the same low bits in the index of a tracker with this seed.
fn aimed(field: &Field<'_>, seed: u64, many: u64) -> Vec<u64> {
    let hash = index_hash(seed);
    let mut rng = SmallRng::seed_from_u64(field.seed());
    let mut ids = Vec::new();
    while (ids.len() as u64) < many {
        let id = rng.random();
        if hash(id) & ((1 << AIMED) - 1) == 0 {
            ids.push(id);
        }
    }
    ids
}

/// Uses a tracker, whose `seed` the attacker knows if it is given: then roots may be refused as too
/// many of one index bucket. Also how many were.
fn use_tracker(field: &Field<'_>, seed: Option<u64>, ids: &[u64]) -> (Figure, usize) {
    let clock = ManualClock::new();
    let mut builder = AckTracker::builder().timeout(3600 * SECOND).shards(4).clock(clock.clone());
    if let Some(seed) = seed {
        builder = builder.seed(seed);
    }
    // Settings that a builder accepts.
    let tracker = builder.build_manual().expect("a tracker is built");
    let mut begun = Vec::new();
    let figures = Figure::of(|| {
        for (at, &id) in ids.iter().enumerate() {
            match tracker.init(id, 7, at as u64) {
                Ok(()) => begun.push(id),
                Err(AckError::Collisions) if seed.is_some() => {}
                done => field.expect(false, || format!("root {at} was refused: {done:?}")),
            }
            if at % 1024 == 0 {
                tracker.poll(4096);
            }
        }
        while tracker.poll(4096).more {}
        for (at, &id) in begun.iter().enumerate() {
            let done = tracker.ack(id, 3);
            field.expect(done == Ok(expiry::Ack::Pending), || {
                format!("the first ack of root {at}: {done:?}")
            });
        }
        for (at, &id) in begun.iter().enumerate() {
            let done = tracker.ack(id, 4);
            field.expect(done == Ok(expiry::Ack::Completed), || {
                format!("the last ack of root {at}: {done:?}")
            });
        }
        3 * ids.len() as u64
    });
    field.expect(tracker.is_empty(), || format!("{} roots are left", tracker.len()));
    (figures, ids.len() - begun.len())
}

/// Chosen roots that are aimed at a tracker whose secret is another one.
pub fn aimed_roots(field: &Field<'_>, hostile: bool) -> Figure {
    let ids = if hostile { aimed(field, field.seed(), field.size()) } else { random(field) };
    use_tracker(field, None, &ids).0
}

/// The same with a known secret: the keys do collide. As a control, most are refused then, and
/// others are not.
pub fn roots_hit(field: &Field<'_>) -> Figure {
    // Fewer would find room in the table that there is to begin with.
    let few = (field.size() / 16).max(2_000);
    let mut ids = aimed(field, field.seed(), few);
    let (figures, hit) = use_tracker(field, Some(field.seed()), &ids);
    ids.iter_mut().for_each(|id| *id = id.rotate_left(1) ^ 0x5555);
    let (_, missed) = use_tracker(field, Some(field.seed()), &ids);
    field.expect(hit > 0 && missed == 0, || {
        format!(
            "aimed with the secret, {hit} of {few} roots were refused, and {missed} others: the aim is not true, and proves nothing"
        )
    });
    figures
}
