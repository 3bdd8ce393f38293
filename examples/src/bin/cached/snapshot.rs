//! All entries in a file, as the requests that set them: `SET key data PXAT deadline`. The last
//! request, an `ECHO`, has a checksum of all words before it.

use crate::cache::{given, Cache, Stored, FULL, PASSED};
use crate::connections::BATCH;
use crate::protocol::{integer, Replies, Requests};
use expiry_examples::{beside, Done};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The checksum (FNV-1a) of no words.
const NONE: u64 = 0xcbf2_9ce4_8422_2325;

fn add(sum: u64, word: &[u8]) -> u64 {
    let add = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    word.iter().fold(sum, add)
}

/// Writes a new file, which then takes the old one's place; a crash leaves one of the two. Each
/// entry is as it was at some moment of this call. Returns the number of entries.
pub fn save(path: &Path, cache: &Cache) -> Done<u64> {
    /// Held by the thread that writes the file.
    static WRITES: Mutex<()> = Mutex::new(());
    let _alone = WRITES.lock().unwrap_or_else(PoisonError::into_inner);
    let temporary = beside(path, ".temporary");
    let mut file = File::create(&temporary)?;
    let (mut requests, mut sum, mut saved) = (Replies::new(usize::MAX), NONE, 0);
    for entry in cache.map.save() {
        let deadline = entry.value.deadline.map(|deadline| deadline.to_string());
        let mut words = vec![&b"SET"[..], &entry.key, &entry.value.data];
        if let Some(deadline) = &deadline {
            words.extend([&b"PXAT"[..], deadline.as_bytes()]);
        }
        sum = words.iter().fold(sum, |sum, word| add(sum, word));
        requests.bulks(&words)?;
        if requests.bytes.len() > BATCH {
            file.write_all(&requests.bytes)?;
            requests.bytes.clear();
        }
        saved += 1;
    }
    requests.bulks(&[b"ECHO", sum.to_string().as_bytes()])?;
    file.write_all(&requests.bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    Ok(saved)
}

/// Puts the entries of the file in, but for those whose deadline has passed. Returns their number;
/// 0 where there is no file. If the file is damaged, entries before that are in.
pub fn load(path: &Path, cache: &Cache) -> Done<u64> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        file => file?,
    };
    let (mut requests, mut sum, mut loaded) = (Requests::default(), NONE, 0);
    loop {
        while let Some(request) = requests.next()? {
            let deadline = match (request.word(0), request.len()) {
                (b"SET", 3) => None,
                (b"SET", 5) => integer(request.word(4)).map(|time| given(time, cache.now())),
                (b"ECHO", 2) if request.word(1) == sum.to_string().as_bytes() => return Ok(loaded),
                (b"ECHO", 2) => return Err("the checksum is wrong".into()),
                _ => return Err("this is no snapshot".into()),
            };
            sum = request.from(0).fold(sum, add);
            match cache.insert(request.word(1), Stored::new(request.word(2), deadline)) {
                Ok(()) => loaded += u64::from(deadline != Some(PASSED)),
                // As many as the memory holds.
                Err(error) if error.to_string() == FULL => {}
                Err(error) => return Err(error),
            }
        }
        if (&file).take(BATCH as u64).read_to_end(requests.room())? == 0 {
            return Err("the file ends too soon".into());
        }
    }
}

#[cfg(test)]
#[path = "tests/snapshot.rs"]
mod tests;
