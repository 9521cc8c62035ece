//! Trees are created, renamed, compacted and dropped; background work; options.

use super::*;

impl Rig {
    pub(super) fn new_name(&mut self) -> String {
        self.names += 1;
        format!("tree-{}", self.names)
    }

    pub(super) fn make_tree(&mut self, live: &mut Live) -> Step {
        let name = self.new_name();
        self.say(|| format!("create {name}"));
        let asked = self.sim.now();
        let company = self.company(live, 0);
        let (uid, answer) = (self.model.new_uid(), live.db.create_tree(&name));
        let changes = Changes { names: BTreeMap::from([(uid, Some(name))]), ..Changes::default() };
        self.ddl(live, company, changes, asked, answer.map(|tree| Some((uid, tree))))
    }

    pub(super) fn ddl(
        &mut self,
        live: &mut Live,
        company: bool,
        changes: Changes,
        asked: Duration,
        answer: Result<Option<(Uid, crate::api::Tree)>, Error>,
    ) -> Step {
        if let Err(error @ (Error::LockTimeout { .. } | Error::Deadlock { .. } | Error::WriteConflict { .. })) = answer
        {
            return self.explained(live, Some(error), May { lock: company, conflict: company, no_tree: false });
        }
        let (made, answer) = match answer {
            Ok(made) => (made, Ok(())),
            Err(error) => (None, Err(error)),
        };
        let level = self.durability;
        let done = self.file(live, Event::Commit(changes), level, asked, answer);
        live.trees.extend(made);
        done.map(drop)
    }

    /// Trees that no other transaction uses.
    pub(super) fn idle_tree(&mut self, live: &Live, me: u64) -> Option<(String, Uid)> {
        let taken = self.in_change(live, me);
        let used = |uid: &Uid| {
            Self::others(live, me).any(|open| open.used.contains(uid))
                || self.model.prepared.values().any(|changes| changes.rows.keys().any(|(of, _)| of == uid))
        };
        let names = self.model.names(self.model.seq()).into_iter();
        let idle: Vec<_> = names.filter(|(_, uid)| !taken.contains(uid) && !used(uid)).collect();
        (!idle.is_empty()).then(|| self.dice.pick(&idle))
    }

    pub(super) fn tree(&mut self, live: &mut Live) -> Step {
        let trees = self.model.names(self.model.seq()).len();
        let company = self.company(live, 0);
        let asked = self.sim.now();
        match self.dice.below(4) {
            // Drawn without a random number: kept seeds stay unchanged.
            0 | 1 if trees < TREES_MAX && !self.kept && self.names % 3 == 1 => self.index(live),
            0 | 1 if trees < TREES_MAX => self.make_tree(live),
            0 => {
                // An existing tree is opened, not created.
                let Some((name, uid)) = self.idle_tree(live, 0) else { return Ok(()) };
                let answer = live.db.create_tree(&name);
                match answer {
                    Ok(tree) if tree.id() != live.trees[&uid].id() => fail(format!("{name} is another tree now")),
                    answer => {
                        self.explained(live, answer.err(), May { lock: company, conflict: company, no_tree: false })
                    }
                }
            }
            1 | 2 => {
                let Some((from, uid)) = self.idle_tree(live, 0) else { return Ok(()) };
                let to = self.new_name();
                self.say(|| format!("rename {from} to {to}"));
                let answer = live.db.rename_tree(&from, &to).map(|()| None);
                let changes = Changes { names: BTreeMap::from([(uid, Some(to))]), ..Changes::default() };
                self.ddl(live, company, changes, asked, answer)
            }
            _ => {
                let Some((name, uid)) = self.idle_tree(live, 0).filter(|_| trees > 1) else { return Ok(()) };
                self.say(|| format!("drop {name}, tree {uid}"));
                let answer = live.db.drop_tree(&name).map(|()| None);
                let changes = Changes { names: BTreeMap::from([(uid, None)]), ..Changes::default() };
                self.ddl(live, company, changes, asked, answer)
            }
        }
    }

