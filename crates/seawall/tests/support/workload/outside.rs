//! Work with an outside log and with backups, like that of a server that decides its transactions in its own log and
//! copies its database.
//!
//! 1. The outside log belongs to the rig and loses nothing: [`Rig::decided`]. A transaction is added only
//!    when its preparation is durable. From then on it is there after every crash, prepared or committed, and
//!    the next opening commits it if it is prepared.
//! 2. An ordered commit promises nothing by itself. A later flush, or a report that it is durable, is a
//!    promise.
//! 3. The process can die between any two steps, and in every operation of the disk.
//! 4. A backup contains everything committed and prepared when its end was requested, whatever happens
//!    afterwards; so does a database restored from it.
//! 5. If a backup fails, as on a disk that fills up, the database continues, and nothing can be restored. If
//!    only its end failed, the backup may be complete.

use super::*;
use crate::api::{Env, Options, Transaction};
use crate::support::model::State;
use seawall_io::Disk as _;
use std::sync::Arc;

/// A transaction that was prepared and is still open.
pub(crate) struct InPlace {
    xid: Vec<u8>,
    number: u64,
    tx: Transaction,
    options: TxOptions,
    /// The end of its preparation in the engine's log, and in the model's.
    position: u64,
    seq: Seq,
}

impl InPlace {
    pub(super) fn xid(&self) -> &[u8] {
        &self.xid
    }
}

/// A finished backup.
pub(crate) struct Copied {
    /// The full backup, and the increments up to this one.
    chain: Vec<String>,
    holds: State,
    /// How often it was restored.
    restored: u64,
}

const ENOENT: i32 = 2;
/// Backups of one seed.
const COPIES_MAX: u64 = 2;

impl Rig {
    pub(super) fn outside(&mut self, live: &mut Live) -> Step {
        let open = live.txs.len();
        let room = self.model.prepared.len() < PREPARED_MAX;
        if open > 0 && room && (live.in_place.is_empty() || self.dice.percent(30)) {
            let at = self.dice.index(open);
            return self.prepare_in_place(live, at);
        }
        if self.dice.percent(15) {
            return if self.dice.percent(50) { self.flush_log(live) } else { self.ask_to_be_told(live) };
        }
        if live.in_place.is_empty() {
            return Ok(());
        }
        let at = self.dice.index(live.in_place.len());
        if self.decided.contains(&live.in_place[at].xid) {
            return match self.dice.below(10) {
                0 => self.let_go(live, at),
                1 => self.end_in_place(live, at, true),
                _ => self.commit_ordered(live, at),
            };
        }
        match self.dice.below(10) {
            0..=6 => self.decide(live, at),
            7 => self.end_in_place(live, at, false),
            8 => self.let_go(live, at),
            // The outside log does not have it, so it may be lost whenever its preparation may be.
            _ => self.commit_ordered(live, at),
        }
    }

    /// Collects the reports of callbacks.
    pub(crate) fn hear(&mut self, live: &Live) {
        let told = std::mem::take(&mut *live.told.lock().expect("no panic under the lock"));
        self.tally.told += told.len() as u64;
        told.into_iter().for_each(|seq| self.model.durable(seq));
    }

    fn may_die(&mut self, live: &Live, percent: u64) -> Step {
        if self.dice.percent(percent) {
            self.say(|| "dies".into());
            live.process.dies_now();
            return Err(Stop::Dead);
        }
        self.alive(live)
    }

