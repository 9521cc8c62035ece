//! A check of all undo logs: links, records, and the pages they reach.

use super::page::{self, State, TailState};
use super::record::{UndoRecord, kind};
use super::store::UndoStore;
use super::{directory, page as undo_page};
use crate::error::{Error, Result};
use crate::format::{PageId, TreeId, UndoPtr};
use crate::space::Check;

/// The state that is carried from page to page of an undo log.
#[derive(Default)]
struct Walk {
    /// The last record so far.
    last: UndoPtr,
    /// Whether a transaction has begun and not ended; unknown before the first record.
    begun: Option<bool>,
    /// Commits that purge has not passed.
    waiting: u64,
    purged: u64,
}

impl UndoStore {
    /// Walks every undo log and reports the findings and the pages it reaches. No transaction may write
    /// meanwhile.
    ///
    /// # Errors
    /// Only errors that end the whole check: damage becomes a finding.
    pub fn check(&self, check: &mut Check) -> Result<()> {
        for number in self.directory_pages() {
            check.reach(number, TreeId::UNDO);
        }
        for undo_log in 0..self.undo_logs() {
            self.check_undo_log(undo_log, check)?;
        }
        Ok(())
    }

    fn check_undo_log(&self, undo_log: u32, check: &mut Check) -> Result<()> {
        let number = self.directory_page(undo_log);
        let ends = self.space.pool().retry(|| {
            let bytes = self.space.pool().shared(number)?;
            directory::verify(&bytes).map_err(|why| undo_page::bad(number, why))?;
            Ok(directory::slot(&bytes, undo_log % directory::slots(bytes.len())))
        });
        let (head, tail) = match ends {
            Ok(ends) => ends,
            Err(error) => return collect(check, number, error),
        };
        let (mut page, mut before, mut walk) = (head, PageId::NONE, Walk::default());
        while page != PageId::NONE && check.reach(page, TreeId::UNDO) {
            let bytes = self.space.pool().retry(|| {
                let bytes = self.space.pool().shared(page)?;
                page::verify(&bytes).map_err(|why| page::bad(page, why))?;
                Ok(bytes.to_vec())
            });
            let bytes = match bytes {
                Ok(bytes) => bytes,
                Err(error) => return collect(check, page, error),
            };
            for what in walk.page(&bytes, undo_log, before, page == head) {
                check.find(page, format!("undo log {undo_log}: {what}"));
            }
            (before, page) = (page, page::next(&bytes));
            if page == PageId::NONE {
                for what in walk.tail(&bytes, before == tail) {
                    check.find(before, format!("undo log {undo_log}: {what}"));
                }
            }
        }
        Ok(())
    }
}

/// Damage is a finding; a stopped database is an error.
fn collect(check: &mut Check, page: PageId, error: Error) -> Result<()> {
    if matches!(error, Error::Poisoned { .. } | Error::ShutDown) {
        return Err(error);
    }
    check.fail(page, &error);
    Ok(())
}

impl Walk {
    /// Checks one page.
    fn page(&mut self, bytes: &[u8], undo_log: u32, before: PageId, is_head: bool) -> Vec<String> {
        let mut found = Vec::new();
        let number = crate::format::page::number(bytes);
        if page::undo_log(bytes) != undo_log || page::prev(bytes) != before {
            found.push(format!("it says undo log {} behind page {}", page::undo_log(bytes), page::prev(bytes)));
        }
        if is_head {
            self.purged = page::purged(bytes);
        } else if usize::from(page::purged_to(bytes)) != page::RECORDS {
            found.push("purge has been in a page that is not the first".into());
        }
        let mut at = page::RECORDS as u16;
        while at < page::end(bytes) {
            let raw = match page::record_at(bytes, at) {
                Ok(raw) => raw,
                Err(why) => {
                    found.push(format!("at {at}: {why}"));
                    break;
                }
            };
            if let Err(why) = UndoRecord::decode(raw.kind, raw.body) {
                found.push(format!("at {at}: {why}"));
            }
            let begins = raw.kind == kind::BEGIN;
            if self.begun == Some(begins) {
                found.push(format!("at {at}: a transaction begins in another, or outside of any"));
            }
            // The record before the very first one may be purged.
            let expected = if begins { UndoPtr::NONE } else { self.last };
            if raw.prev != expected && (begins || self.begun.is_some()) {
                found.push(format!("at {at}: it follows {expected:?} and says {:?}", raw.prev));
            }
            self.begun = Some(raw.kind != kind::COMMIT);
            let purged = is_head && at < page::purged_to(bytes);
            self.waiting += u64::from(raw.kind == kind::COMMIT && !purged);
            self.last = UndoPtr::new(number, at);
            at = raw.next;
        }
        found
    }

    /// Checks the transaction's state in the last page.
    fn tail(&self, bytes: &[u8], is_tail: bool) -> Vec<String> {
        let mut found = Vec::new();
        if !is_tail {
            found.push("the directory names another last page".into());
        }
        match TailState::of(bytes) {
            Err(why) => found.push(why.to_string()),
            Ok(state) => {
                let idle = state.state == State::Idle;
                if idle == self.begun.unwrap_or(false) || (!idle && state.last != self.last) {
                    found.push(format!("it says {state:?}, but its last record is {:?}", self.last));
                }
                if state.commits != self.purged + self.waiting {
                    let (purged, waiting) = (self.purged, self.waiting);
                    found
                        .push(format!("{} commits, {purged} of them purged, but {waiting} are waiting", state.commits));
                }
            }
        }
        found
    }
}
