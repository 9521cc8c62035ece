//! A new tree from sorted rows.
//!
//! 1. The tree is created like any other: it gets one undo record, whose rollback frees all pages that the tree owns,
//!    and a name in the catalog, which others see once the transaction has committed. Its rows get no undo records. A
//!    crash before the commit rolls the creation back.
//! 2. The creator keeps the whole tree locked until it ends, and a view that does not see the creator must not use the
//!    tree (`trees`, 4).
//! 3. From the creation to the last row the transaction is half done: a tree with only a part of its rows is
//!    never committed, whatever happens to the [`Building`].

use super::savepoint::SavepointAt;
use super::transaction::{State, Txn};
use super::trees::TreeState;
use crate::btree::Builder;
use crate::error::{Error, LockedOn, Result};
use crate::format::TreeId;
use std::cmp::Ordering;
use std::sync::Arc;

/// A tree that is being built from sorted rows.
#[derive(Debug)]
pub struct Building {
    tree: Arc<TreeState>,
    builder: Builder,
    before: SavepointAt,
    rows: u64,
    /// A row was refused: the tree can only be rolled back.
    failed: bool,
}

impl Building {
    /// Rows so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The tree.
    #[must_use]
    pub fn tree(&self) -> TreeId {
        self.tree.at.id
    }
}

impl Txn {
    /// Creates an empty tree that is to be filled with sorted rows. Ends with [`Txn::build_finish`] or
    /// [`Txn::build_abandon`].
    ///
    /// # Errors
    /// As [`Txn::create_tree`].
    pub fn build_begin(&mut self, name: &str, fill_percent: u32) -> Result<Building> {
        let before = self.savepoint_within();
        let tree = self.create_tree(name)?;
        tree.is_built();
        self.state = State::HalfDone;
        let builder = Builder::new(tree.at, self.pool().page_bytes(), fill_percent);
        Ok(Building { tree, builder, before, rows: 0, failed: false })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`Error::RowsOutOfOrder`], [`Error::DuplicateRow`], [`Error::KeyTooLong`], [`Error::ValueTooLong`],
    /// [`Error::NoSpace`], [`Error::Poisoned`], reading errors; [`Error::Usage`] after any of them.
    pub fn build_push(&mut self, building: &mut Building, key: &[u8], value: &[u8]) -> Result<()> {
        self.here()?;
        if building.failed {
            return Err(Error::Usage(
                "a row was refused: the tree that was being built can only be rolled back".into(),
            ));
        }
        let pushed = self.build_row(building, key, value);
        building.failed = pushed.is_err();
        pushed
    }

    fn build_row(&self, building: &mut Building, key: &[u8], value: &[u8]) -> Result<()> {
        let index = building.rows;
        match building.builder.is_behind(key) {
            Ordering::Greater => {}
            Ordering::Less => return Err(Error::RowsOutOfOrder { index }),
            Ordering::Equal => {
                return Err(Error::DuplicateRow { index, on: LockedOn::row(building.tree.at.id, key) });
            }
        }
        self.check_lengths(key, value)?;
        building.builder.push(&self.engine.space, key, value)?;
        building.rows += 1;
        Ok(())
    }

    /// Writes the remaining pages. This transaction can use the tree afterwards.
    ///
    /// # Errors
    /// As [`Txn::build_push`]; the tree is rolled back then.
    pub fn build_finish(&mut self, mut building: Building) -> Result<Arc<TreeState>> {
        self.here()?;
        let finished = if building.failed {
            Err(Error::Usage("a row was refused: the tree that was being built can only be rolled back".into()))
        } else {
            building.builder.finish(&self.engine.space)
        };
        if let Err(error) = finished {
            self.build_abandon(&building)?;
            return Err(error);
        }
        self.state = State::Open;
        Ok(building.tree)
    }

    /// Rolls the creation back.
    ///
    /// # Errors
    /// Those of a rollback. After such an error the transaction can only be rolled back.
    pub fn build_abandon(&mut self, building: &Building) -> Result<()> {
        self.roll_back_to(building.before)?;
        self.state = State::Open;
        Ok(())
    }
}
