//! Transactions begin, prepare and end, whole and in part.

use super::*;
use crate::api::{BETWEEN, Transaction};

impl Rig {
    pub(super) fn begin(&mut self, live: &mut Live) -> Step {
        let isolation = self.dice.weighted(&[
            (3, Isolation::ReadCommitted),
            (5, Isolation::RepeatableRead),
            (1, Isolation::Serializable),
        ]);
        let on_conflict = self.dice.pick(&[OnConflict::Fail, OnConflict::Latest]);
        let durability =
            self.dice.weighted(&[(6, None), (1, Some(Durability::Written)), (1, Some(Durability::Deferred))]);
        let options = TxOptions { isolation, on_conflict, durability, wait: LockWait::NoWait, ..TxOptions::default() };
        self.begin_as(live, options)
    }

    fn begin_as(&mut self, live: &mut Live, options: TxOptions) -> Step {
        self.stamps += 1;
        let number = self.stamps;
        self.say(|| format!("T{number} begin {:?} {:?}", options.isolation, options.on_conflict));
        let tx = live.db.begin_with(options);
        let tx = match tx {
            Ok(tx) => tx,
            Err(error) => return self.explained(live, Some(error), May::default()),
        };
        live.txs.push(Open::new(number, tx, options));
        if number % 3 == 0 || self.compactions == 0 {
            // Unlike the others, not at its first read. Seeds older than compactions stay unchanged.
            let (now, open) = (self.model.seq(), live.txs.last_mut().expect("it was just pushed"));
            let taken = open.tx.as_ref().expect("it is open").take_snapshot();
            open.takes_snapshot(now);
            return self.explained(live, taken.err(), May::default());
        }
        self.alive(live)
    }

    /// A transaction object that was ended in place is a new transaction.
    pub(super) fn begun_anew(&mut self, live: &mut Live, tx: Transaction, options: TxOptions) {
        self.stamps += 1;
        let number = self.stamps;
        self.say(|| format!("T{number} is begun anew, {:?} {:?}", options.isolation, options.on_conflict));
        live.txs.push(Open::new(number, tx, options));
    }

    pub(super) fn level(&self, open: &Open) -> Durability {
        open.options.durability.unwrap_or(self.durability)
    }

    pub(super) fn commit(&mut self, live: &mut Live, at: usize) -> Step {
        let in_place = !self.kept && self.dice.percent(25);
        if in_place { self.commit_in_place(live, at) } else { self.commit_and_go(live, at) }
    }

    fn commit_and_go(&mut self, live: &mut Live, at: usize) -> Step {
        let mut open = live.txs.swap_remove(at);
        let tx = open.tx.take().expect("it is open");
        let asked = self.sim.now();
        let other = self.dice.pick(&[Durability::Flushed, Durability::Written, Durability::Deferred]);
        let way = self.dice.weighted(&[(6, 0), (2, 1), (2, 2)]);
        let level = if way == 1 { other } else { self.level(&open) };
        self.say(|| format!("T{} commit {level:?} of {} rows", open.number, open.own.rows.len()));
        let answer = match way {
            0 => tx.commit(),
            1 => tx.commit_with(other),
            _ => match tx.commit_start() {
                Err(error) => Err(error),
                Ok(mut commit) => {
                    let mut answer = None;
                    for _ in 0..self.dice.below(6) {
                        answer = commit.poll();
                        if answer.is_some() {
                            break;
                        }
                        let task = self.dice.pick(Task::ALL);
                        if let Err(Stop::Failed(why)) = {
                            let done = live.db.step_task(task).err();
                            self.explained(live, done, May::default())
                        } {
                            return fail(why);
                        }
                    }
                    answer.unwrap_or_else(|| commit.wait())
                }
            },
        };
        if open.own.is_empty() {
            return self.explained(live, answer.err(), May::default());
        }
        self.file(live, Event::Commit(open.own), level, asked, answer).map(drop)
    }

