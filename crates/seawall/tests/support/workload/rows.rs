//! Rows are written, read and scanned.

use super::*;

impl Rig {
    pub(super) fn write(&mut self, live: &mut Live, at: usize, uid: Uid) -> Step {
        match self.write_one(live, at, uid)? {
            Some(_) => self.after_refusal(live, at),
            None => Ok(()),
        }
    }

    /// One change of one row. `Some`: it was refused, as required or permitted.
    pub(super) fn write_one(&mut self, live: &mut Live, at: usize, uid: Uid) -> Step<Option<()>> {
        let kind = self.dice.weighted(&[(3, Write::Insert), (8, Write::Put), (3, Write::Update), (3, Write::Delete)]);
        let (key, new) = (self.key(), self.new_value());
        let open = &live.txs[at];
        let me = open.number;
        let now = self.model.seq();
        let own = open.own.rows.contains_key(&(uid, key.clone()));
        let there = self.expected(open, uid, &key, now).is_some();
        let effective = match kind {
            Write::Insert => !there,
            Write::Put => true,
            Write::Update | Write::Delete => there,
        };
        let blocked = self.written_by_other(live, me, uid, &key)
            || (effective && Self::read_by_other(live, me, uid, &key, false));
        let stale = !own && open.misses(self.model.row_newest(uid, &key));
        let (tree_there, tree_seen) = self.there(open, uid);
        let company = self.company(live, me);
        self.say(|| format!("T{me} {kind:?} {} of tree {uid}, {} bytes", show(&key), new.len()));

        let tree = live.trees[&uid].clone();
        let tx = live.txs[at].tx.as_mut().expect("it is open");
        let answer = match kind {
            Write::Insert => match tx.insert(&tree, &key, &new) {
                Ok(()) => Ok(false),
                Err(Error::KeyExists { .. }) => Ok(true),
                Err(error) => Err(error),
            },
            Write::Put => tx.put(&tree, &key, &new).map(|()| there),
            Write::Update => tx.update(&tree, &key, &new),
            Write::Delete => tx.delete(&tree, &key),
        };
        match answer {
            Ok(found) => {
                if blocked {
                    return fail("another transaction's lock went unnoticed");
                }
                if stale {
                    return fail("a newer version went unnoticed");
                }
                if !tree_there {
                    return fail("the tree is dropped");
                }
                if found != there {
                    return fail(format!("it says the key was there: {found}, and it was: {there}"));
                }
                if !effective && live.txs[at].strict() {
                    // Its answer reveals the row: that is a read.
                    live.txs[at].reads(now);
                }
                if effective {
                    let value = (kind != Write::Delete).then_some(new);
                    live.txs[at].own.rows.insert((uid, key), value);
                    live.txs[at].used.insert(uid);
                }
                self.alive(live)?;
                Ok(None)
            }
            Err(error) => {
                let may = May { lock: company, conflict: stale || !tree_seen, no_tree: !tree_there || !tree_seen };
                self.explained(live, Some(error), may)?;
                Ok(Some(()))
            }
        }
    }

