//! Sorting the entries of an index that is being built.
//!
//! 1. Entries lie one after another in one buffer. The sort moves [`Place`]s, which hold the first eight bytes of each
//!    key: most comparisons need no more (Graefe, "Implementing Sorting in Database Systems", ACM Computing Surveys
//!    38(3), 2006, section 2.2).
//! 2. Entries that do not fit in memory go into runs: sorted trees of a scratch transaction, which is rolled back.

use super::index::Entry;
use super::load::BuildOptions;
use super::pace::Pace;
use super::transaction::Transaction;
use super::tree::Tree;
use crate::error::{Error, LockedOn, Result};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Sorts the entries of one index.
pub(super) struct Sort {
    /// The position of this index among those that are built.
    index: usize,
    bytes: Vec<u8>,
    places: Vec<Place>,
    runs: Vec<Tree>,
    bytes_max: usize,
}

/// Where an entry lies in the buffer: its key, then its value.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// The first bytes of the key.
    first: u64,
    at: u64,
    key_bytes: u32,
    value_bytes: u32,
    unique_bytes: u32,
}

impl Place {
    fn new(at: usize, entry: Entry<'_>) -> Self {
        let mut first = [0; 8];
        let len = entry.key.len().min(first.len());
        first[..len].copy_from_slice(&entry.key[..len]);
        Self {
            first: u64::from_be_bytes(first),
            at: at as u64,
            key_bytes: entry.key.len() as u32,
            value_bytes: entry.value.len() as u32,
            unique_bytes: entry.unique_bytes as u32,
        }
    }

    fn key(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.at as usize..][..self.key_bytes as usize]
    }

    fn value(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.at as usize + self.key_bytes as usize..][..self.value_bytes as usize]
    }

    /// Returns the value that the entry has in a run.
    fn to_run(self, bytes: &[u8]) -> Vec<u8> {
        [&self.unique_bytes.to_le_bytes()[..], self.value(bytes)].concat()
    }
}

/// Returns whether two entries exclude each other. Each is given as its key and the length of its unique part.
fn collide(one: (&[u8], usize), other: (&[u8], usize)) -> bool {
    let excludes = |(key, unique): (&[u8], usize), other: &[u8]| unique > 0 && other.starts_with(&key[..unique]);
    one.0 == other.0 || excludes(one, other.0) || excludes(other, one.0)
}

/// Reserves memory for `more` elements. Doubling the capacity would exceed the memory limit of the sort.
fn reserve<T>(vec: &mut Vec<T>, more: usize) {
    if vec.capacity() - vec.len() < more {
        vec.reserve_exact(more.max(vec.len() / 8 + 4096));
    }
}

impl Sort {
    pub(super) fn new(index: usize, bytes_max: usize) -> Self {
        Self { index, bytes: Vec::new(), places: Vec::new(), runs: Vec::new(), bytes_max }
    }

    pub(super) fn push(&mut self, scratch: &mut Transaction, entry: Entry<'_>, pace: &mut Pace<'_>) -> Result<()> {
        reserve(&mut self.bytes, entry.key.len() + entry.value.len());
        reserve(&mut self.places, 1);
        self.places.push(Place::new(self.bytes.len(), entry));
        self.bytes.extend_from_slice(entry.key);
        self.bytes.extend_from_slice(entry.value);
        let used = self.bytes.len() + self.places.len() * size_of::<Place>();
        if used >= self.bytes_max { self.end_run(scratch, pace) } else { Ok(()) }
    }

    fn sort(&mut self, pace: &mut Pace<'_>) {
        let bytes = &self.bytes;
        self.places.sort_unstable_by(|a, b| {
            pace.step();
            a.first.cmp(&b.first).then_with(|| a.key(bytes).cmp(b.key(bytes)))
        });
    }

    fn end_run(&mut self, scratch: &mut Transaction, pace: &mut Pace<'_>) -> Result<()> {
        self.sort(pace);
        pace.check()?;
        // A name that no other tree has, even after a crash, while the rollback of this transaction is still pending.
        // The name is logged, so it must depend only on the contents of the database. The tree is never visible.
        let name =
            format!("(run {} of index {} of transaction {})", self.runs.len(), self.index, scratch.txn.started()?.0);
        let rows = self.places.iter().map(|place| {
            pace.step();
            (place.key(&self.bytes), place.to_run(&self.bytes))
        });
        let run = scratch.build_tree(&name, BuildOptions { fill_percent: 100 }, rows).map_err(|error| match error {
            Error::DuplicateRow { on, .. } => Error::KeyExists { on },
            error => error,
        })?;
        pace.check()?;
        self.runs.push(run);
        self.bytes.clear();
        self.places.clear();
        Ok(())
    }

    /// Builds the tree.
    pub(super) fn finish(
        mut self,
        scratch: &mut Transaction,
        tx: &mut Transaction,
        name: &str,
        build: BuildOptions,
        pace: &mut Pace<'_>,
    ) -> Result<Tree> {
        if self.runs.is_empty() {
            self.sort(pace);
            pace.check()?;
        } else {
            self.end_run(scratch, pace)?;
            (self.bytes, self.places) = (Vec::new(), Vec::new());
        }
        let mut builder = tx.tree_builder(name, build)?;
        let tree = builder.tree_id();
        let mut last = None::<Vec<u8>>;
        let mut last_unique = 0;
        let mut put = |key: &[u8], value: &[u8], unique: usize| {
            pace.step();
            pace.check()?;
            if last.as_ref().is_some_and(|last| collide((last, last_unique), (key, unique))) {
                return Err(Error::KeyExists { on: LockedOn::row(tree, last.take().unwrap_or_default()) });
            }
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
            last_unique = unique;
            builder.push(key, value)
        };
        if self.runs.is_empty() {
            for place in &self.places {
                put(place.key(&self.bytes), place.value(&self.bytes), place.unique_bytes as usize)?;
            }
        } else {
            let mut runs: Vec<_> = self.runs.iter().map(|run| scratch.iter(run)).collect();
            let mut heads = BinaryHeap::new();
            for (number, run) in runs.iter_mut().enumerate() {
                heads.extend(run.next().transpose()?.map(|row: (Vec<u8>, Vec<u8>)| Reverse((row, number))));
            }
            while let Some(Reverse(((key, value), number))) = heads.pop() {
                let (unique, value) = value.split_at(4);
                put(&key, value, u32::from_le_bytes(unique.try_into().expect("4 bytes")) as usize)?;
                heads.extend(runs[number].next().transpose()?.map(|row| Reverse((row, number))));
            }
        }
        builder.finish()
    }
}