    fn commit_in_place(&mut self, live: &mut Live, at: usize) -> Step {
        let mut open = live.txs.swap_remove(at);
        let mut tx = open.tx.take().expect("it is open");
        let (asked, level) = (self.sim.now(), self.level(&open));
        self.say(|| format!("T{} commit {level:?} in place of {} rows", open.number, open.own.rows.len()));
        let answer = tx.commit_in_place();
        if open.own.is_empty() {
            if answer.is_ok() {
                self.tally.restarts += 1;
                self.begun_anew(live, tx, open.options);
            }
            return self.explained(live, answer.err(), May::default());
        }
        if self.file(live, Event::Commit(open.own.clone()), level, asked, answer)? {
            self.tally.restarts += 1;
            self.begun_anew(live, tx, open.options);
        } else {
            // Not committed: it continues unchanged.
            open.tx = Some(tx);
            live.txs.push(open);
        }
        Ok(())
    }

    /// Rolls back, and restarts with other options or the same.
    fn restart(&mut self, live: &mut Live, at: usize) -> Step {
        let mut open = live.txs.swap_remove(at);
        let mut tx = open.tx.take().expect("it is open");
        let mut options = open.options;
        let answer = if self.dice.percent(50) {
            tx.rollback_in_place()
        } else {
            options.isolation = self.dice.pick(&[Isolation::ReadCommitted, Isolation::RepeatableRead]);
            tx.restart(options)
        };
        self.say(|| format!("T{} rollback in place of {} rows: {}", open.number, open.own.rows.len(), answer.is_ok()));
        if answer.is_err() {
            // It restarts anyway; its changes are rolled back later, and locked until then.
            live.losers = true;
        }
        self.explained(live, answer.err(), May::default())?;
        self.tally.restarts += 1;
        self.begun_anew(live, tx, options);
        self.alive(live)
    }

    pub(super) fn roll_back(&mut self, live: &mut Live, at: usize) -> Step {
        if !self.kept && self.dice.percent(25) {
            return self.restart(live, at);
        }
        let mut open = live.txs.swap_remove(at);
        let tx = open.tx.take().expect("it is open");
        self.say(|| format!("T{} rollback of {} rows", open.number, open.own.rows.len()));
        if self.dice.percent(30) {
            drop(tx);
            return self.alive(live);
        }
        match tx.rollback() {
            Err(error) => {
                if matches!(error, Error::NoSpace { .. } | Error::ReadOnly { .. }) && !live.process.is_dead() {
                    self.tally.stuck += 1;
                }
                live.losers = true;
                self.explained(live, Some(error), May::default())
            }
            Ok(()) => self.alive(live),
        }
    }

    /// Deferred commits one after the other, with single steps of background work between them: groups larger
    /// than the rest of their segment are cut there, and until the next step the flush has ended inside an
    /// entry. Sometimes the process dies just then.
    pub(super) fn burst(&mut self, live: &mut Live) -> Step {
        let mut names: Vec<Uid> = self.model.names(self.model.seq()).into_values().collect();
        let taken = self.in_change(live, 0);
        names.retain(|uid| !taken.contains(uid) && live.trees.contains_key(uid));
        if names.is_empty() || live.txs.len() >= TXS_MAX {
            return Ok(());
        }
        let uid = self.dice.pick(&names);
        for _ in 0..self.dice.log_uniform(60) {
            let before = live.txs.len();
            let durability = Some(Durability::Deferred);
            self.begin_as(live, TxOptions { durability, wait: LockWait::NoWait, ..TxOptions::default() })?;
            if live.txs.len() == before {
                return Ok(());
            }
            let at = before;
            for _ in 0..=self.dice.below(3) {
                if self.write_one(live, at, uid)?.is_some() {
                    return self.roll_back(live, at);
                }
            }
            self.commit_and_go(live, at)?;
            let tasks = self.dice.pick(&BETWEEN);
            for &task in tasks {
                self.sim.advance(Duration::from_micros(self.dice.log_uniform(8000)));
                self.say(|| format!("step {task:?}"));
                let answer = live.db.step_task(task);
                self.explained(live, answer.err(), May::default())?;
            }
            if tasks.len() == 2 && self.dice.percent(12) {
                self.say(|| "dies".into());
                live.process.dies_now();
                return Err(Stop::Dead);
            }
        }
        Ok(())
    }