    /// Takes rows from an end of a tree, searched anew each time, with a cursor that deletes its current
    /// entry.
    pub(super) fn pop(&mut self, live: &mut Live, at: usize, uid: Uid) -> Step {
        let front = self.dice.percent(70);
        for _ in 0..self.dice.log_uniform(30) {
            let now = self.model.seq();
            live.txs[at].reads(now);
            let open = &live.txs[at];
            let me = open.number;
            let seen = self.expected_rows(open, uid, &Bound::Unbounded, &Bound::Unbounded, open.sees(now));
            let key = if front { seen.into_keys().next() } else { seen.into_keys().next_back() };
            // The latest version is removed.
            let there = key.as_ref().is_some_and(|key| self.expected(open, uid, key, now).is_some());
            let blocked = key.as_ref().is_some_and(|key| {
                self.written_by_other(live, me, uid, key) || (there && Self::read_by_other(live, me, uid, key, false))
            });
            let stale = key.as_ref().is_some_and(|key| {
                !open.own.rows.contains_key(&(uid, key.clone())) && open.misses(self.model.row_newest(uid, key))
            });
            let (tree_there, tree_seen) = self.there(open, uid);
            let (company, may_read) = (self.company(live, me), self.may_read(live, at, uid));
            self.say(|| format!("T{me} pop {} of tree {uid}", key.as_ref().map_or("nothing".into(), |key| show(key))));

            let tree = live.trees[&uid].clone();
            let tx = live.txs[at].tx.as_mut().expect("it is open");
            let (found, deleted) = match crate::api::pop(tx, &tree, front) {
                Ok(popped) => popped.unzip(),
                Err(error) => {
                    self.explained(live, Some(error), may_read)?;
                    return self.after_refusal(live, at);
                }
            };
            if found != key {
                let show = |key: Option<Key>| key.map(|key| show(&key).to_string());
                return fail(format!("the end of the tree is {:?}, and must be {:?}", show(found), show(key)));
            }
            let (Some(key), Some(deleted)) = (key, deleted) else { return self.alive(live) };
            match deleted {
                Ok(was_there) => {
                    if blocked || stale || !tree_there {
                        return fail(format!(
                            "unnoticed: a lock {blocked}, a newer version {stale}, a drop {}",
                            !tree_there
                        ));
                    }
                    if was_there != there {
                        return fail(format!("it says the key was there: {was_there}, and it was: {there}"));
                    }
                    if there {
                        live.txs[at].own.rows.insert((uid, key), None);
                        live.txs[at].used.insert(uid);
                    }
                }
                Err(error) => {
                    let may = May { lock: company, conflict: stale || !tree_seen, no_tree: !tree_there || !tree_seen };
                    self.explained(live, Some(error), may)?;
                    return self.after_refusal(live, at);
                }
            }
            self.alive(live)?;
            if !there {
                // It would find the same row again.
                return Ok(());
            }
        }
        Ok(())
    }

    pub(super) fn delete_range(&mut self, live: &mut Live, at: usize, uid: Uid) -> Step {
        let (from, to) = self.bounds();
        let now = self.model.seq();
        live.txs[at].reads(now);
        let open = &live.txs[at];
        let me = open.number;
        let (tree_there, tree_seen) = self.there(open, uid);
        // It finds the rows that it sees; it removes their latest versions.
        let seen = self.expected_rows(open, uid, &from, &to, open.sees(now));
        let gone: Vec<Key> = seen.into_keys().filter(|key| self.expected(open, uid, key, now).is_some()).collect();
        let blocked = gone
            .iter()
            .any(|key| self.written_by_other(live, me, uid, key) || Self::read_by_other(live, me, uid, key, false));
        let newer = open.strict() && self.model.newer(uid, as_slice(&from), as_slice(&to), open.knows(now));
        let stale = gone.iter().any(|key| {
            !open.own.rows.contains_key(&(uid, key.clone())) && open.misses(self.model.row_newest(uid, key))
        });
        let company = self.company(live, me);
        self.say(|| format!("T{me} delete {from:?}..{to:?} of tree {uid}: {} rows", gone.len()));

        let tree = live.trees[&uid].clone();
        let tx = live.txs[at].tx.as_mut().expect("it is open");
        let savepoint = tx.savepoint();
        match tx.delete_range::<Key>(&tree, (from.clone(), to.clone())) {
            Ok(count) => {
                let drop = !tree_there && !gone.is_empty();
                if blocked || stale || drop {
                    return fail(format!("unnoticed: a lock {blocked}, a newer version {stale}, a drop {drop}"));
                }
                if count != gone.len() as u64 {
                    return fail(format!("it removed {count}, and there were {}", gone.len()));
                }
                let open = &mut live.txs[at];
                if open.serializable() {
                    open.ranges.push((uid, from, to));
                }
                open.own.rows.extend(gone.into_iter().map(|key| ((uid, key), None)));
                open.used.insert(uid);
                self.alive(live)
            }
            Err(error) => {
                let may = May { lock: company, conflict: newer, no_tree: !tree_there || !tree_seen };
                self.explained(live, Some(error), may)?;
                let back = live.txs[at].tx.as_mut().expect("it is open").rollback_to(&savepoint);
                if let Err(error) = back {
                    self.explained(live, Some(error), May::default())?;
                    return self.roll_back(live, at);
                }
                self.after_refusal(live, at)
            }
        }
    }

