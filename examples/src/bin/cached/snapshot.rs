//! All entries in a file, with their deadlines.
//!
//! A head; for each entry a mark, its deadline or -1, the lengths of its key and data, and both; a
//! last mark, and a checksum of all before it. Numbers are little-endian.

use crate::cache::{Cache, Stored, WriteError};
use crate::protocol::MAX_BULK;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

const HEAD: &[u8; 16] = b"expiry-cached 1\n";

pub struct Snapshot {
    path: PathBuf,
    /// Held by the thread that writes the file.
    writes: Mutex<()>,
}

/// A file, and the checksum (FNV-1a) of what has gone through.
struct Summed<F> {
    file: F,
    sum: u64,
}

impl<F> Summed<F> {
    fn new(file: F) -> Self {
        Summed { file, sum: 0xcbf2_9ce4_8422_2325 }
    }

    fn add(&mut self, bytes: &[u8]) {
        let add = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        self.sum = bytes.iter().fold(self.sum, add);
    }
}

impl<F: Write> Summed<F> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.add(bytes);
        self.file.write_all(bytes)
    }
}

impl<F: Read> Summed<F> {
    fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes)?;
        self.add(&bytes);
        Ok(bytes)
    }

    /// So many bytes. A wrong length takes no more memory than the file has bytes.
    fn bytes(&mut self, length: u32) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        (&mut self.file).take(length.into()).read_to_end(&mut bytes)?;
        self.add(&bytes);
        match bytes.len() == length as usize {
            true => Ok(bytes),
            false => Err(ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

impl Snapshot {
    pub fn new(path: PathBuf) -> Self {
        Snapshot { path, writes: Mutex::new(()) }
    }

    /// Writes a new file, which then takes the old one's place; a crash leaves one of the two. Each
    /// entry is as it was at some moment of this call. Returns the number of entries.
    pub fn save(&self, cache: &Cache) -> io::Result<u64> {
        let _alone = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        let temporary = self.path.with_extension("temporary");
        let mut file = Summed::new(BufWriter::new(File::create(&temporary)?));
        file.put(HEAD)?;
        let (mut saved, mut record) = (0, Vec::new());
        for entry in &cache.map {
            let (key, data) = (entry.key(), &entry.data);
            record.clear();
            record.push(1);
            record.extend(entry.deadline.unwrap_or(-1).to_le_bytes());
            // Neither is as long as `MAX_BULK`.
            record.extend((key.len() as u32).to_le_bytes());
            record.extend((data.len() as u32).to_le_bytes());
            record.extend_from_slice(key);
            record.extend_from_slice(data);
            // No entry is kept from being freed while the disk takes its time.
            drop(entry);
            file.put(&record)?;
            saved += 1;
        }
        file.put(&[0])?;
        let sum = file.sum.to_le_bytes();
        file.put(&sum)?;
        file.file.into_inner()?.sync_all()?;
        fs::rename(&temporary, &self.path)?;
        Ok(saved)
    }

    /// Puts the entries of the file in, but for those whose deadline has passed. Returns their
    /// number; 0 where there is no file. If the file is damaged, entries before that are in.
    pub fn load(&self, cache: &Cache) -> io::Result<u64> {
        let mut file = match File::open(&self.path) {
            Ok(file) => Summed::new(BufReader::new(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(error),
        };
        if file.array()? != *HEAD {
            return Err(damaged("this is no snapshot"));
        }
        let mut loaded = 0;
        while file.array()? != [0] {
            let deadline = i64::from_le_bytes(file.array()?);
            let lengths = [u32::from_le_bytes(file.array()?), u32::from_le_bytes(file.array()?)];
            if lengths.iter().any(|&length| length as usize >= MAX_BULK) {
                return Err(damaged("an entry is too long"));
            }
            let (key, data) = (file.bytes(lengths[0])?, file.bytes(lengths[1])?);
            let stored = Stored::new(&data, Some(deadline).filter(|&deadline| deadline >= 0));
            match cache.insert(&key, stored) {
                Ok(()) => loaded += 1,
                // As many as the memory holds.
                Err(WriteError::Memory) => {}
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        let sum = file.sum;
        if file.array()? != sum.to_le_bytes() {
            return Err(damaged("the checksum is wrong"));
        }
        Ok(loaded)
    }
}

#[cfg(test)]
#[path = "tests/snapshot.rs"]
mod tests;
