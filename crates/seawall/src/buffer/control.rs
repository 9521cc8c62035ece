//! The control file: two slots. Each is written whole and made durable while the other stays unchanged.
//!
//! ```text
//!   create ──slot 0──> open(incarnation 0)            open ──newest valid slot──> open
//!   open ──flush, begin_incarnation──> open(incarnation + 1, not clean)
//!   open ──write──> open: always into the slot that does not hold the newest block
//! ```
//!
//! 1. A write never goes to the slot that holds the newest valid block, so a torn or failed write does not destroy it.
//! 2. A write returns only when it is durable. After a failed write nothing more is written: until the file is opened
//!    again, it is unknown which slot is valid.
//! 3. The file is locked for as long as it is open: only one process has the database (trap 7).
//! 4. A block that was read may not be durable: the process that wrote it may have been killed before its
//!    flush. [`Control::make_durable`] flushes it, and the other slot, before anything that depends on it is
//!    written.
//! 5. A slot that cannot be read counts as torn: some drives answer EIO for a sector whose write was cut
//!    (trap 26). The next write goes there.

use super::role::Role;
use crate::counted::Mutex;
use crate::error::{Corruption, Error, Result};
use crate::format::FORMAT_VERSION;
use crate::format::control::{BadSlot, ControlBlock, SLOT_BYTES, SLOT_STRIDE, SLOTS};
use seawall_io::errno::ENOENT;
use seawall_io::{AlignedBuf, Cause, Create, Disk, File, FileClass, FileOptions, FlushMethod, IoErrorKind, IoStats};
use std::path::Path;
use std::sync::Arc;

/// Converts an error of opening or locking a file into an error of the engine.
pub(super) fn open_error(error: seawall_io::IoError) -> Error {
    match error.kind {
        IoErrorKind::Locked => Error::Locked { path: error.path, in_this_process: false },
        _ => Error::Io(error),
    }
}

/// Name of the control file.
pub const CONTROL_FILE: &str = "control";

/// The open control file.
#[derive(Debug)]
pub struct Control {
    file: File,
    writing: Role,
    state: Mutex<State>,
    /// Why a slot could not be read at the opening.
    unreadable: Option<seawall_io::IoError>,
}

#[derive(Debug, Clone)]
struct State {
    block: ControlBlock,
    epoch: u64,
    /// The slot that holds `block`.
    slot: u64,
    /// The first write that failed.
    failed: Option<Error>,
}

impl Control {
    /// Creates the control file `path` of a new database, and makes it and its name durable.
    ///
    /// # Errors
    /// [`Error::Locked`]; an error of the disk, for example `EEXIST`.
    pub fn create(disk: Arc<dyn Disk>, path: &Path, stats: &Arc<IoStats>, block: ControlBlock) -> Result<Self> {
        let directory = disk.clone();
        let file = Self::open_file(disk, path, stats, Create::New)?;
        // No slot holds a block yet: the first write goes to slot 0.
        let state = Mutex::new(State { block: block.clone(), epoch: 0, slot: 1, failed: None });
        let control = Self { file, writing: Role::default(), state, unreadable: None };
        control.update(|current| *current = block)?;
        directory.sync_dir(path.parent().unwrap_or(Path::new(".")))?;
        Ok(control)
    }

    /// Opens the control file `path`.
    ///
    /// # Errors
    /// [`Error::NotADatabase`], [`Error::OtherFormat`], [`Error::Locked`], [`Corruption::File`] when both slots are
    /// damaged; an error of the disk.
    pub fn open(disk: Arc<dyn Disk>, path: &Path, stats: &Arc<IoStats>) -> Result<Self> {
        let file = match Self::open_file(disk, path, stats, Create::No) {
            Err(Error::Io(e)) if e.errno() == Some(ENOENT) => {
                return Err(Error::NotADatabase { path: path.into(), why: "there is no such file".into() });
            }
            opened => opened?,
        };
        file.distrust_cache()?;
        let mut newest: Option<State> = None;
        let mut bad = Vec::new();
        let mut unreadable = None;
        for slot in 0..SLOTS {
            match Self::read_slot(&file, slot, &mut unreadable)? {
                Ok((epoch, block)) => {
                    if newest.as_ref().is_none_or(|newest| newest.epoch < epoch) {
                        newest = Some(State { block, epoch, slot, failed: None });
                    }
                }
                Err(BadSlot::Version(found)) => {
                    let supported = FORMAT_VERSION;
                    return Err(Error::OtherFormat { path: path.into(), found, supported });
                }
                Err(why) => bad.push(why),
            }
        }
        match newest {
            Some(state) => Ok(Self { file, writing: Role::default(), state: Mutex::new(state), unreadable }),
            // Neither slot is valid, so the read error is reported. But a file that ends before its second slot belongs
            // to a database whose creation was interrupted.
            None if unreadable.is_some() && !bad.contains(&BadSlot::Missing) => Err(unreadable.expect("it is").into()),
            None if bad.iter().all(|bad| matches!(bad, BadSlot::NoMagic | BadSlot::Missing)) => {
                let why = "it does not begin as a control file".into();
                Err(Error::NotADatabase { path: path.into(), why })
            }
            None => {
                let slots: Vec<String> = bad.iter().zip(0..).map(|(bad, slot)| format!("slot {slot} {bad}")).collect();
                let why = format!("no valid control block: {}. Restore it from a backup", slots.join(", "));
                Err(Corruption::File { path: path.into(), why }.into())
            }
        }
    }