    /// The errors that a failing read may answer with.
    pub(super) fn may_read(&self, live: &Live, at: usize, uid: Uid) -> May {
        let open = &live.txs[at];
        let (there, seen) = self.there(open, uid);
        let lock = open.serializable() && self.company(live, open.number);
        let conflict = open.serializable() && open.strict() && open.snapshot.is_some();
        May { lock, conflict, no_tree: !seen || (open.serializable() && !there) }
    }

    pub(super) fn get(&mut self, live: &mut Live, at: usize, uid: Uid) -> Step {
        let keys: Vec<Key> = (0..if self.dice.percent(20) { 4 } else { 1 }).map(|_| self.key()).collect();
        let now = self.model.seq();
        live.txs[at].reads(now);
        let open = &live.txs[at];
        let me = open.number;
        let seq = open.sees(now);
        let expected: Vec<Option<Value>> = keys.iter().map(|key| self.expected(open, uid, key, seq)).collect();
        let serializable = open.serializable();
        let blocked = serializable
            && keys
                .iter()
                .any(|key| self.written_by_other(live, me, uid, key) || Self::read_by_other(live, me, uid, key, true));
        let newer = |key: &Key| {
            let own = open.own.rows.contains_key(&(uid, key.clone()));
            serializable && !own && open.misses(self.model.row_newest(uid, key))
        };
        let stale = keys.iter().any(newer);
        let may = self.may_read(live, at, uid);
        let exists = self.dice.percent(15) && keys.len() == 1;
        self.say(|| format!("T{me} get {} of tree {uid}, expecting {}", show(&keys[0]), shown(&expected[0])));
        let tx = live.txs[at].tx.as_ref().expect("it is open");
        let tree = &live.trees[&uid];
        let answer = if exists {
            match tx.contains(tree, &keys[0]) {
                Ok(there) if there == expected[0].is_some() => Ok(vec![expected[0].as_deref().map(Vec::from)]),
                Ok(there) => return fail(format!("contains says {there}")),
                Err(error) => Err(error),
            }
        } else if keys.len() > 1 {
            tx.multi_get(tree, &keys)
        } else {
            tx.get(tree, &keys[0]).map(|value| vec![value])
        };
        match answer {
            Ok(found) => {
                if blocked || stale {
                    return fail(format!("a serializable read misses a lock {blocked}, a newer version {stale}"));
                }
                for ((key, found), expected) in keys.iter().zip(&found).zip(&expected) {
                    if found.as_deref() != expected.as_deref() {
                        let found = found.as_deref().map(Value::from);
                        return fail(format!("{} is {}, and must be {}", show(key), shown(&found), shown(expected)));
                    }
                }
                if serializable {
                    live.txs[at].points.extend(keys.into_iter().map(|key| (uid, key, false)));
                    live.txs[at].used.insert(uid);
                }
                self.alive(live)
            }
            Err(error) => {
                self.explained(live, Some(error), may)?;
                self.after_refusal(live, at)
            }
        }
    }