    /// Continues with the transaction while an interrupt is pending: a call succeeds, or is interrupted and
    /// has changed nothing.
    pub(super) fn interrupt(&mut self, live: &mut Live, at: usize, uid: Uid) -> Step {
        let number = live.txs[at].number;
        // An interrupted read may have taken the snapshot, or not.
        let taken = live.txs[at].tx.as_ref().expect("it is open").take_snapshot();
        if taken.is_err() {
            return self.explained(live, taken.err(), May::default());
        }
        let now = self.model.seq();
        live.txs[at].takes_snapshot(now);
        self.say(|| format!("T{number} is interrupted"));
        let pending = crate::api::Interrupt::of(live.txs[at].tx.as_ref().expect("it is open"));
        pending.raise();
        self.interrupted = true;
        let mut done = Ok(());
        for _ in 0..self.dice.log_uniform(4) {
            // It may have ended, or have moved in the list.
            let Some(at) = live.txs.iter().position(|open| open.number == number) else { break };
            done = match self.dice.below(11) {
                0..3 => self.write(live, at, uid),
                3 => self.insert_many(live, at, uid),
                4 => self.delete_range(live, at, uid),
                5 => self.get(live, at, uid),
                6 | 7 => self.scan(live, at, uid),
                8 => self.locking_get(live, at, uid),
                9 => self.savepoint(live, at),
                _ => self.roll_back_to(live, at),
            };
            if done.is_err() {
                break;
            }
        }
        if let Some(at) = live.txs.iter().position(|open| open.number == number).filter(|_| done.is_ok()) {
            done = match self.dice.below(10) {
                0 => self.commit(live, at),
                1 => self.roll_back(live, at),
                _ => Ok(()),
            };
        }
        self.interrupted = false;
        pending.clear();
        done
    }

    /// After an error that left the transaction unchanged: rolls back, or continues.
    pub(super) fn after_refusal(&mut self, live: &mut Live, at: usize) -> Step {
        if self.dice.percent(40) { self.roll_back(live, at) } else { Ok(()) }
    }

    pub(super) fn prepare(&mut self, live: &mut Live, at: usize) -> Step {
        if live.txs[at].own.is_empty() || self.model.prepared.len() >= PREPARED_MAX {
            return Ok(());
        }
        let mut open = live.txs.swap_remove(at);
        let tx = open.tx.take().expect("it is open");
        self.stamps += 1;
        let len = if self.dice.percent(10) { 140 } else { 8 };
        let mut xid: Vec<u8> = value(self.stamps, len).to_vec();
        if self.wider && self.dice.percent(50) {
            // A name that an ended transaction may have had.
            let again = vec![b'x', self.dice.below(3) as u8];
            let held = live.in_place.iter().any(|held| held.xid() == &again[..]);
            if !held && !self.model.prepared.contains_key(&again) {
                xid = again;
            }
        }
        self.say(|| format!("T{} prepare as {}", open.number, show(&xid)));
        let asked = self.sim.now();
        let answer = tx.prepare(&Xid(xid.clone()));
        self.file(live, Event::Prepare(xid, open.own), Durability::Flushed, asked, answer).map(drop)
    }