    /// Builds an index over a tree: one with the same rows.
    fn index(&mut self, live: &mut Live) -> Step {
        let Some((base, of)) = self.idle_tree(live, 0) else { return self.make_tree(live) };
        let name = self.new_name();
        self.say(|| format!("build {name}, an index of {base}"));
        let (asked, company) = (self.sim.now(), self.company(live, 0));
        let (answer, wrong) = self.index_beside_writes(live, of, &name);
        let rows = self.model.rows(of, Bound::Unbounded, Bound::Unbounded, self.model.seq());
        let mut explained = Ok(());
        if let Some(error) = wrong {
            // A failed build may not be undone yet.
            live.losers |= self.faulty || self.full;
            // The base is locked at the end; and a transaction that never ended may hold it.
            explained = self.explained(live, Some(error), May { lock: true, ..May::default() });
        }
        let uid = self.model.new_uid();
        live.built.insert(uid);
        let changes = Changes {
            names: BTreeMap::from([(uid, Some(name))]),
            rows: rows.into_iter().map(|(key, value)| ((uid, key), Some(value))).collect(),
        };
        // A process that died meanwhile may have committed the index.
        let made = self.ddl(live, company, changes, asked, answer.map(|tree| Some((uid, tree))));
        explained.and(made)
    }

    /// Builds the index while other transactions change rows of the base, and commit. Returns why one of them
    /// was refused, if any was.
    fn index_beside_writes(
        &mut self,
        live: &Live,
        of: Uid,
        name: &str,
    ) -> (Result<crate::api::Tree, Error>, Option<Error>) {
        let count = if self.dice.percent(70) { self.dice.log_uniform(30) } else { 0 };
        let mut writes: Vec<(Key, Option<Value>, Durability)> = Vec::new();
        for _ in 0..count {
            let (key, new) = (self.key(), self.new_value());
            let level = self.dice.pick(&[Durability::Flushed, Durability::Written, Durability::Deferred]);
            writes.push((key, Some(new).filter(|_| self.dice.percent(70)), level));
        }
        let every = self.dice.log_uniform(40);
        let (mut calls, mut refused) = (0, None);
        let (mut done, illegal) = (Vec::new(), self.mode.is_illegal());
        let base = &live.trees[&of];
        let during = || {
            calls += 1;
            if calls % every != 0 || refused.is_some() {
                return;
            }
            let Some((key, value, level)) = writes.pop() else { return };
            let options =
                TxOptions { isolation: Isolation::ReadCommitted, wait: LockWait::NoWait, ..TxOptions::default() };
            let asked = self.sim.now();
            let wrote = live.db.begin_with(options).and_then(|mut tx| {
                let there = match &value {
                    Some(value) => tx.put(base, &key, value).map(|()| true),
                    None => tx.delete(base, &key),
                };
                Ok((there?, tx))
            });
            match wrote.map(|(there, tx)| (there, tx.commit_with(level))) {
                Ok((there, committed)) => {
                    let unknown = live.process.is_dead() || matches!(committed, Err(Error::OutcomeUnknown { .. }));
                    let promise = match (&committed, level) {
                        (Ok(()), Durability::Flushed) => Promise::Flushed,
                        (Ok(()), Durability::Written) => Promise::Written,
                        (Ok(()), Durability::Deferred) => Promise::Deferred,
                        (Err(_), _) => Promise::Nothing,
                    };
                    if there && (committed.is_ok() || unknown) {
                        let rows = BTreeMap::from([((of, key), value)]);
                        let changes = Changes { rows, ..Changes::default() };
                        let end = if illegal { crate::api::head(&live.db) } else { 0 };
                        done.push((changes, promise, asked, self.sim.now(), end));
                    }
                    refused = committed.err();
                }
                Err(error) => refused = Some(error),
            }
        };
        let answer = crate::api::index(&live.db, base, name, during);
        self.say(|| format!("  {} changes of its base were committed meanwhile, refused: {refused:?}", done.len()));
        for (changes, promise, asked, acknowledged, end) in done {
            self.tally.index_writes += 1;
            self.model.push(Event::Commit(changes), promise, asked, acknowledged);
            self.model.log.last_mut().expect("just added").end = end;
        }
        (answer, refused)
    }