    pub(super) fn scan(&mut self, live: &mut Live, at: usize, uid: Uid) -> Step {
        let (from, to) = self.bounds();
        let limit = if self.dice.percent(50) { usize::MAX } else { 1 + self.dice.below(20) as usize };
        let now = self.model.seq();
        live.txs[at].reads(now);
        let open = &live.txs[at];
        let (me, serializable) = (open.number, open.serializable());
        let way = self.dice.below(if serializable { 2 } else { 3 });
        let rows = self.expected_rows(open, uid, &from, &to, open.sees(now));
        let may = self.may_read(live, at, uid);
        self.say(|| format!("T{me} scan {from:?}..{to:?} of tree {uid}, way {way}: {} rows", rows.len()));
        let mut left: VecDeque<(Key, Value)> = rows.into_iter().collect();
        let open = &live.txs[at];
        let mut range =
            open.tx.as_ref().expect("it is open").range::<Key>(&live.trees[&uid], (from.clone(), to.clone()));
        let mut last: Option<Key> = None;
        let mut exhausted = false;
        let mut wrong = None;
        for _ in 0..limit {
            let forward = way == 0 || (way == 2 && self.dice.percent(50));
            let found = if forward { range.next() } else { range.next_back() };
            let expected = if forward { left.pop_front() } else { left.pop_back() };
            let found = match found {
                Some(Err(error)) => {
                    drop(range);
                    self.explained(live, Some(error), may)?;
                    return self.after_refusal(live, at);
                }
                Some(Ok(found)) => Some(found),
                None => None,
            };
            let same = match (&found, &expected) {
                (Some((key, value)), Some((other, expected))) => key == other && **value == **expected,
                (None, None) => true,
                _ => false,
            };
            if !same {
                let found = found.map(|(key, value)| format!("{} = {}", show(&key), show(&value)));
                let expected = expected.map(|(key, value)| format!("{} = {}", show(&key), show(&value)));
                wrong = Some(format!("the scan gives {found:?}, and must give {expected:?}"));
                break;
            }
            match found {
                Some((key, _)) if serializable && open.misses(self.model.row_newest(uid, &key)) => {
                    wrong = Some(format!("the scan gives {}, which is newer than the snapshot", show(&key)));
                    break;
                }
                Some((key, _)) => last = Some(key),
                None => {
                    exhausted = true;
                    break;
                }
            }
        }
        drop(range);
        if let Some(wrong) = wrong {
            return fail(wrong);
        }
        if self.interrupted && last.is_some() {
            return fail("a scan goes on although it is interrupted");
        }
        if serializable {
            let (from, to) = match (exhausted, last) {
                (true, _) | (_, None) => (from, to),
                (_, Some(last)) if way == 0 => (from, Bound::Included(last)),
                (_, Some(last)) => (Bound::Included(last), to),
            };
            let inside = |changes: &Changes| {
                !is_empty(as_slice(&from), as_slice(&to))
                    && changes.rows.keys().any(|(of, key)| *of == uid && contains(&from, &to, key))
            };
            if Self::others(live, me).any(|open| inside(&open.own)) || self.model.prepared.values().any(inside) {
                return fail("a serializable scan goes over another's uncommitted row");
            }
            if !is_empty(as_slice(&from), as_slice(&to)) {
                live.txs[at].ranges.push((uid, from, to));
            }
            live.txs[at].used.insert(uid);
        }
        self.alive(live)
    }

