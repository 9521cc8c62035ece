//! A tree on a pool on a simulated disk, changed the way transactions change it.

use super::super::node::Position;
use crate::btree::{Cursor, Insert, Node, Remove, Replace, Seek, Tree, TreeDefect, check, redo};
use crate::buffer::{CONTROL_FILE, Control, Mtr, MtrSize, Pool, PoolConfig};
use crate::error::{Health, Result};
use crate::format::control::{ControlBlock, Torn};
use crate::format::tag::{Layer, layer};
use crate::format::{Lsn, Malformed, PageId, TreeId, TxnId};
use crate::log::{FIRST_LSN, Log, LogConfig, MTR_BYTES_MAX};
use crate::space::{self, Purpose, Space};
use seawall_io::{FlushMethod, SystemClock};
use seawall_sim::{Process, SimDisk, SimOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub(super) const TREE: TreeId = TreeId::FIRST_USER;
const DIR: &str = "/db";

pub(super) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Applies a record of the log to its page.
pub(super) fn apply(tag: u8, body: &[u8], page: &mut [u8]) -> std::result::Result<(), Malformed> {
    match layer(tag) {
        Some(Layer::Space) => space::redo(tag, body, page),
        Some(Layer::Btree) => redo(tag, body, page),
        other => panic!("{other:?}"),
    }
}

#[derive(Debug)]
pub(super) struct Rig {
    pub disk: Arc<SimDisk>,
    pub pool: Arc<Pool>,
    pub space: Arc<Space>,
    pub tree: Tree,
}

pub(super) fn log_config(capacity_bytes: u64) -> LogConfig {
    LogConfig {
        segment_bytes: 256 << 10,
        capacity_bytes,
        buffer_bytes: 4 * MTR_BYTES_MAX,
        ..LogConfig::new(DIR, [9; 16])
    }
}

impl Rig {
    pub(super) fn new(page_bytes: usize, frames: u64) -> Self {
        Self::with_log(page_bytes, frames, 8 << 20)
    }

    pub(super) fn with_log(page_bytes: usize, frames: u64, log_bytes: u64) -> Self {
        let disk = SimDisk::new(SimOptions { seed: 1, ..SimOptions::default() });
        let process = Arc::new(Process::new(&disk));
        let health = Arc::new(Health::default());
        let block = ControlBlock {
            database: [9; 16],
            page_bytes: page_bytes as u32,
            block_bytes: 4096,
            segment_bytes: 256 << 10,
            incarnation: 1,
            torn: Torn::Off,
            clean: false,
            checkpoint: FIRST_LSN,
            log_end: FIRST_LSN,
            next_txn: TxnId(1),
            log_incarnation: 0,
            log_buffer: 1 << 20,
        };
        let config = PoolConfig {
            dir: DIR.into(),
            page_bytes,
            pool_bytes: frames * page_bytes as u64,
            pool_bytes_max: frames * page_bytes as u64,
            method: FlushMethod::ODirect,
            doublewrite_method: FlushMethod::ODirect,
            torn: Torn::Off,
            atomic_writes: false,
            stats: Arc::default(),
            clock: Arc::new(SystemClock::default()),
            io_capacity: 2000,
            io_capacity_burst: 20000,
            max_dirty_percent: 90,
            max_checkpoint_age_percent: 75,
            deferred_percent_min: 20,
            deferred_percent: 20,
            redo: apply,
            prefetch_depth: 32,
            prefetch_depth_total: 256,
            patience: Duration::from_secs(20),
        };
        let control = Path::new(DIR).join(CONTROL_FILE);
        let control = Control::create(process.clone(), &control, &config.stats, block).unwrap();
        let log = Arc::new(Log::create(process.clone(), log_config(log_bytes), health.clone()).unwrap());
        let pool = Arc::new(Pool::create(process.clone(), config, control, log, health).unwrap());
        let space = Arc::new(Space::create(pool.clone(), 512).unwrap());
        let tree = new_tree(&space, TREE);
        Self { disk, pool, space, tree }
    }

    /// Inserts or replaces, splitting as needed.
    pub(super) fn put(&self, key: &[u8], payload: &[u8]) {
        self.put_at(key, payload, TxnId::NONE);
    }

    pub(super) fn put_at(&self, key: &[u8], payload: &[u8], horizon: TxnId) {
        self.put_or_fail(key, payload, horizon).unwrap();
    }

    /// Inserts or replaces, or fails without any change.
    pub(super) fn try_to_put(&self, key: &[u8], payload: &[u8]) -> Result<()> {
        self.put_or_fail(key, payload, TxnId::NONE)
    }

    fn put_or_fail(&self, key: &[u8], payload: &[u8], horizon: TxnId) -> Result<()> {
        while !self.pool.retry(|| self.try_put(key, payload))? {
            self.tree.make_room(&self.space, key, payload.len(), Purpose::Grow, horizon)?;
        }
        Ok(())
    }

    fn try_put(&self, key: &[u8], payload: &[u8]) -> Result<bool, crate::error::Stop> {
        let mut mtr = Mtr::begin(&self.pool, MtrSize::Small)?;
        let leaf = self.tree.leaf_for_change(&self.pool, &mut mtr, key)?;
        let node = Node::open(mtr.page(leaf))?;
        assert!(node.covers(key));
        let at = node.search(key)?;
        if !node.fits(at, key.len(), payload.len())? {
            return Ok(false);
        }
        let prefix_len = node.prefix_len();
        match at {
            Position { slot, found: true } => mtr.run(leaf, &Replace::new(slot, payload)),
            Position { slot, found: false } => mtr.run(leaf, &Insert::new(slot, prefix_len, key, payload)),
        }
        mtr.commit();
        Ok(true)
    }

    /// Removes and merges; returns whether the key existed.
    pub(super) fn delete(&self, key: &[u8]) -> bool {
        self.try_delete(key).unwrap()
    }

    /// Like [`Rig::delete`], but may fail: only the merge can.
    pub(super) fn try_delete(&self, key: &[u8]) -> Result<bool> {
        let found = self.pool.retry(|| {
            let mut mtr = Mtr::begin(&self.pool, MtrSize::Small)?;
            let leaf = self.tree.leaf_for_change(&self.pool, &mut mtr, key)?;
            let node = Node::open(mtr.page(leaf))?;
            let at = node.search(key)?;
            if at.found {
                mtr.run(leaf, &Remove::new(at.slot));
                mtr.commit();
            }
            Ok(at.found)
        });
        self.tree.tidy(&self.space, key)?;
        found
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.pool
            .retry(|| {
                let leaf = self.tree.leaf_shared(&self.pool, key)?;
                let node = Node::open(&leaf)?;
                let at = node.search(key)?;
                Ok(if at.found { Some(node.payload(at.slot)?.to_vec()) } else { None })
            })
            .unwrap()
    }

    pub(super) fn forward(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut cursor = Cursor::new(self.tree);
        let mut all = Vec::new();
        let mut on = cursor.seek(&self.pool, Seek::First).unwrap();
        while on {
            all.push((cursor.key().to_vec(), cursor.payload().unwrap().to_vec()));
            on = cursor.next(&self.pool).unwrap();
        }
        all
    }

    pub(super) fn backward(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut cursor = Cursor::new(self.tree);
        let mut all = Vec::new();
        let mut on = cursor.seek(&self.pool, Seek::Last).unwrap();
        while on {
            all.push((cursor.key().to_vec(), cursor.payload().unwrap().to_vec()));
            on = cursor.prev(&self.pool).unwrap();
        }
        all.reverse();
        all
    }

    pub(super) fn check(&self) -> (Vec<TreeDefect>, BTreeSet<PageId>) {
        let mut reached = BTreeSet::new();
        let findings =
            check(self.tree, &self.pool, || false, |page, _| assert!(reached.insert(page)), |_, _, _| Ok(()));
        (findings, reached)
    }

    /// Checks that the tree is whole, holds the model's entries, and owns exactly the pages it uses.
    pub(super) fn verify(&self, model: &Model) {
        let (findings, reached) = self.check();
        assert_eq!(findings, []);
        let mut owned = BTreeSet::new();
        let visit = |page| {
            owned.insert(page);
            Ok(())
        };
        self.space.for_each_owned(self.tree.id, visit).unwrap();
        assert_eq!(reached, owned);
        let expected: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        assert!(self.forward() == expected, "scan forward");
        assert!(self.backward() == expected, "scan backward");
        assert_eq!(self.pool.health().first_error().map(|e| e.to_string()), None);
    }

    /// The bytes used in each leaf.
    pub(super) fn leaves(&self) -> Vec<usize> {
        let mut used = Vec::new();
        let mut key = Some(Vec::new());
        while let Some(at) = key {
            key = self
                .pool
                .retry(|| {
                    let leaf = self.tree.leaf_shared(&self.pool, &at)?;
                    let node = Node::open(&leaf)?;
                    used.push(node.used_bytes());
                    Ok(node.upper().map(<[u8]>::to_vec))
                })
                .unwrap();
        }
        used
    }

    pub(super) fn root_level(&self) -> u8 {
        self.pool.retry(|| Ok(Node::open(&self.pool.shared(self.tree.root)?)?.level())).unwrap()
    }
}

pub(super) fn new_tree(space: &Space, id: TreeId) -> Tree {
    let pool = space.pool();
    let mut reserved = space.reserve(id, PageId::NONE, 1, Purpose::Grow).unwrap();
    pool.retry(|| {
        let mut mtr = Mtr::begin(pool, MtrSize::Small)?;
        let tree = Tree::create(id, &mut mtr, &mut reserved)?;
        assert!(mtr.commit() > Lsn::ZERO);
        Ok(tree)
    })
    .unwrap()
}

/// A payload of an entry without a header.
pub(super) fn plain(value: &[u8]) -> Vec<u8> {
    let mut payload = vec![0];
    payload.extend_from_slice(value);
    payload
}
