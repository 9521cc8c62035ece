//! What a run of seeds did, counted.

use crate::support::damage::{Class, Damaged};

/// What the seeds of one run did.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) ops: u64,
    pub(crate) commits: u64,
    pub(crate) lost: u64,
    pub(crate) power_cuts: u64,
    pub(crate) kills: u64,
    pub(crate) dead_openings: u64,
    pub(crate) openings: u64,
    pub(crate) poisoned: u64,
    pub(crate) named: u64,
    pub(crate) conflicts: u64,
    /// Rollbacks that found no room.
    pub(crate) stuck: u64,
    /// Leaves moved by compactions.
    pub(crate) moved: u64,
    /// Pages moved so that the data file can be cut off.
    pub(crate) moved_down: u64,
    /// Rows written again for the same.
    pub(crate) rewritten: u64,
    /// Times that the data file has become shorter.
    pub(crate) shrunk: u64,
    /// Compactions that a crash or an error ended.
    pub(crate) cut_off: u64,
    /// Transactions prepared in place.
    pub(crate) in_place: u64,
    /// ... and committed in the order of an outside log.
    pub(crate) ordered: u64,
    /// Transactions that the outside log had and the engine did not: committed after a crash.
    pub(crate) decided_late: u64,
    /// Transactions ended in place.
    pub(crate) restarts: u64,
    /// Insertions of many rows.
    pub(crate) many: u64,
    /// Rows locked, or seen as committed.
    pub(crate) looked: u64,
    /// Callbacks that something is durable.
    pub(crate) told: u64,
    /// Calls that were interrupted.
    pub(crate) interrupted: u64,
    /// Backups that were ended.
    pub(crate) backups: u64,
    /// ... those of them that are increments, and backups that failed.
    pub(crate) increments: u64,
    pub(crate) failed_backups: u64,
    /// ... and restored, and compared.
    pub(crate) restored: u64,
    /// Commits of others while an index was built.
    pub(crate) index_writes: u64,
    /// Databases shut down while there was another handle.
    pub(crate) shutdowns: u64,
    /// Entries that cursors came to which outlive their transaction.
    pub(crate) kept_cursors: u64,
    /// Seeds whose disk may break its promise, and those of them on which nothing came of that.
    pub(crate) illegal: u64,
    pub(crate) illegal_idle: u64,
    /// What was done to which files, and how that ended.
    pub(crate) control: Damaged,
    pub(crate) data: Damaged,
    pub(crate) doublewrite: Damaged,
    pub(crate) log: Damaged,
}

impl Tally {
    #[allow(dead_code)] // the rig's own tests run one seed at a time
    pub(crate) fn add(&mut self, other: Self) {
        self.ops += other.ops;
        self.commits += other.commits;
        self.lost += other.lost;
        self.power_cuts += other.power_cuts;
        self.kills += other.kills;
        self.dead_openings += other.dead_openings;
        self.openings += other.openings;
        self.poisoned += other.poisoned;
        self.named += other.named;
        self.conflicts += other.conflicts;
        self.stuck += other.stuck;
        self.moved += other.moved;
        self.moved_down += other.moved_down;
        self.rewritten += other.rewritten;
        self.shrunk += other.shrunk;
        self.cut_off += other.cut_off;
        self.in_place += other.in_place;
        self.ordered += other.ordered;
        self.decided_late += other.decided_late;
        self.restarts += other.restarts;
        self.many += other.many;
        self.looked += other.looked;
        self.told += other.told;
        self.interrupted += other.interrupted;
        self.backups += other.backups;
        self.increments += other.increments;
        self.failed_backups += other.failed_backups;
        self.restored += other.restored;
        self.index_writes += other.index_writes;
        self.shutdowns += other.shutdowns;
        self.kept_cursors += other.kept_cursors;
        self.illegal += other.illegal;
        self.illegal_idle += other.illegal_idle;
        for class in Class::ALL {
            self.of(class).add(*other.clone().of(class));
        }
    }

    pub(crate) fn of(&mut self, class: Class) -> &mut Damaged {
        match class {
            Class::Control => &mut self.control,
            Class::Data => &mut self.data,
            Class::Doublewrite => &mut self.doublewrite,
            Class::Log => &mut self.log,
        }
    }
}