    /// Moves over some entries with a cursor that outlives transactions: from its position, or from a seek.
    pub(super) fn walk(&mut self, live: &mut Live, at: usize, uid: Uid) -> Step {
        if live.cursors.len() < CURSORS_MAX {
            live.cursors.push((crate::api::OwnedCursor::new(), None));
        }
        let nth = self.dice.index(live.cursors.len());
        let now = self.model.seq();
        live.txs[at].reads(now);
        let open = &live.txs[at];
        let rows = self.expected_rows(open, uid, &Bound::Unbounded, &Bound::Unbounded, open.sees(now));
        let (me, repeatable, may) = (open.number, open.repeatable(), self.may_read(live, at, uid));
        let (mut cursor, stood) = live.cursors.swap_remove(nth);
        // At read committed it continues in the view of its seek, if that belongs to the same transaction.
        let mut from = stood.filter(|(of, _)| *of == uid && repeatable).map(|(_, key)| key);
        let steps = self.dice.log_uniform(30);
        self.say(|| {
            let from = from.as_deref().map(show);
            format!("T{me} walks {steps} entries of tree {uid} with cursor {nth} from {from:?}")
        });
        for _ in 0..steps {
            let front = self.dice.percent(70);
            let seeks = from.is_none() || self.dice.percent(10);
            let key = if seeks { self.key() } else { from.take().expect("it stands somewhere") };
            let edge = if seeks { Bound::Included(&key) } else { Bound::Excluded(&key) };
            let expected = if front {
                rows.range::<Key, _>((edge, Bound::Unbounded)).next()
            } else {
                rows.range::<Key, _>((Bound::Unbounded, edge)).next_back()
            };
            let tx = live.txs[at].tx.as_ref().expect("it is open");
            let went = match (seeks, front) {
                (true, _) => {
                    crate::api::reset(&mut cursor, &live.trees[&uid]);
                    crate::api::seek(&mut cursor, tx, &key, front)
                }
                (false, true) => cursor.next(tx),
                (false, false) => cursor.prev(tx),
            };
            let found = match went {
                Ok(true) => cursor.entry(tx).map(|(key, value)| Some((key.to_vec(), Value::from(value)))),
                Ok(false) => Ok(None),
                Err(error) => Err(error),
            };
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    self.explained(live, Some(error), may)?;
                    return self.after_refusal(live, at);
                }
            };
            if found.as_ref().map(|(key, value)| (key, value)) != expected {
                let found = found.map(|(key, value)| format!("{} = {}", show(&key), show(&value)));
                let expected = expected.map(|(key, value)| format!("{} = {}", show(key), show(value)));
                return fail(format!("the cursor comes to {found:?}, and must come to {expected:?}"));
            }
            self.tally.kept_cursors += u64::from(found.is_some());
            from = found.map(|(key, _)| key);
        }
        live.cursors.push((cursor, from.map(|key| (uid, key))));
        self.alive(live)
    }

    /// Many rows in one call, in random order; some may exist.
    pub(super) fn insert_many(&mut self, live: &mut Live, at: usize, uid: Uid) -> Step {
        let count = self.dice.log_uniform(60);
        let rows: Vec<(Key, Value)> = (0..count).map(|_| (self.key(), self.new_value())).collect();
        let open = &live.txs[at];
        let me = open.number;
        let now = self.model.seq();
        // Up to the first existing one, in the tree or among the earlier rows.
        let mut made: BTreeMap<Key, Value> = BTreeMap::new();
        let mut duplicate = None;
        for (index, (key, value)) in rows.iter().enumerate() {
            if made.contains_key(key) || self.expected(open, uid, key, now).is_some() {
                duplicate = Some(index as u64);
                break;
            }
            made.insert(key.clone(), value.clone());
        }
        let there = duplicate.map(|index| &rows[index as usize].0).filter(|key| !made.contains_key(*key));
        let blocked = there.is_some_and(|key| self.written_by_other(live, me, uid, key))
            || made
                .keys()
                .any(|key| self.written_by_other(live, me, uid, key) || Self::read_by_other(live, me, uid, key, false));
        let newer = |key: &Key| {
            !open.own.rows.contains_key(&(uid, key.clone())) && open.misses(self.model.row_newest(uid, key))
        };
        let stale = made.keys().chain(there).any(newer);
        // The existing row may be newer than its snapshot.
        let may_conflict = stale || rows.iter().any(|(key, _)| newer(key));
        let (tree_there, tree_seen) = self.there(open, uid);
        let company = self.company(live, me);
        self.say(|| format!("T{me} inserts {count} rows into tree {uid}, the first that is there: {duplicate:?}"));
        let tree = live.trees[&uid].clone();
        let tx = live.txs[at].tx.as_mut().expect("it is open");
        let savepoint = tx.savepoint();
        let found = match tx.insert_many(&tree, rows.iter().map(|(key, value)| (key, value))) {
            Ok(()) => None,
            Err(Error::DuplicateRow { index, .. }) => Some(index),
            Err(error) => {
                let may =
                    May { lock: company, conflict: may_conflict || !tree_seen, no_tree: !tree_there || !tree_seen };
                self.explained(live, Some(error), may)?;
                return self.back_after_some(live, at, &savepoint);
            }
        };
        if blocked || stale || !tree_there {
            return fail(format!("unnoticed: a lock {blocked}, a newer version {stale}, a drop {}", !tree_there));
        }
        if found != duplicate {
            return fail(format!("the first row that is there is {found:?}, and must be {duplicate:?}"));
        }
        self.tally.many += 1;
        if duplicate.is_some() && live.txs[at].strict() {
            // Its answer reveals the rows: that is a read.
            live.txs[at].reads(now);
        }
        live.txs[at].own.rows.extend(made.into_iter().map(|(key, value)| ((uid, key), Some(value))));
        live.txs[at].used.insert(uid);
        self.alive(live)
    }

    /// After a call that may have changed some of its rows before it was refused.
    fn back_after_some(&mut self, live: &mut Live, at: usize, savepoint: &Savepoint) -> Step {
        let back = live.txs[at].tx.as_mut().expect("it is open").rollback_to(savepoint);
        if let Err(error) = back {
            self.explained(live, Some(error), May::default())?;
            return self.roll_back(live, at);
        }
        self.after_refusal(live, at)
    }

    /// Many rows in one call, in random order; some may exist, and some come twice.
    pub(super) fn put_many(&mut self, live: &mut Live, at: usize, uid: Uid) -> Step {
        let count = self.dice.log_uniform(60);
        let rows: Vec<(Key, Value)> = (0..count).map(|_| (self.key(), self.new_value())).collect();
        let open = &live.txs[at];
        let me = open.number;
        let blocked = rows.iter().any(|(key, _)| {
            self.written_by_other(live, me, uid, key) || Self::read_by_other(live, me, uid, key, false)
        });
        let stale = rows.iter().any(|(key, _)| {
            !open.own.rows.contains_key(&(uid, key.clone())) && open.misses(self.model.row_newest(uid, key))
        });
        let (tree_there, tree_seen) = self.there(open, uid);
        let company = self.company(live, me);
        self.say(|| format!("T{me} puts {count} rows into tree {uid}"));
        let tree = live.trees[&uid].clone();
        let tx = live.txs[at].tx.as_mut().expect("it is open");
        let savepoint = tx.savepoint();
        if let Err(error) = tx.put_many(&tree, &rows) {
            let may = May { lock: company, conflict: stale || !tree_seen, no_tree: !tree_there || !tree_seen };
            self.explained(live, Some(error), may)?;
            return self.back_after_some(live, at, &savepoint);
        }
        if blocked || stale || !tree_there {
            return fail(format!("unnoticed: a lock {blocked}, a newer version {stale}, a drop {}", !tree_there));
        }
        self.tally.put_many += 1;
        live.txs[at].own.rows.extend(rows.into_iter().map(|(key, value)| ((uid, key), Some(value))));
        live.txs[at].used.insert(uid);
        self.alive(live)
    }

    /// One row, unless another one begins like it.
    pub(super) fn insert_unique(&mut self, live: &mut Live, at: usize, uid: Uid) -> Step {
        let (key, new) = (self.key(), self.new_value());
        let prefix = key[..key.len().min(self.dice.pick(&[1, 2, 3, 3, 3]))].to_vec();
        let open = &live.txs[at];
        let me = open.number;
        let now = self.model.seq();
        let alike = |key: &Key| key.starts_with(&prefix);
        let (from, to) = (Bound::Included(prefix.clone()), Bound::Unbounded);
        let there = self.expected_rows(open, uid, &from, &to, now).into_keys().find(alike);
        // Another transaction has changed a row that begins like it, and not ended.
        let has = |changes: &Changes| changes.rows.keys().any(|(of, key)| *of == uid && alike(key));
        let blocked = Self::others(live, me).any(|open| has(&open.own)) || self.model.prepared.values().any(has);
        let place = Self::read_by_other(live, me, uid, &key, false);
        let stale = open.snapshot.is_some_and(|snapshot| {
            open.strict() && self.model.newer(uid, Bound::Included(&prefix), Bound::Unbounded, snapshot)
        });
        let (tree_there, tree_seen) = self.there(open, uid);
        let may =
            May { lock: self.company(live, me), conflict: stale || !tree_seen, no_tree: !tree_there || !tree_seen };
        let len = prefix.len();
        self.say(|| format!("T{me} inserts {} into tree {uid}, whose first {len} bytes are unique", show(&key)));
        let tree = live.trees[&uid].clone();
        let tx = live.txs[at].tx.as_mut().expect("it is open");
        match tx.insert_unique_prefix(&tree, len, &key, &new) {
            Ok(()) => {
                if blocked || place || !tree_there {
                    return fail(format!("unnoticed: a lock {}, a drop {}", blocked || place, !tree_there));
                }
                if let Some(other) = there {
                    return fail(format!("inserted beside {}", show(&other)));
                }
                self.tally.unique += 1;
                live.txs[at].own.rows.insert((uid, key), Some(new));
                live.txs[at].used.insert(uid);
                self.alive(live)
            }
            Err(Error::KeyExists { .. }) if there.is_none() => fail("no row begins like it"),
            Err(Error::KeyExists { .. }) => {
                if live.txs[at].strict() {
                    // Its answer reveals a row: that is a read.
                    live.txs[at].reads(now);
                }
                // At serializable the rows that it met stay locked.
                live.txs[at].used.insert(uid);
                self.alive(live)
            }
            Err(error) => {
                self.explained(live, Some(error), may)?;
                self.after_refusal(live, at)
            }
        }
    }

    /// A semi-consistent read: locks the row, or sees its committed version.
    pub(super) fn look(&mut self, live: &mut Live, at: usize, uid: Uid) -> Step {
        let key = self.key();
        let open = &live.txs[at];
        let me = open.number;
        let now = self.model.seq();
        let (expected, committed) = (self.expected(open, uid, &key, now), self.model.row(uid, &key, now));
        let own = open.own.rows.contains_key(&(uid, key.clone()));
        let stale = !own && open.misses(self.model.row_newest(uid, &key));
        let blocked = self.written_by_other(live, me, uid, &key) || Self::read_by_other(live, me, uid, &key, false);
        let weak = open.options.isolation == Isolation::ReadCommitted;
        let (there, seen) = self.there(open, uid);
        let company = self.company(live, me);
        let may = May { lock: company && !weak, conflict: stale || !seen, no_tree: !there || !seen };
        self.say(|| format!("T{me} look at {} of tree {uid}, another has it: {blocked}", show(&key)));
        let tx = live.txs[at].tx.as_ref().expect("it is open");
        let (found, locked) = match crate::api::lock_or_committed(tx, &live.trees[&uid], &key) {
            Ok(found) => found,
            Err(error) => {
                self.explained(live, Some(error), may)?;
                return self.after_refusal(live, at);
            }
        };
        self.tally.looked += 1;
        let expected = if locked { expected } else { committed };
        if locked && (blocked || stale || !(there || seen)) {
            return fail(format!("unnoticed: a lock {blocked}, a newer version {stale}, a drop {}", !there));
        }
        if !locked && (own || !weak || !company) {
            return fail(format!(
                "it is not locked: written by itself {own}, read committed {weak}, alone {}",
                !company
            ));
        }
        if found.as_deref() != expected.as_deref() {
            let found = found.map(Value::from);
            return fail(format!("{} is {}, and must be {}", show(&key), shown(&found), shown(&expected)));
        }
        if locked {
            live.txs[at].points.push((uid, key, true));
            live.txs[at].used.insert(uid);
        }
        self.alive(live)
    }

    pub(super) fn locking_get(&mut self, live: &mut Live, at: usize, uid: Uid) -> Step {
        let key = self.key();
        let exclusive = self.dice.percent(60);
        let open = &live.txs[at];
        let me = open.number;
        let expected = self.expected(open, uid, &key, self.model.seq());
        let own = open.own.rows.contains_key(&(uid, key.clone()));
        let stale = !own && open.misses(self.model.row_newest(uid, &key));
        let blocked =
            self.written_by_other(live, me, uid, &key) || Self::read_by_other(live, me, uid, &key, !exclusive);
        let (there, seen) = self.there(open, uid);
        let may = May { lock: self.company(live, me), conflict: stale || !seen, no_tree: !there || !seen };
        self.say(|| format!("T{me} get {} of tree {uid} locked, exclusive {exclusive}", show(&key)));
        let tx = live.txs[at].tx.as_ref().expect("it is open");
        let tree = &live.trees[&uid];
        let answer = if exclusive { tx.get_for_update(tree, &key) } else { tx.get_for_share(tree, &key) };
        match answer {
            Ok(found) => {
                if blocked || stale || !(there || seen) {
                    return fail(format!("unnoticed: a lock {blocked}, a newer version {stale}, a drop {}", !there));
                }
                if found.as_deref() != expected.as_deref() {
                    let found = found.map(Value::from);
                    return fail(format!("{} is {}, and must be {}", show(&key), shown(&found), shown(&expected)));
                }
                // Some locks are released at once, if the engine says that the lock was new. (Without a
                // random number: kept seeds stay unchanged.)
                let is_held = live.txs[at].points.iter().any(|(of, held, _)| *of == uid && *held == key);
                if key.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) % 3 == 0 {
                    let tx = live.txs[at].tx.as_ref().expect("it is open");
                    let gone = crate::api::give_back(tx, &live.trees[&uid], &key);
                    if gone && (is_held || own || live.txs[at].options.isolation == Isolation::Serializable) {
                        return fail(format!("{} is not locked any more, which it was before", show(&key)));
                    }
                    if gone {
                        live.txs[at].used.insert(uid);
                        return self.alive(live);
                    }
                }
                live.txs[at].points.push((uid, key, exclusive));
                live.txs[at].used.insert(uid);
                self.alive(live)
            }
            Err(error) => {
                self.explained(live, Some(error), may)?;
                self.after_refusal(live, at)
            }
        }
    }
}