    /// A change of names inside a transaction.
    pub(super) fn tree_inside(&mut self, live: &mut Live, at: usize) -> Step {
        let me = live.txs[at].number;
        let company = self.company(live, me);
        // Its snapshot may not know the current names.
        let old = live.txs[at].knows(self.model.seq()) < self.model.seq();
        let may = May { lock: company, conflict: old, no_tree: old };
        let pick = self.idle_tree(live, me).filter(|(_, uid)| !live.txs[at].own.names.contains_key(uid));
        let trees = self.model.names(self.model.seq()).len();
        let fresh = self.new_name();
        let what = self.dice.below(3);
        // Drawn without a random number: kept seeds stay unchanged.
        let built = !self.kept && self.names % 2 == 0;
        let mut rows = Vec::new();
        for at in 0..if built { self.names * 37 % 400 } else { 0 } {
            self.stamps += 1;
            let len = if at % 61 == 7 { 7000 } else { at as usize % 150 };
            rows.push((format!("{:03}", at * 2).into_bytes(), value(self.stamps, len)));
        }
        let tx = live.txs[at].tx.as_mut().expect("it is open");
        let mut made = Vec::new();
        let (uid, name, answer) = match (what, pick) {
            (0, _) if trees < TREES_MAX => {
                let made_tree = if built { crate::api::build(tx, &fresh, &rows) } else { tx.create_tree(&fresh) };
                match made_tree {
                    Ok(tree) => {
                        let uid = self.model.new_uid();
                        live.trees.insert(uid, tree);
                        live.built.extend(Some(uid).filter(|_| built));
                        made = rows;
                        (uid, Some(fresh), Ok(()))
                    }
                    Err(error) => (0, Some(fresh), Err(error)),
                }
            }
            (1, Some((from, uid))) => {
                let answer = tx.rename_tree(&from, &fresh);
                (uid, Some(fresh), answer)
            }
            (2, Some((name, uid))) if trees > 1 => (uid, None, tx.drop_tree(&name)),
            _ => return Ok(()),
        };
        self.say(|| format!("T{me} makes, renames or drops tree {uid}: {name:?}"));
        match answer {
            Ok(()) => {
                let open = &mut live.txs[at];
                open.own.names.insert(uid, name);
                open.own.rows.extend(made.into_iter().map(|(key, value)| ((uid, key), Some(value))));
                open.used.insert(uid);
                self.alive(live)
            }
            Err(error) => {
                self.explained(live, Some(error), may)?;
                self.roll_back(live, at)
            }
        }
    }

    /// The names of all trees, as committed.
    pub(super) fn names(&mut self, live: &mut Live) -> Step {
        match live.db.trees() {
            Ok(found) => {
                let expected: Vec<String> = self.model.names(self.model.seq()).into_keys().collect();
                let found: Vec<String> = found.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
                if found != expected {
                    return fail(format!("the trees are {found:?}, and must be {expected:?}"));
                }
                self.alive(live)
            }
            Err(error) => self.explained(live, Some(error), May::default()),
        }
    }

    // --- background work -------------------------------------------------------------------------------

    pub(super) fn background(&mut self, live: &mut Live) -> Step {
        for _ in 0..self.dice.log_uniform(8) {
            let answer = if self.dice.percent(60) {
                let task = self.dice.pick(Task::ALL);
                self.say(|| format!("step {task:?}"));
                live.db.step_task(task)
            } else {
                let answer = live.db.step();
                self.say(|| format!("step: {answer:?}"));
                // Nothing is left to do, so no rollback either.
                live.losers &= !matches!(answer, Ok(false));
                answer
            };
            self.explained(live, answer.err(), May::default())?;
        }
        Ok(())
    }