    fn prepare_in_place(&mut self, live: &mut Live, at: usize) -> Step {
        if live.txs[at].own.is_empty() {
            return Ok(());
        }
        self.stamps += 1;
        let xid = value(self.stamps, 8).to_vec();
        let level =
            self.dice.weighted(&[(3, Durability::Flushed), (1, Durability::Written), (2, Durability::Deferred)]);
        let asked = self.sim.now();
        let mut open = live.txs.swap_remove(at);
        self.say(|| format!("T{} prepare in place as {}, {level:?}", open.number, show(&xid)));
        let mut tx = open.tx.take().expect("it is open");
        let answer = crate::api::prepare_in_place(&mut tx, &Xid(xid.clone()), level);
        let (position, answer) = match answer {
            Ok(position) => (position, Ok(())),
            Err(error) => (0, Err(error)),
        };
        if !self.file(live, Event::Prepare(xid.clone(), open.own.clone()), level, asked, answer)? {
            // It is unchanged.
            open.tx = Some(tx);
            live.txs.push(open);
            return Ok(());
        }
        self.tally.in_place += 1;
        let (number, options, seq) = (open.number, open.options, self.model.seq());
        live.in_place.push(InPlace { xid, number, tx, options, position, seq });
        self.may_die(live, 3)
    }

    /// Adds it to the outside log.
    fn decide(&mut self, live: &Live, at: usize) -> Step {
        let InPlace { ref xid, position, seq, number, .. } = live.in_place[at];
        if self.model.log[seq - 1].promise != Promise::Flushed {
            self.say(|| format!("T{number} flushed up to its preparation"));
            let flushed = crate::api::flush_log_to(&live.db, position);
            if flushed.is_err() {
                return self.explained(live, flushed.err(), May::default());
            }
            self.model.durable(seq);
            self.may_die(live, 3)?;
        }
        self.say(|| format!("T{number} is in the outside log"));
        self.decided.insert(xid.clone());
        self.may_die(live, 3)
    }

    fn commit_ordered(&mut self, live: &mut Live, at: usize) -> Step {
        let InPlace { xid, number, mut tx, options, .. } = live.in_place.swap_remove(at);
        self.say(|| format!("T{number} commit in order of {}", show(&xid)));
        let (asked, operations) = (self.sim.now(), self.sim.trace().len());
        let known: Vec<Changes> = self.model.prepared.values().cloned().collect();
        let answer = crate::api::commit_ordered(&mut tx, &Xid(xid.clone()));
        if crate::api::ORDERED_WITHOUT_IO && self.sim.trace().len() != operations {
            return fail("a commit in order has asked the disk for something");
        }
        if let Err(error) = answer {
            if !crate::api::ORDERED_WITHOUT_IO {
                let now = self.sim.now();
                self.model.push(Event::CommitPrepared(xid), Promise::Nothing, asked, now);
            }
            // Otherwise it stays prepared.
            return self.explained(live, Some(error), May::default());
        }
        self.tally.ordered += 1;
        let now = self.sim.now();
        self.model.push(Event::CommitPrepared(xid), Promise::Nothing, asked, now);
        self.note_head(live);
        self.alive(live)?;
        self.open_missing(live, &known)?;
        // The object is now a new transaction.
        self.begun_anew(live, tx, options);
        self.may_die(live, 5)?;
        if self.dice.percent(30) { self.flush_log(live) } else { Ok(()) }
    }

    /// Ends it like any other transaction.
    fn end_in_place(&mut self, live: &mut Live, at: usize, commit: bool) -> Step {
        let InPlace { xid, number, tx, .. } = live.in_place.swap_remove(at);
        let level = if commit { Durability::Flushed } else { Durability::Deferred };
        self.say(|| format!("T{number}, prepared, {}", if commit { "commit" } else { "rollback" }));
        let asked = self.sim.now();
        let answer = crate::api::end_in_place(tx, &Xid(xid.clone()), commit);
        let event = if commit { Event::CommitPrepared(xid) } else { Event::RollbackPrepared(xid) };
        let known: Vec<Changes> = self.model.prepared.values().cloned().collect();
        if self.file(live, event.clone(), level, asked, answer)? {
            return self.open_missing(live, &known);
        }
        // It failed for lack of space: the next opening shows the outcome.
        let now = self.sim.now();
        self.model.push(event, Promise::Nothing, asked, now);
        Err(Stop::Poisoned)
    }

