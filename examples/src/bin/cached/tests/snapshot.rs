use super::*;
use crate::cache::Policy;
use std::path::PathBuf;

fn cache() -> Cache {
    Cache::new(None, Policy::S3Fifo, 1 << 30).unwrap()
}

/// A file of this test process, which goes with it.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        Place(std::env::temp_dir().join(format!("cached-{}-{name}", std::process::id())))
    }

    fn save(&self, cache: &Cache) -> u64 {
        save(&self.0, cache).unwrap()
    }

    fn load(&self, cache: &Cache) -> Done<u64> {
        load(&self.0, cache)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn what_was_saved_is_loaded_with_its_deadlines_and_without_what_is_over() {
    let (place, old) = (Place::new("whole"), cache());
    let now = old.now();
    old.insert(b"ever", Stored::new(b"", None)).unwrap();
    old.insert(b"\r\n\0", Stored::new(&[7; 100_000], Some(now + 3_600_000))).unwrap();
    assert_eq!(place.save(&old), 2);
    let new = cache();
    assert_eq!(place.load(&new).unwrap(), 2);
    assert_eq!((new.map.len(), new.map.get(&b"ever"[..]).unwrap().data.len()), (2, 0));
    let stored = new.map.get_cloned(&b"\r\n\0"[..]).unwrap();
    assert_eq!((&*stored.data, stored.deadline), (&[7; 100_000][..], Some(now + 3_600_000)));
    // As a file that was found later: the deadline is over.
    let mut bytes = fs::read(&place.0).unwrap();
    let (later, over) = ((now + 3_600_000).to_string(), (now - 1).to_string());
    let at = bytes.windows(later.len()).position(|bytes| bytes == later.as_bytes()).unwrap();
    bytes[at..at + later.len()].copy_from_slice(over.as_bytes());
    fs::write(&place.0, &bytes).unwrap();
    let late = cache();
    assert_eq!(place.load(&late).unwrap_err().to_string(), "the checksum is wrong");
    assert_eq!(late.map.len(), 1);
    let words = [&b"SET"[..], b"key", b"data", b"PXAT", b"1"];
    let sum = words.iter().fold(NONE, |sum, word| add(sum, word)).to_string();
    let mut requests = Replies::new(usize::MAX);
    requests.bulks(&words).unwrap();
    requests.bulks(&[b"ECHO", sum.as_bytes()]).unwrap();
    fs::write(&place.0, &requests.bytes).unwrap();
    assert_eq!((place.load(&late).unwrap(), late.map.len()), (0, 1));
}

#[test]
fn a_file_is_written_under_a_name_that_no_other_file_shares() {
    let [place, other] = ["it.1", "it.temporary"].map(Place::new);
    other.save(&cache());
    let before = fs::read(&other.0).unwrap();
    let full = cache();
    full.insert(b"key", Stored::new(b"data", None)).unwrap();
    place.save(&full);
    assert_eq!(fs::read(&other.0).unwrap(), before);
}

#[test]
fn there_may_be_no_file_and_a_damaged_one_is_refused() {
    let (place, full) = (Place::new("damaged"), cache());
    assert_eq!(place.load(&cache()).unwrap(), 0);
    for key in *b"\0\r\n" {
        full.insert(&[key], Stored::new(&[key; 3], None)).unwrap();
    }
    place.save(&full);
    let whole = fs::read(&place.0).unwrap();
    for length in 0..whole.len() {
        fs::write(&place.0, &whole[..length]).unwrap();
        assert!(place.load(&cache()).is_err(), "{length}");
    }
    for at in 0..whole.len() {
        let mut other = whole.clone();
        other[at] ^= 0x80;
        fs::write(&place.0, other).unwrap();
        assert!(place.load(&cache()).is_err(), "{at}");
    }
}
