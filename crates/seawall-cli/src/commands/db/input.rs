//! Standard input with cancellation: a command that waits for a silent pipe must end when it is asked to
//! stop.
//!
//! A separate thread reads, so that the waiting thread can check the stop flag regularly. At the end of the
//! process that thread is abandoned in its read.

use crate::Stop;
use std::collections::VecDeque;
use std::io::{Error, Read, Result};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

/// Bytes of one read.
const CHUNK_BYTES: usize = 64 << 10;
/// Number of chunks read ahead.
const CHUNKS_AHEAD: usize = 4;
/// Interval between checks of the stop flag.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Standard input; reads fail once `stop` is set.
pub(super) struct Input<'s> {
    stop: &'s Stop,
    chunks: Receiver<Result<Vec<u8>>>,
    chunk: VecDeque<u8>,
}

impl<'s> Input<'s> {
    /// Starts reading; only one instance may exist.
    pub(super) fn new(stop: &'s Stop) -> Result<Self> {
        let (sender, chunks) = sync_channel(CHUNKS_AHEAD);
        std::thread::Builder::new().name("stdin".into()).spawn(move || {
            let mut chunk = vec![0; CHUNK_BYTES];
            loop {
                let read = std::io::stdin().lock().read(&mut chunk).map(|bytes| chunk[..bytes].to_vec());
                let is_last = read.as_ref().map_or(true, Vec::is_empty);
                if sender.send(read).is_err() || is_last {
                    return;
                }
            }
        })?;
        Ok(Self { stop, chunks, chunk: VecDeque::new() })
    }
}

impl Read for Input<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        while self.chunk.is_empty() {
            if self.stop.is_set() {
                return Err(Error::other("interrupted"));
            }
            match self.chunks.recv_timeout(LOOK_EVERY) {
                Ok(chunk) => self.chunk = chunk?.into(),
                Err(RecvTimeoutError::Timeout) => {}
                // The thread ends after an empty chunk or an error.
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
            }
        }
        self.chunk.read(buf)
    }
}