    /// A connection closes: its prepared transaction stays prepared.
    fn let_go(&mut self, live: &mut Live, at: usize) -> Step {
        let InPlace { xid, number, tx, .. } = live.in_place.swap_remove(at);
        drop(tx);
        self.say(|| format!("T{number} goes, and {} stays prepared", show(&xid)));
        self.alive(live)
    }

    pub(super) fn flush_log(&mut self, live: &Live) -> Step {
        self.say(|| "flush the log".into());
        let flushed = crate::api::flush_log(&live.db);
        if flushed.is_ok() {
            self.model.durable(self.model.seq());
        }
        self.explained(live, flushed.err(), May::default())
    }

    fn ask_to_be_told(&mut self, live: &Live) -> Step {
        let (seq, told) = (self.model.seq(), live.told.clone());
        self.say(|| format!("asks to be told when {seq} events are durable"));
        let asked = crate::api::on_durable(&live.db, move |durable| {
            if durable {
                told.lock().expect("no panic under the lock").push(seq);
            }
        });
        self.explained(live, asked.err(), May::default())
    }

    /// After an opening: commits the transactions in the outside log.
    pub(crate) fn decide_again(&mut self, live: &mut Live) -> Step {
        let late: Vec<Vec<u8>> =
            self.model.prepared.keys().filter(|xid| self.decided.contains(*xid)).cloned().collect();
        for xid in late {
            self.say(|| format!("the outside log has {}", show(&xid)));
            self.end_one(live, xid, true)?;
            self.tally.decided_late += 1;
        }
        Ok(())
    }

    // --- backups ---------------------------------------------------------------------------------------

    /// A lying disk could also lie to the backup, which reports it: `tests/backup.rs` tests that.
    pub(super) fn may_copy(&self, live: &Live) -> bool {
        let room = self.newer || !self.full;
        !self.kept && !live.copies && self.copies < COPIES_MAX && room && !self.mode.is_illegal()
    }

