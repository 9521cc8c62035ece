//! Small flushed commits under the engine's defaults or under a `seawall.toml`, which is read from the database's
//! directory as in production.

use super::{Repeat, Result, close, failed, fill, issued, put_settings, settings};
use crate::scan::{Order, Rows};
use crate::store::Settings;
use crate::stores::Seawall;
use crate::workload::{Values, key, thread_rng};
use rand::Rng as _;
use seawall::Tree;
use seawall_lab::run::{EngineWork, Issued, Progress, Ready, Worker};
use std::path::PathBuf;

const TABLE: &str = "rows";
const ROWS: u64 = 10_000;
const VALUE_BYTES: usize = 100;
const POOL_BYTES: u64 = 32 << 20;

/// A small database.
#[derive(Debug)]
pub(super) struct Commits {
    settings: Settings,
}

impl Commits {
    /// Creates and fills the database.
    pub(super) fn make(work: &EngineWork<'_>, progress: &mut dyn Progress) -> Result<Self> {
        let settings = settings(work.dir.join("commits"), POOL_BYTES, work.sizes, &[TABLE]);
        let rows = Rows { keys: ROWS, value_size: VALUE_BYTES as u64, order: Order::Ordered, seed: work.seed };
        fill(&rows, &settings, work, progress)?;
        Ok(Self { settings })
    }

    /// Opens the database for a round, under `seawall_toml` or the engine's defaults.
    pub(super) fn ready(&self, seawall_toml: Option<&str>, seed: u64) -> Result<Box<dyn Ready + '_>> {
        put_settings(&self.settings.dir, seawall_toml)?;
        let store = Seawall::open(&self.settings)?;
        let tree = store.database().open_tree(TABLE).map_err(failed)?;
        // Reads the whole tree into memory, so that a commit waits for the log only.
        let tx = store.database().begin().map_err(failed)?;
        for row in tx.iter(&tree) {
            row.map_err(failed)?;
        }
        drop(tx);
        Ok(Box::new(Open { commits: self, store, tree, seed }))
    }
}

/// The database, open for one round.
struct Open<'c> {
    commits: &'c Commits,
    store: Seawall,
    tree: Tree,
    seed: u64,
}

impl Ready for Open<'_> {
    fn worker(&self, thread: u32) -> Result<Box<dyn Worker + '_>> {
        let (mut rng, values) = (thread_rng(self.seed, thread as usize), Values::new(VALUE_BYTES, self.seed));
        let mut value = Vec::new();
        Ok(Box::new(Repeat(move || {
            values.fill(&mut value, &mut rng);
            let key = key(rng.random_range(0..ROWS));
            self.store.database().transact(|tx| tx.put(&self.tree, &key, &value)).map_err(failed)?;
            Ok(true)
        })))
    }

    fn dir(&self) -> PathBuf {
        self.commits.settings.dir.clone()
    }

    fn issued(&self) -> Issued {
        issued(&self.store)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let Self { commits, store, tree, .. } = *self;
        drop(tree);
        close(store)?;
        put_settings(&commits.settings.dir, None)
    }
}
