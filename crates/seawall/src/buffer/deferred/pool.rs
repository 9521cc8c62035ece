//! Evicting dirty pages while their records stay in memory, and bringing them back.

use super::Change;
use super::lists::{List, records};
use super::share::{Ends, Sizes};
use crate::buffer::frame::WHOLE;
use crate::buffer::guard::Owned;
use crate::buffer::pool::Pool;
use crate::buffer::stats::count;
use crate::error::{Corruption, Result};
use crate::format::{PageId, page};
use crate::log::Records;
use crate::mutants::Mutant;
use std::sync::atomic::{AtomicU64, Ordering};

impl Pool {
    /// Adapts the share of deferred changes (`share.rs`).
    pub(in crate::buffer) fn adapt_deferred(&self) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ends = Ends {
            evicted: read(&self.counters.evictions),
            read_again: read(&self.counters.deferred_read_again),
            merged: read(&self.counters.pages_merged).saturating_sub(self.deferred.forced.load(Ordering::Relaxed)),
        };
        let [_, list_bytes, list_bytes_max] = self.deferred.sizes();
        let sizes = Sizes {
            frames: self.frames.limit().into(),
            page_bytes: self.page_bytes() as u64,
            list_bytes,
            list_bytes_max,
            writes: 1 + u64::from(self.protects()),
            may_grow: self.frames.span() == self.frames.limit(),
        };
        if self.deferred.share.adapt(ends, sizes) {
            self.deferred.set_unfit();
        }
    }

    /// Adds a change to the page's list, under the page's exclusive latch and after the page was marked.
    #[inline]
    pub(in crate::buffer) fn list_change(&self, frame: u32, page: PageId, change: Change<'_>) {
        let known = self.frames.get(frame);
        if !change.first && known.flags.load(Ordering::Relaxed) & WHOLE != 0 {
            return;
        }
        let records = change.records.filter(|_| self.deferred.is_on());
        if !records.is_some_and(|records| self.list(frame, page, change, records)) {
            self.deferred.forget(self.frames.dirt(frame));
            known.flags.fetch_or(WHOLE, Ordering::Relaxed);
        }
        if change.records.is_none() && self.deferred.pages.load(Ordering::Acquire) > 0 {
            // The page was made anew, so its older records are obsolete. But the log from the first of them on is
            // needed until the page is written home: the change that made it anew may not be durable when the older
            // changes are.
            let mut away = self.deferred.away.lock();
            if let Some(list) = away.take(page) {
                let since = self.deferred.lists.head(&list).since;
                away.arrived(page, since);
                self.frames.dirt(frame).rec_lsn.store(since, Ordering::Release);
                self.push_dirty(frame);
                self.cleaned.fetch_add(1, Ordering::Release);
                self.deferred.pages.fetch_sub(1, Ordering::Release);
                self.deferred.lists.free(list);
            }
        }
    }

    /// Appends a change to the frame's list. Returns `false` if the list would be too long or there is no memory; then
    /// the frame has no list.
    fn list(&self, frame: u32, page: PageId, change: Change<'_>, changed: &[u8]) -> bool {
        let (deferred, dirt) = (&self.deferred, self.frames.dirt(frame));
        let lists = &deferred.lists;
        if lists.bytes() >= deferred.bytes_max.load(Ordering::Relaxed) {
            return false;
        }
        let Change { start, end, before, first, .. } = change;
        let list = if first { lists.begin(start.0, before) } else { List::of(dirt.list.swap(0, Ordering::AcqRel)) };
        let Some(mut list) = list else { return false };
        let most = deferred.longest();
        let complete = Records::new(changed).all(|record| {
            record.is_ok_and(|record| record.page != page || lists.push(&mut list, record.tag, record.body, most))
        });
        if complete {
            lists.set_end(&mut list, end);
            dirt.list.store(list.number(), Ordering::Release);
        } else {
            lists.free(list);
        }
        // The number of frames with a list changes only when a list begins or ends.
        if complete && first {
            deferred.frames.fetch_add(1, Ordering::Relaxed);
        } else if !complete && !first {
            deferred.frames.fetch_sub(1, Ordering::Relaxed);
        }
        complete
    }

    /// Returns whether the dirty page in `frame` can be evicted now, keeping its list.
    pub(in crate::buffer) fn may_leave(&self, frame: u32) -> bool {
        self.deferred.is_on()
            && self.frames.dirt(frame).rec_lsn.load(Ordering::Acquire) != 0
            && self.frames.get(frame).flags.load(Ordering::Relaxed) & WHOLE == 0
            && self.frames.dirt(frame).list.load(Ordering::Acquire) != 0
    }

    /// Returns at most `most` frames with a list.
    pub(in crate::buffer) fn some_listed(&self, most: usize) -> Vec<u32> {
        let listed = |frame: &u32| self.frames.dirt(*frame).list.load(Ordering::Acquire) != 0;
        (0..self.frames.span()).filter(listed).take(most).collect()
    }

    /// Evicts an unused dirty page and keeps its records. The caller then owns the frame. Does no I/O.
    pub(in crate::buffer) fn send_away(&self, frame: u32) -> Option<Owned<'_>> {
        if !self.may_leave(frame) {
            return None;
        }
        let (known, dirt) = (self.frames.get(frame), self.frames.dirt(frame));
        let ready = || {
            dirt.rec_lsn.load(Ordering::Acquire) != 0
                && dirt.writing.load(Ordering::Acquire) == 0
                && known.flags.load(Ordering::Relaxed) & WHOLE == 0
        };
        let owned = self.claim_dirty(frame, ready, |page| {
            let Some(list) = self.deferred.take_listed(dirt) else { return false };
            let since = dirt.rec_lsn.load(Ordering::Acquire);
            debug_assert_eq!(self.deferred.lists.head(&list).since, since, "the list is complete (1)");
            let mut away = self.deferred.away.lock();
            away.send(page, since, list);
            self.deferred.pages.fetch_add(1, Ordering::Release);
            dirt.rec_lsn.store(0, Ordering::Release);
            true
        })?;
        self.cleaned.fetch_add(1, Ordering::Release);
        count(&self.counters.pages_deferred, 1);
        Some(owned)
    }

    /// Takes the list of a page that this thread loads (2); `None` if the page is not away.
    fn take_list(&self, page: PageId) -> Option<Taken<'_>> {
        if self.deferred.pages.load(Ordering::Acquire) == 0 {
            return None;
        }
        let list = self.deferred.away.lock().take(page)?;
        Some(Taken { pool: self, page, list: Some(list) })
    }

    /// Applies a page's list to its bytes as read from the disk.
    fn apply(&self, page: PageId, list: &List, bytes: &mut [u8]) -> Result<()> {
        let (found, head) = (page::lsn(bytes), self.deferred.lists.head(list));
        if found == head.end && self.health().check().is_err() {
            // The page was written home before a later step of its merge failed.
            return Ok(());
        }
        if found != head.base {
            let why = format!(
                "it was last written at LSN {}, and what was read now has LSN {found}: the device has lost that write, or \
                 another process writes the file",
                head.base
            );
            return Err(Corruption::Page { page, why }.into());
        }
        let has = |mutant| self.health().has(mutant);
        let read = self.deferred.lists.read(list);
        let mut records: Vec<(u8, &[u8])> = records(&read).collect();
        if has(Mutant::DeferredCutOff) {
            records.truncate(1);
        }
        if has(Mutant::DeferredTwice) {
            records.extend_from_within(..);
        }
        if has(Mutant::DeferredBackward) {
            records.reverse();
        }
        for (tag, body) in records {
            (self.config.redo)(tag, body, bytes).map_err(|why| Corruption::Page {
                page,
                why: format!("a deferred change {tag:#04x} does not fit it: {why}"),
            })?;
        }
        page::set_u64(bytes, page::LSN, head.end.0);
        Ok(())
    }

    /// Applies the deferred changes to a page that this thread has read into its own frame and checked. The page stays
    /// dirty, with its list.
    pub(in crate::buffer) fn bring_back(&self, owned: &mut Owned<'_>, page: PageId) -> Result<()> {
        let Some(mut taken) = self.take_list(page) else { return Ok(()) };
        taken.apply(owned.bytes_mut())?;
        let (frame, lists) = (owned.frame(), &self.deferred.lists);
        let Some(mut list) = taken.list.take() else { return Ok(()) };
        let (since, spared) = (lists.head(&list).since, lists.brought_back(&mut list));
        self.deferred.put_listed(self.frames.dirt(frame), list);
        let mut away = self.deferred.away.lock();
        if self.frames.dirt(frame).mark(since) {
            self.push_dirty(frame);
        }
        away.arrived(page, since);
        self.deferred.pages.fetch_sub(1, Ordering::Release);
        drop(away);
        count(&self.counters.deferred_read_again, usize::from(spared));
        Ok(())
    }

    /// Applies the deferred changes of a page that is away to a copy, for a write home. Returns whether the page is
    /// away. Its list stays until [`Pool::merged`].
    pub(in crate::buffer) fn merge_into(&self, page: PageId, bytes: &mut [u8]) -> Result<bool> {
        let Some(taken) = self.take_list(page) else { return Ok(false) };
        taken.apply(bytes).map(|()| true)
    }

    /// Removes the list of a page that this thread has merged and written home.
    pub(in crate::buffer) fn merged(&self, page: PageId) {
        let mut away = self.deferred.away.lock();
        let Some(list) = away.take(page) else { return };
        let head = self.deferred.lists.head(&list);
        away.arrived(page, head.since);
        drop(away);
        self.deferred.pages.fetch_sub(1, Ordering::Release);
        self.deferred.lists.free(list);
        count(&self.counters.pages_merged, 1);
        count(&self.counters.merged_records, head.records.into());
    }
}

/// The list of a page that this thread loads. If this is dropped while it has the list, the page is away as before.
struct Taken<'p> {
    pool: &'p Pool,
    page: PageId,
    list: Option<List>,
}

impl Taken<'_> {
    fn apply(&self, bytes: &mut [u8]) -> Result<()> {
        self.list.as_ref().map_or(Ok(()), |list| self.pool.apply(self.page, list, bytes))
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(list) = self.list.take() {
            self.pool.deferred.away.lock().put_back(self.page, list);
        }
    }
}
