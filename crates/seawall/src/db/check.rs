//! Verifies the whole database.
//!
//! 1. It verifies pages on the disk (checksums), trees (order, fences, long values), undo logs, each older version
//!    that a view may need, and the owner of each page against the references to it. It continues after a finding.
//! 2. It writes dirty pages to the data file and changes nothing else. Purge, rollback and compactions are
//!    blocked meanwhile. User transactions may run, but a concurrent change may look like damage; then the
//!    check starts over, and fails if it finds no quiet moment.
//! 3. An owned page without a reference is no finding if an undo record still needs it (older versions, long
//!    values, trees dropped but not yet purged).

use super::background::Work;
use super::database::Database;
use crate::btree::{self, Cursor, DELETED, Entry, HEADER, Node, OVERFLOW, OverflowRef, Seek, Tree};
use crate::buffer::{CONTROL_FILE, Control, DATA_FILE, may_latch};
use crate::error::{Corruption, Error, Result};
use crate::format::page::{self, PageKind};
use crate::format::{PageId, TreeId};
use crate::space::Check;
use crate::txn::undo::{OldValue, UndoRecord};
use crate::txn::views::OldestView;
use crate::txn::{CatalogRow, Engine};
use seawall_io::{AlignedBuf, Cause, Disk, File, FileClass, FileOptions, FlushMethod, IoStats, OsDisk};
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Pages read at a time, bytes.
const READ_BYTES: usize = 1 << 20;
/// The number of attempts to find a quiet moment.
const LOOKS_MAX: u32 = 3;
/// The wait between two attempts, in which purge catches up.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// How often an invalid page is read: a write of it may be in progress.
const READS_MAX: u32 = 5;

/// A part of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Part {
    /// A page on the disk.
    Page,
    /// A tree: order, fences, long values.
    Tree,
    /// An undo log.
    Undo,
    /// The owners of pages.
    Space,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Page => "page",
            Self::Tree => "tree",
            Self::Undo => "undo",
            Self::Space => "space",
        })
    }
}

/// Damage that a check has found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Damage {
    /// The part of the database.
    pub part: Part,
    /// The page.
    pub page: PageId,
    /// The tree, by name if it has one.
    pub tree: Option<String>,
    /// The evidence.
    pub what: String,
    /// What to do.
    pub advice: &'static str,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: page {}", self.part, self.page)?;
        if let Some(tree) = &self.tree {
            write!(f, " of tree {tree:?}")?;
        }
        let end = if self.what.ends_with(['.', '?']) { "" } else { "." };
        write!(f, ": {}{end} {}", self.what, self.advice)
    }
}

pub(super) fn advice(part: Part) -> &'static str {
    match part {
        Part::Page => {
            "Restore the database from a backup; `seawall dump --skip-damaged` saves everything that can still be \
             read. Then check the disk"
        }
        Part::Tree => {
            "Restore the database from a backup, or dump it (--skip-damaged) and load it into a new one. Please \
             report it"
        }
        Part::Undo => {
            "Old versions may be wrong: restore the database from a backup, or dump it and load it. Please report it"
        }
        Part::Space => "Dump the database and load it into a new one before it goes on growing. Please report it",
    }
}

impl Database {
    /// Verifies every page, tree, space map and undo record, and each older version of a row that a view may need.
    /// Returns an empty list if it finds no damage. Reads the whole data file: minutes for many gigabytes.
    ///
    /// # Errors
    /// [`Error::Usage`] if every attempt met concurrent changes; [`Error::Poisoned`] if a failed write has
    /// stopped the database: open it again first; [`Error::ShutDown`] if it is shut down meanwhile;
    /// [`Error::Io`] if the file cannot be read at all. Damage is a finding, not an error.
    ///
    /// ```
    /// let db = seawall::Database::in_memory()?;
    /// db.create_tree("t")?;
    /// assert!(db.check()?.is_empty());
    /// # Ok::<(), seawall::Error>(())
    /// ```
    pub fn check(&self) -> Result<Vec<Damage>> {
        self.here()?;
        may_latch()?;
        let work = &*self.inner.work;
        for look in 1..=LOOKS_MAX {
            let held = work.hold();
            let mut found = all(work, look == LOOKS_MAX)?;
            drop(held);
            if !found.unquiet || found.findings.is_empty() {
                return Ok(found.findings);
            }
            // Page findings do not depend on a quiet moment.
            found.findings.retain(|finding| finding.part == Part::Page);
            if look == LOOKS_MAX && !found.findings.is_empty() {
                return Ok(found.findings);
            }
            if work.engine.may_wait && look < LOOKS_MAX {
                work.engine.clock.sleep(BETWEEN_LOOKS);
            }
        }
        Err(Error::Usage(format!(
            "the database was changed during each of {LOOKS_MAX} checks, so the check has no result: run it while \
             there are no writes"
        )))
    }
}

