//! Standard input with cancellation: a command that waits for a silent pipe must end when it is asked to
//! stop.

use crate::Stop;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{Error, Read, Result};

/// Interval between checks of the stop flag.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Standard input, unbuffered; reads fail once `stop` is set.
pub(super) struct Input<'s> {
    pub(super) stop: &'s Stop,
}

impl Read for Input<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        let stdin = std::io::stdin();
        loop {
            if self.stop.is_set() {
                return Err(Error::other("interrupted"));
            }
            match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&LOOK_EVERY)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(rustix::io::read(&stdin, buf)?),
                Err(e) => return Err(e.into()),
            }
        }
    }
}