    fn open_file(disk: Arc<dyn Disk>, path: &Path, stats: &Arc<IoStats>, create: Create) -> Result<File> {
        // This file is written rarely and only by durable writes: it bypasses the page cache, whatever the data file's
        // method is.
        let options = FileOptions::new(FileClass::Data, FlushMethod::ODirect).create(create).stats(stats);
        let file = File::open(disk, path, options).map_err(open_error)?;
        file.lock().map_err(open_error)?;
        Ok(file)
    }

    fn read_slot(
        file: &File,
        slot: u64,
        unreadable: &mut Option<seawall_io::IoError>,
    ) -> Result<Result<(u64, ControlBlock), BadSlot>> {
        let mut bytes = AlignedBuf::zeroed(SLOT_BYTES);
        match file.read_at(slot * SLOT_STRIDE, &mut bytes, Cause::Recovery) {
            Ok(()) => Ok(ControlBlock::decode(&bytes)),
            // The second write creates the second slot.
            Err(e) if matches!(e.kind, IoErrorKind::UnexpectedEof { .. }) => Ok(Err(BadSlot::Missing)),
            Err(e) if e.is_unreadable() => {
                let why = BadSlot::Unreadable(e.to_string());
                *unreadable = Some(e);
                Ok(Err(why))
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Why a slot could not be read at the opening: it may have been the newer one.
    #[must_use]
    pub fn unreadable(&self) -> Option<&seawall_io::IoError> {
        self.unreadable.as_ref()
    }

    /// The newest valid block.
    #[must_use]
    pub fn current(&self) -> ControlBlock {
        self.state.lock().block.clone()
    }

    /// Writes a block, and returns when it is durable. Concurrent calls are serialised.
    ///
    /// # Errors
    /// An error of the disk; every later call returns the same error.
    pub fn write(&self, block: &ControlBlock) -> Result<()> {
        self.update(|current| *current = block.clone()).map(drop)
    }

    /// Changes the block, writes it, and returns it when it is durable. Concurrent calls are serialised.
    ///
    /// # Errors
    /// An error of the disk; every later call returns the same error.
    pub fn update(&self, change: impl FnOnce(&mut ControlBlock)) -> Result<ControlBlock> {
        let _role = self.writing.take();
        let State { mut block, epoch, slot, failed } = self.state.lock().clone();
        if let Some(error) = failed {
            return Err(error);
        }
        change(&mut block);
        let (epoch, slot) = (epoch + 1, (slot + 1) % SLOTS);
        let mut bytes = AlignedBuf::zeroed(SLOT_BYTES);
        block.encode(epoch, &mut bytes);
        match self.file.write_durable_at(slot * SLOT_STRIDE, &bytes, Cause::Checkpoint) {
            Ok(()) => {
                *self.state.lock() = State { block: block.clone(), epoch, slot, failed: None };
                Ok(block)
            }
            Err(e) => {
                let error = Error::from(e);
                self.state.lock().failed = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Makes the blocks that were read at the opening durable (4).
    ///
    /// # Errors
    /// An error of the disk; every later call returns the same error.
    pub fn make_durable(&self) -> Result<()> {
        let _role = self.writing.take();
        let failed = self.state.lock().failed.clone();
        failed.map_or(Ok(()), Err)?;
        self.file.sync(Cause::Recovery).map_err(|e| {
            let error = Error::from(e);
            self.state.lock().failed = Some(error.clone());
            error
        })
    }

    /// Begins this opening: durably writes the next incarnation and `log_buffer`, the size of the log buffer in bytes,
    /// and returns the incarnation. After that, the log may be appended to.
    ///
    /// # Errors
    /// [`Error::Usage`] when the incarnation numbers are used up; an error of the disk.
    pub fn begin_incarnation(&self, log_buffer: u64) -> Result<u32> {
        let Some(next) = self.current().incarnation.checked_add(1) else {
            return Err(Error::Usage(
                "this database was opened 4 294 967 295 times: dump it and load it into a new one".into(),
            ));
        };
        self.make_durable()?;
        // Writes both slots: if one is damaged later, the block in the other must not make the log of this opening look
        // like one from the future.
        for _ in 0..SLOTS {
            self.update(|block| {
                block.incarnation = next;
                block.clean = false;
                // The log so far was written through a buffer of the old size; from now on it is written through one of
                // the new size.
                block.log_buffer = block.log_buffer.max(log_buffer);
            })?;
        }
        Ok(next)
    }
}
