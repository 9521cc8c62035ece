//! Compares a database after a power cut with what it must hold.
//!
//! 1. A commit acknowledged as flushed must be there. So must every commit, of any level, that was
//!    acknowledged before the flushed transaction announced its commit: its log records come earlier.
//! 2. Only announced transactions may be there.
//! 3. The rows of each thread must be exactly those after its transaction `n`, for the `n` in its counter.
//!    Each shared row must have the last version written by a transaction that is there, and no lower
//!    version may be missing.

use crate::engine::{Item, shared_rows, shared_value};
use crate::plan::{self, COUNTERS, Contents, End, SHARED, Thread, plan, xid_of};
use std::collections::BTreeMap;

/// The state of one thread, from its output lines.
#[derive(Debug, Clone)]
struct ThreadState {
    /// The rows known to be there, up to the last compared transaction.
    rows: Thread,
    /// Versions of shared rows that each announced transaction writes.
    intents: BTreeMap<u64, Vec<(u64, u64)>>,
    acked: u64,
    required: u64,
    /// The last two-phase transaction whose decision was acknowledged.
    decided: u64,
    /// The last acknowledged transaction of each thread when this thread announced its commit.
    before: Vec<u64>,
}

/// The contents that the model allows.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    seed: u64,
    threads: Vec<ThreadState>,
    /// The version of each shared row, with the thread and number of the transaction that wrote it, as last
    /// compared.
    shared: BTreeMap<u64, (u64, u64, u64)>,
    /// Whether the initial trees must exist.
    made: bool,
    /// Errors of the process under test.
    pub errors: Vec<String>,
    pub acks: u64,
}

impl Model {
    pub(crate) fn new(seed: u64, threads: u64) -> Self {
        let told = |thread| ThreadState {
            rows: Thread::new(seed, thread),
            intents: BTreeMap::new(),
            acked: 0,
            required: 0,
            decided: 0,
            before: Vec::new(),
        };
        Self {
            seed,
            threads: (0..threads).map(told).collect(),
            shared: BTreeMap::new(),
            made: false,
            errors: Vec::new(),
            acks: 0,
        }
    }

    /// Processes an output line of the process under test.
    pub(crate) fn line(&mut self, line: &str) {
        let mut words = line.split(' ');
        let kind = words.next();
        if kind == Some("e") {
            return self.errors.push(line[1..].trim().to_owned());
        }
        if kind == Some("open") {
            // A new process, also after a kill without a cut: unflushed commits may be lost.
            for told in &mut self.threads {
                told.acked = told.required.max(told.rows.n);
                told.before.clear();
            }
        }
        if !matches!(kind, Some("i" | "a")) {
            return;
        }
        let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
        let (Some(thread), Some(n)) = (number(), number()) else { return };
        let acked: Vec<u64> = self.threads.iter().map(|told| told.acked).collect();
        let told = &mut self.threads[thread as usize];
        if kind == Some("i") {
            let pair = |word: &str| word.split_once(':').map(|(row, v)| Some((row.parse().ok()?, v.parse().ok()?)));
            // After a kill, transactions run again: discard announcements from this number on.
            drop(told.intents.split_off(&n));
            told.intents.insert(n, words.filter_map(pair).flatten().collect());
            told.before = acked;
            return;
        }
        self.acks += 1;
        let promise = words.next();
        if promise != Some("nothing") {
            told.acked = n;
        }
        if promise == Some("flushed") {
            told.required = n;
        }
        if promise.is_some() {
            told.decided = n;
            // The rollback decision of a prepared transaction was flushed too.
            for (told, before) in std::mem::take(&mut told.before).into_iter().enumerate() {
                let told = &mut self.threads[told];
                told.required = told.required.max(before);
            }
        }
        self.made = true;
    }