    pub(super) fn end_prepared(&mut self, live: &mut Live) -> Step {
        // Transactions held open cannot be ended by others.
        let held: BTreeSet<&[u8]> = live.in_place.iter().map(outside::InPlace::xid).collect();
        let known = self.model.prepared.keys().filter(|xid| !held.contains(xid.as_slice()));
        let known: BTreeSet<Vec<u8>> = known.cloned().collect();
        let listed: BTreeSet<Vec<u8>> = crate::api::prepared(&live.db, |xid| held.contains(xid)).into_iter().collect();
        if listed != known {
            return fail(format!("prepared are {known:?}, listed are {listed:?}"));
        }
        if known.is_empty() {
            return Ok(());
        }
        let xids: Vec<Vec<u8>> = known.into_iter().collect();
        let xid = self.dice.pick(&xids);
        let commit = self.dice.percent(60) || self.decided.contains(&xid);
        self.end_one(live, xid, commit)
    }

    /// Ends a prepared transaction that is not held open.
    pub(super) fn end_one(&mut self, live: &mut Live, xid: Vec<u8>, commit: bool) -> Step {
        let asked = self.sim.now();
        self.say(|| format!("{} {}", if commit { "commit" } else { "rollback" }, show(&xid)));
        // The coordinator does not wait for the end of a rollback: it presumes that an unknown transaction
        // was rolled back.
        let level = if commit { Durability::Flushed } else { Durability::Deferred };
        let (event, answer) = if commit {
            (Event::CommitPrepared(xid.clone()), live.db.commit_prepared(&Xid(xid)))
        } else {
            (Event::RollbackPrepared(xid.clone()), live.db.rollback_prepared(&Xid(xid)))
        };
        let known: Vec<Changes> = self.model.prepared.values().cloned().collect();
        if self.file(live, event.clone(), level, asked, answer)? {
            return self.open_missing(live, &known);
        }
        // It failed for lack of space: the next opening shows the outcome.
        let now = self.sim.now();
        self.model.push(event, Promise::Nothing, asked, now);
        Err(Stop::Poisoned)
    }

    /// Opens handles of the trees that a prepared transaction created.
    pub(super) fn open_missing(&mut self, live: &mut Live, of: &[Changes]) -> Step {
        let made: Vec<Uid> = of.iter().flat_map(|changes| changes.names.keys().copied()).collect();
        for (name, uid) in self.model.names(self.model.seq()) {
            if made.contains(&uid) && !live.trees.contains_key(&uid) {
                let tree = live.db.open_tree(&name);
                let tree = self.answer(live, tree, May::default())?;
                live.trees.insert(uid, tree);
                // It may have been built from rows, before the opening.
                live.built.insert(uid);
            }
        }
        Ok(())
    }

    pub(super) fn savepoint(&mut self, live: &mut Live, at: usize) -> Step {
        let open = &mut live.txs[at];
        let savepoint = open.tx.as_mut().expect("it is open").savepoint();
        open.savepoints.push((savepoint, open.own.clone()));
        let number = open.number;
        self.say(|| format!("T{number} savepoint"));
        self.alive(live)
    }

    pub(super) fn roll_back_to(&mut self, live: &mut Live, at: usize) -> Step {
        let open = &mut live.txs[at];
        if open.savepoints.is_empty() {
            return Ok(());
        }
        let which = self.dice.index(open.savepoints.len());
        open.savepoints.truncate(which + 1);
        let (savepoint, own) = open.savepoints.last().expect("which is inside").clone();
        let answer = open.tx.as_mut().expect("it is open").rollback_to(&savepoint);
        let number = open.number;
        self.say(|| format!("T{number} back to savepoint {which}"));
        if let Err(error) = answer {
            self.explained(live, Some(error), May::default())?;
            return self.roll_back(live, at);
        }
        let open = &mut live.txs[at];
        // Documented: a row that the transaction had written has no other lock, so the lock goes with the
        // write.
        let gone = |uid: Uid, key: &Key| {
            let row = (uid, key.clone());
            open.own.rows.contains_key(&row) && !own.rows.contains_key(&row)
        };
        open.points.retain(|(uid, key, _)| !gone(*uid, key));
        open.own = own;
        self.alive(live)
    }
}