    /// Compacts a tree, or shrinks the data file, completely or for some steps; rows, locks and snapshots
    /// stay the same.
    pub(super) fn compact(&mut self, live: &mut Live) -> Step {
        if self.dice.percent(30) {
            return self.shrink(live);
        }
        let names: Vec<(String, Uid)> = self.model.names(self.model.seq()).into_iter().collect();
        // Sometimes a tree that only old snapshots know, or one that is being created.
        let uid = if self.dice.percent(90) && !names.is_empty() {
            self.dice.pick(&names).1
        } else {
            let known: Vec<Uid> = live.trees.keys().copied().collect();
            if known.is_empty() {
                return Ok(());
            }
            self.dice.pick(&known)
        };
        let there = names.iter().any(|(_, known)| *known == uid);
        let Some(tree) = live.trees.get(&uid) else { return Ok(()) };
        let fill_percent = self.dice.pick(&[50, 70, 90, 100]);
        let mut calls = if self.dice.percent(50) { u64::MAX } else { 1 + self.dice.log_uniform(30) };
        let mut dice = self.dice.split();
        self.say(|| format!("compact tree {uid} to {fill_percent}%, at most {calls} calls"));
        // Between two steps pages are written, deleted rows are purged, the checkpoint moves: and it may
        // crash there.
        let answer = crate::api::compact(&live.db, tree, fill_percent, || {
            calls -= 1;
            for _ in 0..dice.below(3) {
                live.db.step_task(dice.pick(Task::ALL))?;
            }
            Ok(calls > 0)
        });
        self.say(|| format!("  moved {answer:?}"));
        match answer {
            Ok(moved) if there => {
                self.tally.moved += moved;
                self.alive(live)
            }
            Ok(_) => fail("it compacts a tree that is not there"),
            Err(error) => {
                self.tally.cut_off += u64::from(live.process.is_dead() || self.faulty || self.full);
                self.explained(live, Some(error), May { no_tree: !there, ..May::default() })
            }
        }
    }

    fn shrink(&mut self, live: &mut Live) -> Step {
        let mut calls = if self.dice.percent(70) { u64::MAX } else { 1 + self.dice.log_uniform(30) };
        let mut dice = self.dice.split();
        self.say(|| format!("shrink, at most {calls} calls"));
        let mut rewritten = live.rewritten;
        let answer = crate::api::shrink(&live.db, |rewrites| {
            rewritten |= rewrites;
            calls -= 1;
            for _ in 0..dice.below(3) {
                live.db.step_task(dice.pick(Task::ALL))?;
            }
            Ok(calls > 0)
        });
        live.rewritten = rewritten;
        self.say(|| format!("  moved, wrote again, gave back {answer:?}"));
        match answer {
            Ok((moved, rewritten, bytes)) => {
                self.tally.moved_down += moved;
                self.tally.rewritten += rewritten;
                self.tally.shrunk += u64::from(bytes > 0);
                self.alive(live)
            }
            Err(error) => {
                self.tally.cut_off += u64::from(live.process.is_dead() || self.faulty || self.full);
                self.explained(live, Some(error), May::default())
            }
        }
    }

    pub(super) fn set(&mut self, live: &mut Live) -> Step {
        let (name, value) = match self.dice.below(if self.wider { 9 } else { 4 }) {
            0 => ("pool_size", (self.page_bytes * self.dice.pick(&[64, 100, 128, 256])).max(256 << 10).to_string()),
            1 => ("redo_capacity", ((1 << 20) + self.segment_bytes * self.dice.pick(&[1, 2, 4, 12])).to_string()),
            2 => ("io_capacity", self.dice.pick(&["100", "2000"]).into()),
            3 => ("data_growth_step", self.dice.pick(&["1M", "3M"]).into()),
            4 => ("log_flush_method", self.dice.pick(&METHODS).into()),
            5 => ("deferred_percent", self.dice.pick(&["0", "20", "60"]).into()),
            6 => ("deferred_percent_min", self.dice.pick(&["0", "20"]).into()),
            7 => ("max_checkpoint_age_percent", self.dice.pick(&["25", "75"]).into()),
            _ => {
                let bytes = self.dice.below(6) << 20;
                self.say(|| format!("grow to {bytes} bytes"));
                return self.explained(live, crate::api::grow(&live.db, bytes).err(), May::default());
            }
        };
        self.say(|| format!("set {name} = {value}"));
        match crate::api::set(&live.db, name, &value) {
            // At most four times its size at the opening.
            Err(Error::InvalidOption { .. }) if name == "pool_size" => self.alive(live),
            answer => self.explained(live, answer.err(), May::default()),
        }
    }
}