/// Verifies only the checksums of the pages in the data file of `dir`, for a database that cannot be opened. It
/// accepts pages of zeroes, which were never written. It also reports a page torn by a power loss, although an
/// opening would repair it from the doublewrite area.
///
/// # Errors
/// [`Error::Locked`] if it is open; [`Error::NotADatabase`], [`Error::OtherFormat`], [`Error::Corrupt`] if
/// its control file cannot be read; [`Error::Io`].
pub fn check_pages(dir: &Path) -> Result<Vec<Damage>> {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::synchronous());
    let stats = Arc::new(IoStats::new());
    let control = Control::open(disk.clone(), &dir.join(CONTROL_FILE), &stats)?;
    let page_bytes = control.current().page_bytes as usize;
    let path = dir.join(DATA_FILE);
    let data = File::open(disk, &path, FileOptions::new(FileClass::Data, FlushMethod::ODirect).stats(&stats))?;
    let mut found = Vec::new();
    let mut buf = AlignedBuf::zeroed(page_bytes);
    let pages = u32::try_from(data.len() / page_bytes as u64).unwrap_or(u32::MAX);
    for number in (0..pages).map(PageId) {
        let read = data.read_at(u64::from(number.0) * page_bytes as u64, &mut buf, Cause::Other);
        let what = match read.map(|()| page::verify(&buf, number, &path)) {
            Ok(Ok(())) => continue,
            Ok(Err(_)) if buf.iter().all(|&byte| byte == 0) => continue,
            Ok(Err(corruption)) => on_disk(corruption),
            Err(error) => error.to_string(),
        };
        found.push(Damage { part: Part::Page, page: number, tree: None, what, advice: advice(Part::Page) });
    }
    Ok(found)
}

/// The evidence, for a message that already names the page.
fn on_disk(corruption: Corruption) -> String {
    match corruption {
        Corruption::ChecksumMismatch { path, expected, found, .. } => {
            format!("{} has checksum {found:#010x} there where {expected:#010x} was expected", path.display())
        }
        Corruption::Misdirected { path, found, .. } => {
            format!("{} holds page {found} there: a write went to the wrong place", path.display())
        }
        other => other.to_string(),
    }
}

struct Found {
    findings: Vec<Damage>,
    /// There was a concurrent change.
    unquiet: bool,
}

/// Runs the whole check. Unless it is the last attempt, it gives up early when a finding may come from a
/// concurrent change.
fn all(work: &Work, last: bool) -> Result<Found> {
    let engine = &*work.engine;
    let head = engine.log().head();
    let unquiet = || engine.log().head() != head;
    // If the flush succeeds, the disk holds the current state. In a database stopped by a failed write it does
    // not: a page may be torn on the disk, or old because the device has lost a write that it could not flush.
    // The next opening restores it. One unreadable page does not prevent the others from being written.
    let flushed = if engine.health().is_read_only() { Ok(()) } else { engine.pool().flush_all().map(drop) };
    engine.health().check_for_reads()?;
    flushed.or_else(|error| if error.is_damage() { Ok(()) } else { Err(error) })?;
    let mut look = Look {
        engine,
        names: BTreeMap::new(),
        found: Vec::new(),
        oldest: engine.active.oldest_view(),
        values: HashSet::new(),
        unclear: HashSet::new(),
    };
    let mut check = engine.space.check()?;
    look.trees(&mut check);
    engine.instance.here()?;
    look.undo(&mut check)?;
    engine.instance.here()?;
    if last || look.found.is_empty() || !unquiet() {
        look.pages()?;
    }
    // The log has not moved: the file was neither grown nor shortened meanwhile.
    if let Some(what) = look.cut_off().filter(|_| !unquiet()) {
        look.find(Part::Page, PageId(engine.pool().file_pages()), None, what);
    }
    let unclear: Vec<TreeId> = look.unclear.iter().copied().collect();
    for finding in check.finish(&unclear) {
        let part = if finding.what.starts_with("undo") { Part::Undo } else { Part::Space };
        look.find(part, finding.page, None, finding.what);
    }
    let Look { mut found, .. } = look;
    // A page that is damaged on the disk is damaged for every reader: report it once.
    let damaged: HashSet<PageId> = found.iter().filter(|f| f.part == Part::Page).map(|f| f.page).collect();
    found.retain(|f| f.part == Part::Page || !damaged.contains(&f.page));
    found.sort_by_key(|f| (f.part, f.page));
    found.dedup();
    // A write may have failed since.
    engine.health().check_for_reads()?;
    Ok(Found { findings: found, unquiet: unquiet() })
}

