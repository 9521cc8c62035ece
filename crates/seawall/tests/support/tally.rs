//! Counts of a run of seeds.

use crate::support::damage::{Class, Damaged};

/// The counts of one run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) ops: u64,
    pub(crate) commits: u64,
    pub(crate) lost: u64,
    pub(crate) power_cuts: u64,
    pub(crate) kills: u64,
    pub(crate) dead_openings: u64,
    pub(crate) failed_openings: u64,
    pub(crate) openings: u64,
    pub(crate) poisoned: u64,
    pub(crate) named: u64,
    pub(crate) conflicts: u64,
    /// Rollbacks that found no space.
    pub(crate) stuck: u64,
    /// Leaves moved by compactions.
    pub(crate) moved: u64,
    /// Pages that left memory as their redo records.
    pub(crate) deferred: u64,
    /// Pages moved so that the data file can be truncated.
    pub(crate) moved_down: u64,
    /// Rows written again for that purpose.
    pub(crate) rewritten: u64,
    /// How often the data file became shorter.
    pub(crate) shrunk: u64,
    /// Compactions that a crash or an error ended.
    pub(crate) cut_off: u64,
    /// Transactions prepared in place.
    pub(crate) in_place: u64,
    /// ... and committed in the order of an outside log.
    pub(crate) ordered: u64,
    /// Transactions in the outside log but not in the engine: committed after a crash.
    pub(crate) decided_late: u64,
    /// Transactions ended in place.
    pub(crate) restarts: u64,
    /// Insertions of many rows.
    pub(crate) many: u64,
    /// Puts of many rows.
    pub(crate) put_many: u64,
    /// Insertions with a unique prefix.
    pub(crate) unique: u64,
    /// Rows locked, or seen as committed.
    pub(crate) looked: u64,
    /// Callbacks that reported durability.
    pub(crate) told: u64,
    /// Calls that were interrupted.
    pub(crate) interrupted: u64,
    /// Backups that finished.
    pub(crate) backups: u64,
    /// ... of which increments, and backups that failed.
    pub(crate) increments: u64,
    pub(crate) failed_backups: u64,
    /// ... and restored, and compared.
    pub(crate) restored: u64,
    /// Commits of other transactions during an index build.
    pub(crate) index_writes: u64,
    /// Databases shut down while another handle existed.
    pub(crate) shutdowns: u64,
    /// Entries reached by cursors that outlive their transaction.
    pub(crate) kept_cursors: u64,
    /// Operations on temporary trees.
    pub(crate) temporary: u64,
    /// Seeds whose disk may break its promise, and those of them without an effect.
    pub(crate) illegal: u64,
    pub(crate) illegal_idle: u64,
    /// The damage by class of file, and its outcomes.
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
        self.failed_openings += other.failed_openings;
        self.openings += other.openings;
        self.poisoned += other.poisoned;
        self.named += other.named;
        self.conflicts += other.conflicts;
        self.stuck += other.stuck;
        self.moved += other.moved;
        self.deferred += other.deferred;
        self.moved_down += other.moved_down;
        self.rewritten += other.rewritten;
        self.shrunk += other.shrunk;
        self.cut_off += other.cut_off;
        self.in_place += other.in_place;
        self.ordered += other.ordered;
        self.decided_late += other.decided_late;
        self.restarts += other.restarts;
        self.many += other.many;
        self.put_many += other.put_many;
        self.unique += other.unique;
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
        self.temporary += other.temporary;
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