    /// Compares a dump with the allowed contents; on success the dump becomes the new base.
    pub(crate) fn compare(&mut self, items: &[Item]) -> Result<(), String> {
        let mut found = Contents::new();
        let mut tree = None;
        for item in items {
            match item {
                Item::Prepared(xid) => self.prepared(xid)?,
                Item::Tree(name) => tree = Some(found.entry(name.clone()).or_default()),
                Item::Row(key, value) => {
                    let rows = tree.as_mut().ok_or("a row before the first tree")?;
                    if rows.insert(key.clone(), value.clone()).is_some() {
                        return Err(format!("key {} comes twice", key.escape_ascii()));
                    }
                }
                Item::Finding(text) => return Err(format!("the check found: {text}")),
                Item::End => {}
            }
        }
        let mut next = self.clone();
        let mut expected = Contents::new();
        let all = plan::TREES.iter().all(|name| found.contains_key(*name));
        for name in plan::TREES.iter().filter(|name| self.made || all || found.contains_key(**name)) {
            expected.insert((*name).to_owned(), BTreeMap::new());
        }
        let empty = BTreeMap::new();
        for (thread, told) in (0..).zip(&mut next.threads) {
            let counter = found.get(COUNTERS).unwrap_or(&empty).get(&plan::counter_key(thread));
            let n = counter.map_or(Some(0), |bytes| Some(u64::from_le_bytes(bytes.as_slice().try_into().ok()?)));
            let n = n.ok_or_else(|| format!("the counter of thread {thread} is {counter:?}"))?;
            let least = told.required.max(told.rows.n);
            let most = told.intents.last_key_value().map_or(0, |(n, _)| *n).max(told.rows.n);
            // A transaction rolled back in its second phase leaves the counter unchanged.
            let planned = |n: &u64| plan(self.seed, thread, *n).end != End::TakenBack;
            let least = (1..=least).rev().find(planned).unwrap_or(0);
            if n < least {
                return Err(format!(
                    "thread {thread}: {n} transactions are there, {least} were acknowledged and durable"
                ));
            }
            if n > most {
                return Err(format!("thread {thread}: {n} transactions are there, only {most} were begun"));
            }
            told.rows.forward(n);
            for (tree, rows) in &told.rows.contents {
                expected.entry(tree.clone()).or_default().extend(rows.clone());
            }
            if n > 0 {
                let counters = expected.entry(COUNTERS.into()).or_default();
                counters.insert(plan::counter_key(thread), n.to_le_bytes().into());
            }
        }
        next.share(&mut expected)?;
        differences(&expected, &found)?;
        for told in &mut next.threads {
            told.intents.clear();
            told.before.clear();
            (told.acked, told.required, told.decided) = (told.rows.n, told.rows.n, 0);
        }
        next.made |= all;
        *self = next;
        Ok(())
    }

    /// Checks a transaction that was found prepared.
    fn prepared(&self, xid: &str) -> Result<(), String> {
        let (thread, n) = xid_of(xid).ok_or_else(|| format!("a prepared transaction of unknown name {xid}"))?;
        let told = self.threads.get(thread as usize).ok_or_else(|| format!("{xid} is prepared: no such thread"))?;
        let last = told.intents.last_key_value().map_or(0, |(n, _)| *n);
        if n != last || matches!(plan(self.seed, thread, n).end, End::Commit(_)) {
            return Err(format!("{xid} is prepared, but transaction {last} was the last of its thread"));
        }
        if n <= told.decided {
            return Err(format!("{xid} is prepared, but its decision was acknowledged"));
        }
        Ok(())
    }

