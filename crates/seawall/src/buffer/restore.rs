//! Restoring torn pages from their copies when a pool is opened.

use super::doublewrite::read_if_there;
use super::pool::Pool;
use super::stats::count;
use crate::error::{Corruption, Result};
use crate::format::page::{self, PageKind};
use crate::format::{Lsn, PageId, TreeId};
use seawall_io::{AlignedBuf, Cause, FileRequest};
use std::collections::BTreeMap;

impl Pool {
    /// Restores from their copies the pages that a crash has torn, and returns them. Called when the pool is opened,
    /// before anything else is read: checks the home of every page that a copy names.
    ///
    /// # Errors
    /// An error of the disk. A torn page without a copy is no error here: a reader of the page gets the error, and if
    /// the log initialises the page anew, no thread reads the torn one.
    pub fn recover_doublewrite(&self) -> Result<Vec<PageId>> {
        let Some(doublewrite) = &self.doublewrite else { return Ok(Vec::new()) };
        let mut copies: BTreeMap<PageId, Vec<u64>> = BTreeMap::new();
        for (number, at) in doublewrite.copies(self.control.current().database)? {
            copies.entry(number).or_default().push(at);
        }
        let torn = self.torn_homes(copies.keys().copied().collect())?;
        let checkpoint = self.checkpoint_lsn();
        let mut restored = Vec::new();
        let mut copy = AlignedBuf::zeroed(self.page_bytes());
        for number in torn {
            let mut newest: Option<(Lsn, AlignedBuf)> = None;
            for &at in &copies[&number] {
                if !read_if_there(&doublewrite.file, at, &mut copy)?
                    || page::verify(&copy, number, doublewrite.file.path()).is_err()
                {
                    continue;
                }
                let lsn = page::lsn(&copy);
                if lsn >= checkpoint && newest.as_ref().is_none_or(|(newest, _)| *newest < lsn) {
                    newest = Some((lsn, AlignedBuf::copy_of(&copy)));
                }
            }
            if let Some((_, bytes)) = newest {
                self.data.write_at(self.offset_of(number), &bytes, Cause::Recovery).map_err(|e| self.failed(e))?;
                restored.push(number);
            }
        }
        if !restored.is_empty() {
            self.flush_data(|data| data.sync(Cause::Recovery))?;
            count(&self.counters.pages_restored, restored.len());
        }
        Ok(restored)
    }

    /// Puts a page that every reader refuses in the place of one that recovery cannot read.
    ///
    /// # Errors
    /// An error of the disk.
    pub fn abandon(&self, number: PageId) -> Result<()> {
        let mut bytes = AlignedBuf::zeroed(self.page_bytes());
        page::init(&mut bytes, number, TreeId::FREE, PageKind::Abandoned, 0);
        page::seal(&mut bytes, number);
        self.data.write_at(self.offset_of(number), &bytes, Cause::Recovery).map_err(|e| self.failed(e))?;
        self.flush_data(|data| data.sync(Cause::Recovery))
    }

    /// Returns the pages whose home fails its check, cannot be read, or is beyond the end of the file.
    fn torn_homes(&self, numbers: Vec<PageId>) -> Result<Vec<PageId>> {
        let (there, mut torn): (Vec<_>, Vec<_>) = numbers.into_iter().partition(|n| n.0 < self.file_pages());
        let read = |number: &PageId| FileRequest {
            write: false,
            offset: self.offset_of(*number),
            bufs: vec![AlignedBuf::zeroed(self.page_bytes()).into()],
            cause: Cause::Recovery,
        };
        // 32 pages at a time: 256 pages of the largest size would take 8 MiB.
        for some in there.chunks(32) {
            let pending = self.data.submit(some.iter().map(read).collect())?;
            // Waits for all reads, even after an error: the order of the results tells which page each is.
            let homes: Vec<_> = pending.into_iter().map(|pending| self.data.wait(pending)).collect();
            for (&number, home) in some.iter().zip(homes) {
                match home {
                    Ok(home) => match page::verify(&home[0], number, self.data.path()) {
                        // Changes of an abandoned page may have been passed by a rollback since.
                        Ok(()) | Err(Corruption::Abandoned { .. }) => {}
                        Err(_) => torn.push(number),
                    },
                    Err(e) if !e.is_unreadable() => return Err(e.into()),
                    Err(_) => torn.push(number),
                }
            }
        }
        torn.sort_unstable();
        Ok(torn)
    }
}
