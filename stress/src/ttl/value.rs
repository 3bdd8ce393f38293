//! Values of a cache.

/// A value: which one it is, when it was made and for how long, and as many bytes as it is long.
#[derive(Debug)]
pub struct Value {
    /// Its number: no two values of a run have the same.
    pub number: u64,
    /// A reading of the map's clock from before it was inserted.
    pub made: u64,
    pub ttl: u64,
    bytes: Box<[u8]>,
}

impl Value {
    pub fn new(number: u64, made: u64, ttl: u64, length: usize) -> Self {
        Value { number, made, ttl, bytes: vec![fill(number); length].into() }
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The earliest that its time may be up.
    pub fn due(&self) -> u64 {
        self.made.saturating_add(self.ttl)
    }

    /// Whether its bytes are its own, at both ends and in the middle.
    pub fn is_intact(&self) -> bool {
        let places = [0, self.len() / 2, self.len().saturating_sub(1)];
        places.iter().all(|&at| self.bytes.get(at).is_none_or(|&byte| byte == fill(self.number)))
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // A thread that reads it after this sees that it is not intact.
        for at in [0, self.len() / 2, self.len().saturating_sub(1)] {
            if let Some(byte) = self.bytes.get_mut(at) {
                *byte = !fill(self.number);
            }
        }
    }
}

fn fill(number: u64) -> u8 {
    (number ^ number >> 8 ^ number >> 40) as u8
}