    /// Adds to `expected` what the shared rows must hold.
    fn share(&mut self, expected: &mut Contents) -> Result<(), String> {
        for row in shared_rows() {
            let (base, ..) = self.shared.get(&row).copied().unwrap_or_default();
            let mut versions = BTreeMap::new();
            for (thread, told) in (0..).zip(&self.threads) {
                for (n, wrote) in told.intents.range(..=told.rows.n) {
                    if plan(self.seed, thread, *n).end == End::TakenBack {
                        continue;
                    }
                    for (_, version) in wrote.iter().filter(|(r, version)| *r == row && *version > base) {
                        versions.insert(*version, (thread, *n));
                    }
                }
            }
            for (version, expected) in versions.keys().zip(base + 1..) {
                if *version != expected {
                    return Err(format!("shared row {row}: version {expected} is missing below {version}"));
                }
            }
            if let Some((version, (thread, n))) = versions.last_key_value() {
                self.shared.insert(row, (*version, *thread, *n));
            }
            if let Some((version, thread, n)) = self.shared.get(&row) {
                let rows = expected.entry(SHARED.into()).or_default();
                rows.insert(row.to_be_bytes().into(), shared_value(*version, *thread, *n));
            }
        }
        Ok(())
    }
}

fn differences(expected: &Contents, found: &Contents) -> Result<(), String> {
    let names = |contents: &Contents| contents.keys().cloned().collect::<Vec<_>>();
    if names(expected) != names(found) {
        return Err(format!("trees {:?} are there instead of {:?}", names(found), names(expected)));
    }
    for (tree, rows) in expected {
        let there = &found[tree];
        for (key, value) in rows {
            let place = || format!("tree {tree}, key {}", key.escape_ascii());
            match there.get(key) {
                None => return Err(format!("{}: the row is missing", place())),
                Some(other) if other != value => {
                    let at = value.iter().zip(other).take_while(|(a, b)| a == b).count();
                    let lens = (other.len(), value.len());
                    return Err(format!("{}: {} bytes instead of {}, different from {at} on", place(), lens.0, lens.1));
                }
                Some(_) => {}
            }
        }
        if let Some(key) = there.keys().find(|key| !rows.contains_key(*key)) {
            return Err(format!("tree {tree}: key {} is too much", key.escape_ascii()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 7;

    /// The dump of a database in which the threads have reached these transactions, with these shared rows.
    fn dump(at: &[u64], shared: &[(u64, u64, u64, u64)]) -> Vec<Item> {
        let mut contents: Contents = plan::TREES.iter().map(|name| ((*name).to_owned(), BTreeMap::new())).collect();
        for (thread, n) in (0..).zip(at) {
            let mut rows = Thread::new(SEED, thread);
            rows.forward(*n);
            for (tree, rows) in rows.contents {
                contents.entry(tree).or_default().extend(rows);
            }
            if *n > 0 {
                let counters = contents.get_mut(COUNTERS).unwrap();
                counters.insert(plan::counter_key(thread), n.to_le_bytes().into());
            }
        }
        for (row, version, thread, n) in shared {
            let rows = contents.get_mut(SHARED).unwrap();
            rows.insert(row.to_be_bytes().into(), shared_value(*version, *thread, *n));
        }
        let mut items = Vec::new();
        for (tree, rows) in contents {
            items.push(Item::Tree(tree));
            items.extend(rows.into_iter().map(|(key, value)| Item::Row(key, value)));
        }
        items.push(Item::End);
        items
    }

    fn told(lines: &[&str]) -> Model {
        let mut model = Model::new(SEED, 2);
        lines.iter().for_each(|line| model.line(line));
        model
    }

    /// Numbers of the first transactions of a thread that commit in one phase.
    fn commits(thread: u64, count: usize) -> Vec<u64> {
        (1..).filter(|n| matches!(plan(SEED, thread, *n).end, End::Commit(_))).take(count).collect()
    }

    #[test]
    fn flushed_is_required_and_what_was_acknowledged_before_it() {
        let (a, b) = (commits(0, 1)[0], commits(1, 1)[0]);
        let lines = [format!("i 0 {a}"), format!("a 0 {a}"), format!("i 1 {b}"), format!("a 1 {b} flushed")];
        let model = told(&lines.each_ref().map(String::as_str));
        assert!(model.clone().compare(&dump(&[a, b], &[])).is_ok());
        assert!(model.clone().compare(&dump(&[a, 0], &[])).unwrap_err().contains("acknowledged"));
        assert!(model.clone().compare(&dump(&[0, b], &[])).unwrap_err().contains("acknowledged"));
        // In the other order, nothing is promised for the first transaction.
        let lines = [format!("i 1 {b}"), format!("i 0 {a}"), format!("a 0 {a}"), format!("a 1 {b} flushed")];
        let model = told(&lines.each_ref().map(String::as_str));
        assert!(model.clone().compare(&dump(&[0, b], &[])).is_ok());
    }

    #[test]
    fn every_difference_is_found() {
        let n = commits(0, 3)[2];
        let mut model = Model::new(SEED, 2);
        (1..=n).for_each(|n| model.line(&format!("i 0 {n}")));
        let whole = dump(&[n, 0], &[]);
        assert!(model.clone().compare(&whole).is_ok());
        for at in 0..whole.len() {
            if let Item::Row(key, value) = &whole[at] {
                let mut without = whole.clone();
                without.remove(at);
                assert!(model.clone().compare(&without).is_err(), "row {at} is missing");
                let mut other = whole.clone();
                let mut changed = value.clone();
                *changed.last_mut().unwrap() ^= 1;
                other[at] = Item::Row(key.clone(), changed);
                assert!(model.clone().compare(&other).is_err(), "row {at} is different");
            }
        }
        let mut more = whole.clone();
        more.insert(more.len() - 1, Item::Row(vec![0xff; 20], vec![1]));
        assert!(model.clone().compare(&more).unwrap_err().contains("too much"));
        let mut found = whole.clone();
        found.insert(0, Item::Finding("a page".into()));
        assert!(model.clone().compare(&found).unwrap_err().contains("a page"));
        assert!(model.compare(&dump(&[n + 1, 0], &[])).is_err(), "more than was begun");
    }

    #[test]
    fn a_kill_may_take_what_was_not_flushed() {
        let (a, b) = (commits(0, 1)[0], commits(1, 1)[0]);
        let killed = [format!("i 0 {a} 3:1"), format!("a 0 {a}"), "open".to_owned()];
        let next = [format!("i 1 {b} 3:1"), format!("a 1 {b} flushed")];
        let lines = [&killed[..], &next[..]].concat();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let mut model = told(&lines);
        assert!(model.clone().compare(&dump(&[0, b], &[(3, 1, 1, b)])).is_ok());
        assert!(model.clone().compare(&dump(&[0, 0], &[])).is_err());
        // When the transaction runs again, it writes the next version.
        model.line(&format!("i 0 {a} 3:2"));
        assert!(model.clone().compare(&dump(&[a, b], &[(3, 2, 0, a)])).is_ok());
        assert!(model.clone().compare(&dump(&[a, b], &[(3, 1, 1, b)])).is_err());
    }

    #[test]
    fn shared_rows_have_no_holes() {
        let (a, b) = (commits(0, 1)[0], commits(1, 1)[0]);
        let lines = [format!("i 0 {a} 3:1"), format!("i 1 {b} 3:2")];
        let model = told(&lines.each_ref().map(String::as_str));
        assert!(model.clone().compare(&dump(&[a, b], &[(3, 2, 1, b)])).is_ok());
        assert!(model.clone().compare(&dump(&[a, 0], &[(3, 1, 0, a)])).is_ok());
        assert!(model.clone().compare(&dump(&[0, b], &[(3, 2, 1, b)])).unwrap_err().contains("version 1 is missing"));
        assert!(model.clone().compare(&dump(&[a, b], &[(3, 1, 0, a)])).is_err(), "an old version");
    }

    #[test]
    fn what_was_found_once_stays() {
        let n = commits(0, 2);
        let mut model = Model::new(SEED, 2);
        (1..=n[1]).for_each(|n| model.line(&format!("i 0 {n}")));
        model.compare(&dump(&[n[1], 0], &[])).unwrap();
        assert!(model.compare(&dump(&[n[0], 0], &[])).is_err());
    }
}