struct Look<'e> {
    engine: &'e Engine,
    names: BTreeMap<TreeId, String>,
    found: Vec<Damage>,
    /// What every view sees.
    oldest: OldestView,
    /// Pages of long values that were reached.
    values: HashSet<PageId>,
    /// Trees whose pages may be unreferenced: dropped and not yet purged, or damaged so that the path to them
    /// is lost.
    unclear: HashSet<TreeId>,
}

impl Look<'_> {
    fn find(&mut self, part: Part, page: PageId, tree: Option<TreeId>, what: String) {
        self.unclear.extend(tree.filter(|_| part != Part::Space));
        let tree = tree.map(|id| self.names.get(&id).cloned().unwrap_or_else(|| format!("#{id}")));
        self.found.push(Damage { part, page, tree, what, advice: advice(part) });
    }

    /// Checks all trees that may still be visible to a transaction, including those with deleted names.
    fn trees(&mut self, check: &mut Check) {
        self.names.insert(TreeId::CATALOG, "(catalog)".into());
        let catalog = Tree { id: TreeId::CATALOG, root: self.engine.catalog_root };
        self.tree(catalog, check);
        let rows = match self.catalog(catalog) {
            Ok(rows) => rows,
            Err(error) => {
                let what = format!("not all names of trees can be read: {error}");
                return self.find(Part::Tree, catalog.root, Some(catalog.id), what);
            }
        };
        let mut seen = HashSet::new();
        // Live names first: a renamed tree also has an entry under its old name, marked as deleted.
        for deleted in [false, true] {
            for (name, row, _) in rows.iter().filter(|row| row.2 == deleted) {
                if !seen.insert(row.tree) {
                    continue;
                }
                self.names.insert(row.tree, name.clone());
                let tree = Tree { id: row.tree, root: row.root };
                if deleted {
                    self.unclear.insert(row.tree);
                    if !self.is_tree(tree) {
                        continue;
                    }
                }
                self.tree(tree, check);
            }
        }
    }

    fn catalog(&self, catalog: Tree) -> Result<Vec<(String, CatalogRow, bool)>> {
        let (pool, mut rows) = (self.engine.pool(), Vec::new());
        let mut cursor = Cursor::new(catalog);
        let mut there = cursor.seek(pool, Seek::First)?;
        while there {
            if let Some(entry) = cursor.entry()? {
                let row = CatalogRow::decode(entry.value);
                let row = row.map_err(|why| Error::bad_page(cursor.leaf_page(), why.to_string()))?;
                rows.push((String::from_utf8_lossy(cursor.key()).into_owned(), row, entry.flags & DELETED != 0));
            }
            there = cursor.next(pool)?;
        }
        Ok(rows)
    }

    fn is_tree(&self, tree: Tree) -> bool {
        let pool = self.engine.pool();
        let found = pool.retry(|| {
            let root = pool.shared(tree.root)?;
            Ok(matches!(page::kind(&root), Some(PageKind::Leaf | PageKind::Branch)) && page::tree(&root) == tree.id)
        });
        found.unwrap_or(false)
    }

    fn tree(&mut self, tree: Tree, check: &mut Check) {
        let (engine, oldest, values) = (self.engine, &self.oldest, &mut self.values);
        let reached = |page, kind| {
            check.reach(page, tree.id);
            if kind == PageKind::Overflow {
                values.insert(page);
            }
        };
        // The first finding of each page.
        let mut versions = BTreeMap::new();
        let each = |leaf: &Node<'_>, slot, entry: &Entry<'_>| {
            if entry.flags & HEADER != 0 && !oldest.sees(entry.writer) {
                let key = leaf.key(slot)?;
                if let Err((at, error)) = engine.check_versions((tree.id, &key), entry, oldest) {
                    let what = || format!("an older version of key \"{}\" is lost: {error}", key.escape_ascii());
                    versions.entry(at.page()).or_insert_with(what);
                }
            }
            Ok(())
        };
        for finding in btree::check(tree, engine.pool(), || engine.instance.is_shut(), reached, each) {
            self.find(Part::Tree, finding.page, Some(tree.id), finding.why);
        }
        for (page, what) in versions {
            self.find(Part::Undo, page, Some(tree.id), what);
        }
    }

    /// Checks the undo logs, and the pages that their records still reference.
    fn undo(&mut self, check: &mut Check) -> Result<()> {
        let engine = self.engine;
        let before = check.findings().len();
        engine.undo.check(check)?;
        if check.findings().len() > before {
            // Pages after an unreadable or damaged page cannot be reached.
            self.unclear.insert(TreeId::UNDO);
        }
        let mut held = Vec::new();
        let dropped = &mut self.unclear;
        let visit = |txn, record: UndoRecord<'_>| match record {
            UndoRecord::DropTree { tree, .. } => drop(dropped.insert(tree)),
            UndoRecord::CreateTree { tree, .. } if engine.active.is_active(txn) => drop(dropped.insert(tree)),
            UndoRecord::Update { tree, previous, value: OldValue::Whole(value), .. }
                if previous.flags & (DELETED | OVERFLOW) == OVERFLOW =>
            {
                held.extend(OverflowRef::decode(value).map(|reference| (tree, reference.head)));
            }
            UndoRecord::Delete { tree, overflow, .. } if !overflow.is_empty() => {
                held.extend(OverflowRef::decode(overflow).map(|reference| (tree, reference.head)));
            }
            // A value written by a transaction that has ended is in a leaf, or in an undo record of the
            // transaction that replaced it.
            UndoRecord::OverflowWritten { tree, head } if engine.active.is_active(txn) => held.push((tree, head)),
            _ => {}
        };
        let visited = engine.undo.for_each_record(visit, || engine.instance.is_shut());
        if let Err(error) = visited {
            let what = format!("not all records can be read, so lost pages cannot be found: {error}");
            self.unclear.insert(TreeId::UNDO);
            self.find(Part::Undo, PageId::NONE, None, what);
        }
        for (tree, head) in held {
            // A drop can be purged before older records of the same tree: pages that they reference were
            // freed with the tree, or are freed with the records.
            let unnamed = !self.names.contains_key(&tree);
            let gone = self.unclear.contains(&tree) || (unnamed && !engine.space.is_owner(tree, head).unwrap_or(false));
            if gone || !self.values.insert(head) {
                continue;
            }
            let values = &mut self.values;
            let walked = btree::check_overflow(engine.pool(), tree, head, |page| {
                values.insert(page);
                check.reach(page, tree);
            });
            if let Err(error) = walked {
                self.find(Part::Undo, head, Some(tree), format!("an undo record refers to a long value: {error}"));
            }
        }
        Ok(())
    }

    /// Returns the finding for a data file that is shorter than its header page says, also where no page is owned: the
    /// file grows before the header, and is shortened after it.
    fn cut_off(&self) -> Option<String> {
        // In this order, in case the file is being shortened.
        let (there, pages) = (self.engine.pool().file_pages(), self.engine.space.pages());
        let path = self.engine.pool().data_path().display();
        (there < pages).then(|| format!("{path} ends here, and had {pages} pages: was it truncated or copied in part?"))
    }

    /// Checks every owned page, as it is on the disk.
    fn pages(&mut self) -> Result<()> {
        let (pool, pages) = (self.engine.pool(), self.engine.space.pages());
        let page_bytes = pool.page_bytes();
        let mut buf = AlignedBuf::zeroed(READ_BYTES);
        let at_once = (READ_BYTES / page_bytes) as u32;
        for first in (0..pages).step_by(at_once as usize) {
            self.engine.instance.here()?;
            let count = at_once.min(pages - first);
            let chunk = &mut buf[..count as usize * page_bytes];
            let offset = u64::from(first) * page_bytes as u64;
            let read = pool.data_file().read_at(offset, chunk, Cause::Other);
            for (number, bytes) in (first..).map(PageId).zip(chunk.chunks_exact(page_bytes)) {
                if read.is_err() || page::verify(bytes, number, pool.data_path()).is_err() {
                    self.look_again(number)?;
                }
            }
        }
        Ok(())
    }

    /// Reads again a page that failed its check. This is no damage if the page is free, was never written, or
    /// is being written now.
    fn look_again(&mut self, number: PageId) -> Result<()> {
        // A map that cannot be read is a finding of its own. Without the map, it is unknown whether a page of
        // zeroes is valid.
        let known = self.engine.space.owner(number);
        let unknown = known.is_err();
        let owner = known.unwrap_or(TreeId::SYSTEM);
        if owner == TreeId::FREE {
            return Ok(());
        }
        let pool = self.engine.pool();
        let mut buf = AlignedBuf::zeroed(pool.page_bytes());
        let offset = u64::from(number.0) * pool.page_bytes() as u64;
        let (mut last, mut resident) = (None, false);
        for attempt in 0..READS_MAX {
            if attempt > 0 {
                self.engine.clock.sleep(Duration::from_millis(2));
            }
            // Checked before the read: a resident page may be written, and evicted, at any moment after that.
            resident = pool.shared(number).is_ok();
            let error = match pool.data_file().read_at(offset, &mut buf, Cause::Other) {
                Ok(()) => match page::verify(&buf, number, pool.data_path()) {
                    Ok(()) => return Ok(()),
                    Err(corruption) => Ok(corruption),
                },
                Err(error) => Err(error),
            };
            last = Some(error);
        }
        let zeroes = matches!(last, Some(Ok(_))) && buf.iter().all(|&byte| byte == 0);
        if zeroes && (resident || unknown) {
            return Ok(());
        }
        let what = match last {
            Some(Err(error)) => error.to_string(),
            Some(Ok(_)) if zeroes => {
                format!("{} holds only zeroes there: it was never written", pool.data_path().display())
            }
            Some(Ok(corruption)) => on_disk(corruption),
            None => return Ok(()),
        };
        self.unclear.insert(owner);
        let tree = (owner >= TreeId::CATALOG).then_some(owner);
        self.find(Part::Page, number, tree, what);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::btree::{Entry, Node, Replace};
    use crate::buffer::{Mtr, MtrSize};
    use crate::{Background, Database, Env, Error, Options, PageId, Part};
    use seawall_io::{Disk as _, OpenHow, SystemClock};
    use seawall_sim::{Process, SimDisk, SimOptions};
    use std::sync::Arc;
    use std::time::Duration;

    fn open(sim: &Arc<SimDisk>) -> Database {
        let env = Env {
            disk: Arc::new(Process::new(sim)),
            clock: Arc::new(SystemClock::default()),
            seed: 5,
            background: Background::Steps,
        };
        let options = Options::default()
            .with_page_size(4096)
            .with_pool_size(1 << 20)
            .with_data_initial_size(1 << 20)
            .with_log_segment_size(256 << 10)
            .with_log_capacity(4 << 20)
            .with_log_buffer_size(1 << 20);
        Database::open_in(env, "/db", options).unwrap()
    }

    /// A database with trees, long values, old versions under a snapshot, dropped trees and an open
    /// transaction.
    #[test]
    fn what_undo_holds_on_to_is_not_lost() {
        let sim = SimDisk::new(SimOptions { seed: 3, ..SimOptions::default() });
        let db = open(&sim);
        let (a, b) = (db.create_tree("a").unwrap(), db.create_tree("b").unwrap());
        for i in 0..200u32 {
            let len = if i % 10 == 0 { 9_000 } else { 50 };
            db.transact(|tx| tx.put(&a, &i.to_be_bytes(), &vec![1; len])).unwrap();
            db.transact(|tx| tx.put(&b, &i.to_be_bytes(), &vec![2; len])).unwrap();
        }
        let snapshot = db.begin().unwrap();
        assert!(snapshot.get(&a, &0u32.to_be_bytes()).unwrap().is_some());
        db.transact(|tx| {
            for i in (0..200u32).step_by(10) {
                tx.put(&a, &i.to_be_bytes(), &vec![3; 7_000])?;
            }
            tx.delete(&a, &5u32.to_be_bytes())?;
            tx.delete(&a, &10u32.to_be_bytes()).map(drop)
        })
        .unwrap();
        db.transact(|tx| tx.put(&a, &10u32.to_be_bytes(), &[4; 6_000])).unwrap();
        db.drop_tree("b").unwrap();
        db.create_tree("b").unwrap();
        db.rename_tree("a", "c").unwrap();
        let mut open_still = db.begin().unwrap();
        open_still.put(&a, b"new", &vec![9; 20_000]).unwrap();
        open_still.create_tree("d").unwrap();
        assert_eq!(db.check().unwrap(), []);
        drop((snapshot, open_still));
        while db.step().unwrap() {}
        assert_eq!(db.stats().purge.history, 0);
        assert_eq!(db.check().unwrap(), []);
        db.close().unwrap();
        assert_eq!(open(&sim).check().unwrap(), []);
    }

    #[test]
    fn writers_meanwhile_are_no_damage() {
        let db = Database::in_memory().unwrap();
        let tree = db.create_tree("t").unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..2u32 {
                let (db, tree, stop) = (&db, &tree, &stop);
                scope.spawn(move || {
                    for i in 0u32.. {
                        if stop.load(std::sync::atomic::Ordering::Relaxed) {
                            break;
                        }
                        let key = [thread, i % 500].map(u32::to_be_bytes).concat();
                        let len = if i % 9 == 0 { 10_000 } else { 300 };
                        db.transact(|tx| tx.put(tree, &key, &vec![i as u8; len])).unwrap();
                        std::thread::sleep(Duration::from_micros(500));
                    }
                });
            }
            for _ in 0..3 {
                match db.check() {
                    Ok(found) => assert_eq!(found, []),
                    Err(error) => assert!(error.to_string().contains("was changed during each"), "{error}"),
                }
                assert!(db.stats().txn.commits > 0);
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        assert_eq!(db.check().unwrap(), []);
    }

    /// Damage in a dropped tree leaks no page: the space maps still name pages that the tree no longer
    /// references.
    #[test]
    fn a_damaged_tree_is_dropped_too() {
        for every in [1, 7] {
            let sim = SimDisk::new(SimOptions { seed: 6, ..SimOptions::default() });
            let db = open(&sim);
            let tree = db.create_tree("t").unwrap();
            for i in 0..600u32 {
                let len = if i % 20 == 0 { 9_000 } else { 100 };
                db.transact(|tx| tx.put(&tree, &i.to_be_bytes(), &vec![7; len])).unwrap();
            }
            let mut pages = Vec::new();
            let owned = db.inner.engine().space.for_each_owned(tree.id(), |page| {
                pages.push(page);
                Ok(())
            });
            owned.unwrap();
            db.close().unwrap();
            for page in pages.iter().step_by(every) {
                sim.flip_bit("/db/data", u64::from(page.0) * 4096 + 3_001, 5).unwrap();
            }
            let db = open(&sim);
            assert!(!db.check().unwrap().is_empty());
            db.drop_tree("t").unwrap();
            while db.step().unwrap() {}
            assert_eq!(db.stats().purge.history, 0);
            assert_eq!(db.check().unwrap(), [], "every {every}");
        }
    }

    #[test]
    fn a_version_that_cannot_be_made_is_found() {
        let db = open(&SimDisk::new(SimOptions { seed: 7, ..SimOptions::default() }));
        let tree = db.create_tree("t").unwrap();
        let put = |last| db.transact(|tx| tx.put(&tree, b"row", &[&[7; 200][..], &[last]].concat())).unwrap();
        put(1);
        let snapshot = db.begin().unwrap();
        assert!(snapshot.get(&tree, b"row").unwrap().is_some());
        put(2);
        assert_eq!(db.check().unwrap(), []);
        // The undo record has only the byte that is different, behind the end of this value.
        let engine = db.inner.engine();
        let state = engine.trees.known(tree.id()).unwrap();
        let shortened = engine.pool().retry(|| {
            let mut mtr = Mtr::begin(engine.pool(), MtrSize::Small)?;
            let leaf = state.at.leaf_for_change(engine.pool(), &mut mtr, b"row")?;
            let entry = Node::open(mtr.page(leaf))?.entry(0)?;
            let header = Entry::header_bytes(entry.flags, entry.writer, entry.undo);
            let payload = [&header[..], &entry.value[..20]].concat();
            mtr.run(leaf, &Replace::new(0, &payload));
            mtr.commit();
            Ok(())
        });
        shortened.unwrap();
        assert!(matches!(snapshot.get(&tree, b"row"), Err(Error::Corrupt(_))));
        let found = db.check().unwrap();
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!((found[0].part, found[0].tree.as_deref()), (Part::Undo, Some("t")));
        assert!(found[0].what.contains("key \"row\""), "{}", found[0].what);
        drop(snapshot);
        while db.step().unwrap() {}
        assert_eq!(db.check().unwrap(), [], "no view needs that version now");
    }

    /// A file that was cut off is too short also where nothing is stored, and a read beyond its end names the cause.
    #[test]
    fn a_file_that_was_cut_off_is_found() {
        for whole in [true, false] {
            let sim = SimDisk::new(SimOptions { seed: 4, ..SimOptions::default() });
            let db = open(&sim);
            let tree = db.create_tree("t").unwrap();
            for i in 0..500u32 {
                db.transact(|tx| tx.put(&tree, &i.to_be_bytes(), &[7; 100])).unwrap();
            }
            assert_eq!(db.check().unwrap(), []);
            let mut last = PageId(0);
            let owned = db.inner.engine().space.for_each_owned(tree.id(), |page| {
                last = last.max(page);
                Ok(())
            });
            owned.unwrap();
            db.close().unwrap();
            let pages = sim.seen("/db/data").unwrap().len() as u64 / 4096;
            let there = if whole { pages - 10 } else { u64::from(last.0) };
            let file = sim.open("/db/data".as_ref(), OpenHow { write: true, ..OpenHow::default() }).unwrap();
            sim.set_len(&file, there * 4096).unwrap();
            drop(file);
            let db = open(&sim);
            let tree = db.open_tree("t").unwrap();
            let read = (0..500u32).try_for_each(|i| db.get(&tree, &i.to_be_bytes()).map(drop));
            match read {
                Ok(()) => assert!(whole),
                Err(error) => {
                    assert!(!whole && error.to_string().contains("truncated or copied in part"), "{error}");
                    assert!(error.to_string().contains("--skip-damaged"), "{error}");
                }
            }
            let found = db.check().unwrap();
            let said = format!("page: page {there}: /db/data ends here, and had {pages} pages: was it truncated or");
            assert!(found.iter().any(|f| f.to_string().starts_with(&said)), "{said}: {found:?}");
            assert!(found.iter().all(|f| !f.to_string().contains("?.")), "{found:?}");
            assert!(!whole || found.len() == 1, "{found:?}");
        }
    }

    #[test]
    fn a_flipped_bit_is_found_where_it_is() {
        let sim = SimDisk::new(SimOptions { seed: 4, ..SimOptions::default() });
        let db = open(&sim);
        let tree = db.create_tree("t").unwrap();
        for i in 0..500u32 {
            db.transact(|tx| tx.put(&tree, &i.to_be_bytes(), &[7; 100])).unwrap();
        }
        let mut pages = Vec::new();
        let owned = db.inner.engine().space.for_each_owned(tree.id(), |page| {
            pages.push(page);
            Ok(())
        });
        owned.unwrap();
        db.close().unwrap();
        let victim = pages[pages.len() / 2];
        sim.flip_bit("/db/data", u64::from(victim.0) * 4096 + 3_001, 5).unwrap();
        let db = open(&sim);
        let found = db.check().unwrap();
        assert_eq!(found.len(), 1, "{found:#?}");
        assert_eq!((found[0].part, found[0].page, found[0].tree.as_deref()), (Part::Page, victim, Some("t")));
        assert!(found[0].to_string().starts_with(&format!("page: page {victim} of tree \"t\": /db/data has checksum")));
    }
}
