//! Maps with keys that are hashes, or numbers given out in sequence.
//!
//! 1. Only `u64` keys. One multiplication spreads them, so that keys that are not hashes also work.

use std::hash::Hasher;

/// Spreads a `u64`.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct ByHash(u64);

impl Hasher for ByHash {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(self.0 ^ u64::from(byte));
        }
    }

    fn write_u64(&mut self, key: u64) {
        // The map uses the highest and the lowest bits.
        let spread = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = spread ^ (spread >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