    pub(super) fn backup(&mut self, live: &mut Live) -> Step {
        self.copies += 1;
        let dir = format!("/backup-{}", self.copies);
        let incremental = self.newer && !self.copied.is_empty() && self.dice.percent(60);
        let mut chain = if incremental { self.copied[self.copied.len() - 1].chain.clone() } else { Vec::new() };
        self.say(|| format!("backup to {dir} on {chain:?} begins"));
        let begun = crate::api::backup_begin(&live.db, &dir, chain.last().map(String::as_str));
        chain.push(dir);
        let mut backup = match begun {
            Ok(backup) => backup,
            Err(error) => return self.no_backup(live, &chain, error, None),
        };
        live.copies = true;
        loop {
            for _ in 0..self.dice.log_uniform(16) - 1 {
                self.tally.ops += 1;
                self.step(live)?;
            }
            let bytes = self.dice.log_uniform(1 << 20);
            match crate::api::backup_step(&mut backup, bytes) {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) => {
                    live.copies = false;
                    drop(backup);
                    return self.no_backup(live, &chain, error, None);
                }
            }
        }
        live.copies = false;
        let (seq, holds) = (self.model.seq(), self.model.state(self.model.seq()));
        let ended = crate::api::backup_end(backup);
        self.say(|| format!("backup to {chain:?} ends with {seq} events: {:?}", ended.is_ok()));
        if let Err(error) = ended {
            return self.no_backup(live, &chain, error, Some(holds));
        }
        self.model.durable(seq);
        self.tally.backups += 1;
        self.tally.increments += u64::from(incremental);
        self.copied.push(Copied { chain, holds, restored: 0 });
        self.alive(live)?;
        if self.dice.percent(50) { self.restore(live, self.copied.len() - 1) } else { Ok(()) }
    }

    /// After a backup that failed (5). `holds`: its contents if it is complete anyway.
    fn no_backup(&mut self, live: &mut Live, chain: &[String], error: Error, holds: Option<State>) -> Step {
        self.tally.failed_backups += 1;
        self.explained(live, Some(error), May::default())?;
        if !self.newer {
            return Ok(());
        }
        let dir = chain.last().expect("it has a name");
        let to = format!("{dir}-failed");
        let env = self.restoring(live);
        match (crate::api::restore(&env, chain, &to), holds) {
            (Ok(()), None) => return fail(format!("{dir} is restored, and has no end")),
            (Ok(()), Some(holds)) => self.compare(live, env, chain, &to, &holds)?,
            (Err(Error::UnfinishedBackup { .. } | Error::BadBackup { .. }), _) => {}
            (Err(Error::Io(error)), _) if error.errno() == Some(ENOENT) => {}
            (Err(error), _) => self.explained(live, Some(error), May::default())?,
        }
        self.remove(live, &to)?;
        self.remove(live, dir)
    }

    /// Removes the files of a directory, which no process has open.
    fn remove(&mut self, live: &Live, dir: &str) -> Step {
        for path in live.process.list(dir.as_ref()).unwrap_or_default() {
            if live.process.remove(&path).is_err() {
                // The disk fails the removal, or the process is dead: the file stays.
                break;
            }
        }
        self.alive(live)
    }

    /// After an opening: every finished backup is there, with the same contents.
    pub(crate) fn restore_all(&mut self, live: &Live) -> Step {
        for at in 0..self.copied.len() {
            if self.copied[at].restored < 2 {
                self.restore(live, at)?;
            }
        }
        Ok(())
    }

    fn restore(&mut self, live: &Live, at: usize) -> Step {
        self.copied[at].restored += 1;
        let Copied { ref chain, restored, .. } = self.copied[at];
        let chain = chain.clone();
        let to = format!("{}-restored-{restored}", chain[chain.len() - 1]);
        self.say(|| format!("restore {chain:?} to {to}"));
        let env = self.restoring(live);
        match crate::api::restore(&env, &chain, &to) {
            // The disk has no space for another database.
            Err(error @ Error::NoSpace { .. }) if self.full => self.explained(live, Some(error), May::default())?,
            answer => {
                self.answer(live, answer, May::default())?;
                let holds = std::mem::take(&mut self.copied[at].holds);
                let same = self.compare(live, env, &chain, &to, &holds);
                self.copied[at].holds = holds;
                same?;
                self.tally.restored += 1;
            }
        }
        if self.full { self.remove(live, &to) } else { Ok(()) }
    }

    fn restoring(&mut self, live: &Live) -> Env {
        Env {
            disk: live.process.clone(),
            clock: self.sim.clone(),
            seed: self.dice.next(),
            background: crate::api::Background::Steps,
        }
    }

    /// Opens the database restored to `to`: it must have exactly these contents.
    fn compare(&mut self, live: &Live, env: Env, chain: &[String], to: &str, holds: &State) -> Step {
        let mut options: Options = self.base.clone();
        for (name, value) in &self.fixed {
            options.set(name, value).expect("they were good for the source");
        }
        let pool = if self.page_bytes > 16384 { "2M" } else { "1M" };
        for (name, value) in [("pool_size", pool), ("log_capacity", "2M"), ("log_buffer_size", "1M")] {
            options.set(name, value).expect("they are in range");
        }
        let opened = crate::api::Database::open_in(env, to, options);
        let db = match opened {
            Err(error @ Error::NoSpace { .. }) if self.full => {
                return self.explained(live, Some(error), May::default());
            }
            opened => self.answer(live, opened, May::default())?,
        };
        let mut copy = Live {
            process: live.process.clone(),
            txs: Vec::new(),
            in_place: Vec::new(),
            rewritten: false,
            told: Arc::default(),
            copies: true,
            cursors: Vec::new(),
            temporaries: Vec::new(),
            trees: BTreeMap::new(),
            built: BTreeSet::new(),
            losers: true,
            db,
        };
        let found = self.read_all(&mut copy)?;
        if found != *holds {
            let differences = holds.differences(&found, 12).join("\n  ");
            return fail(format!("{chain:?} restore to something else: {differences}"));
        }
        self.check(&copy)?;
        let closed = copy.db.close();
        self.explained(live, closed.err(), May::default())
    }
}
