//! Injected faults: what goes wrong, on which operations, and when.
//!
//! 1. A *legal* fault is one that an engine must survive without losing an acknowledged commit. An *illegal*
//!    one breaks the device's promise: it must be detected and named, as far as that is possible.
//! 2. At most one fault applies to an operation: the first that matches, in the order of injection.
//! 3. A script ("the third write of this path") counts matching operations since the injection.

use crate::rng::SeededRng;
use crate::trace::Call;
use seawall_io::Op;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Whether a correct engine must survive a fault or only detect it.
///
/// ```
/// use seawall_sim::{Fault, FaultPlan, Legality};
/// // The worst fault decides what a test may ask of the engine.
/// let plan = FaultPlan::new().with(Fault::short()).with(Fault::lost_write().once());
/// match plan.legality() {
///     Legality::Legal => unreachable!("a lost write cannot be survived"),
///     Legality::Illegal => println!("damage must be named"),
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Legality {
    /// No acknowledged commit may be lost, under any seed.
    Legal,
    /// The device broke its promise: damage must be detected and named.
    Illegal,
}

/// What goes wrong.
///
/// ```
/// use seawall_sim::{FaultKind, Legality};
/// assert_eq!(FaultKind::Short.legality(), Legality::Legal);
/// assert_eq!(FaultKind::LostWrite.legality(), Legality::Illegal);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FaultKind {
    /// Legal, on any operation: it fails with this errno. A write that fails with `EIO` leaves any mixture of
    /// old and new units behind. A sync that fails loses at least one pending page (of a directory: one pending
    /// change of a name) and marks all pages clean, and the next sync succeeds, as on Linux.
    Errno(i32),
    /// Legal, on reads and writes: fewer bytes are transferred than requested.
    Short,
    /// Legal, on asynchronous requests: one attempt fails with `ECANCELED`, as when the submitting thread has
    /// ended.
    Cancelled,
    /// Legal, on any operation: it takes this much longer.
    Slow(Duration),
    /// Illegal, on reads: one bit of the range has flipped on the medium.
    BitRot,
    /// Illegal, on writes: the write is acknowledged, even flushed, but never reaches the medium.
    LostWrite,
    /// Illegal, on writes: the bytes land elsewhere in the same file and overwrite what was there.
    MisdirectedWrite,
}

impl FaultKind {
    /// Returns whether a correct engine must survive the fault or only detect it.
    #[must_use]
    pub fn legality(self) -> Legality {
        match self {
            Self::Errno(_) | Self::Short | Self::Cancelled | Self::Slow(_) => Legality::Legal,
            Self::BitRot | Self::LostWrite | Self::MisdirectedWrite => Legality::Illegal,
        }
    }

    fn can_hit(self, call: Call, asynchronous: bool) -> bool {
        let write = matches!(call, Call::Write | Call::DurableWrite);
        match self {
            Self::Errno(_) | Self::Slow(_) => true,
            Self::Short => write || call == Call::Read,
            Self::Cancelled => asynchronous,
            Self::BitRot => call == Call::Read,
            Self::LostWrite | Self::MisdirectedWrite => write,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Always,
    Nth(u64),
    AtOp(u64),
    PerMillion(u32),
}

/// One fault: what, where and when.
///
/// ```
/// use seawall_io::Op;
/// use seawall_sim::Fault;
/// let third_write = Fault::eio().on(Op::Write).path("/db/log").nth(3);
/// let flaky_reads = Fault::short().on(Op::Read).probability(0.1);
/// let full_once = Fault::enospc().on(Op::Grow).once();
/// # let _ = (third_write, flaky_reads, full_once);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a fault does nothing until it is injected"]
pub struct Fault {
    kind: FaultKind,
    op: Option<Op>,
    path: Option<PathBuf>,
    exactly: bool,
    name: Option<&'static str>,
    when: When,
    left: u64,
    matched: u64,
}

impl Fault {
    /// Creates a fault that hits every operation it can; the other methods narrow it.
    ///
    /// ```
    /// use seawall_sim::{Fault, FaultKind};
    /// const EROFS: i32 = 30;
    /// assert_eq!(Fault::new(FaultKind::Errno(EROFS)).once().kind(), FaultKind::Errno(EROFS));
    /// ```
    pub fn new(kind: FaultKind) -> Self {
        Self { kind, op: None, path: None, exactly: false, name: None, when: When::Always, left: u64::MAX, matched: 0 }
    }

    /// The device fails.
    ///
    /// ```
    /// assert_eq!(seawall_sim::Fault::eio().kind(), seawall_sim::FaultKind::Errno(5));
    /// ```
    pub fn eio() -> Self {
        Self::new(FaultKind::Errno(libc::EIO))
    }

    /// There is no space, although [`seawall_io::Disk::free_bytes`] may report some.
    ///
    /// ```
    /// # use seawall_io::{Create, Disk as _, OpenHow, WriteHow};
    /// use seawall_io::Op;
    /// use seawall_sim::{Fault, SimDisk, SimOptions};
    /// # let disk = SimDisk::new(SimOptions::default());
    /// # let how = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
    /// # let file = disk.open("/f".as_ref(), how)?;
    /// disk.inject(Fault::enospc().on(Op::Write));
    /// let refused = disk.write_at(&file, 0, &[std::io::IoSlice::new(b"row")], WriteHow::default());
    /// assert_eq!(refused.unwrap_err().errno(), Some(28));
    /// assert!(disk.free_bytes("/".as_ref())? > 0);
    /// # Ok::<(), seawall_io::IoError>(())
    /// ```
    pub fn enospc() -> Self {
        Self::new(FaultKind::Errno(libc::ENOSPC))
    }

    /// Fewer bytes are transferred than requested.
    ///
    /// ```
    /// # use seawall_io::{Create, Disk as _, OpenHow, WriteHow};
    /// use seawall_sim::{Fault, SimDisk, SimOptions};
    /// # let disk = SimDisk::new(SimOptions::default());
    /// # let how = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
    /// # let file = disk.open("/f".as_ref(), how)?;
    /// disk.inject(Fault::short().once());
    /// let bytes = [7; 8192];
    /// let written = disk.write_at(&file, 0, &[std::io::IoSlice::new(&bytes)], WriteHow::default())?;
    /// assert!(written < bytes.len(), "the caller has to go on from there");
    /// # Ok::<(), seawall_io::IoError>(())
    /// ```
    pub fn short() -> Self {
        Self::new(FaultKind::Short)
    }

    /// The submitting thread has ended.
    ///
    /// ```
    /// # use seawall_io::{AlignedBuf, Create, Disk as _, OpenHow, Request, WriteHow};
    /// use seawall_sim::{Fault, SimDisk, SimOptions};
    /// # let disk = SimDisk::new(SimOptions::default());
    /// # let how = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
    /// # let file = disk.open("/f".as_ref(), how)?;
    /// // Every backend tries again, so that the waiter never sees it.
    /// disk.inject(Fault::cancelled().once());
    /// let write = Request::write(&file, 0, vec![AlignedBuf::zeroed(4096).into()], WriteHow::default());
    /// let tickets = disk.submit(vec![write]);
    /// assert!(disk.wait(&tickets[0]).result.is_ok());
    /// # Ok::<(), seawall_io::IoError>(())
    /// ```
    pub fn cancelled() -> Self {
        Self::new(FaultKind::Cancelled)
    }

    /// The operation takes longer.
    ///
    /// ```
    /// # use seawall_io::{Create, Disk as _, OpenHow, SyncHow};
    /// use seawall_io::Op;
    /// use seawall_sim::{Fault, SimDisk, SimOptions};
    /// # use std::time::Duration;
    /// # let disk = SimDisk::new(SimOptions::default());
    /// # let how = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
    /// # let file = disk.open("/f".as_ref(), how)?;
    /// disk.inject(Fault::slow(Duration::from_secs(3600)).on(Op::Sync));
    /// disk.sync(&file, SyncHow::Data)?;
    /// assert!(disk.now() >= Duration::from_secs(3600), "an hour went by, and the test took no time");
    /// # Ok::<(), seawall_io::IoError>(())
    /// ```
    pub fn slow(by: Duration) -> Self {
        Self::new(FaultKind::Slow(by))
    }

    /// A bit flips on the medium.
    ///
    /// ```
    /// # use seawall_io::{Create, Disk as _, OpenHow, SyncHow, WriteHow};
    /// use seawall_sim::{Fault, SimDisk, SimOptions};
    /// # let disk = SimDisk::new(SimOptions::default());
    /// # let how = OpenHow { write: true, create: Create::New, direct: true, ..OpenHow::default() };
    /// # let file = disk.open("/f".as_ref(), how)?;
    /// # let mut block = seawall_io::AlignedBuf::zeroed(4096);
    /// # disk.write_at(&file, 0, &[std::io::IoSlice::new(&block)], WriteHow::default())?;
    /// # disk.sync(&file, SyncHow::All)?;
    /// disk.inject(Fault::bit_rot().once());
    /// disk.read_at(&file, 0, &mut block)?;
    /// assert_eq!(block.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1, "of a block of zeroes");
    /// # Ok::<(), seawall_io::IoError>(())
    /// ```
    pub fn bit_rot() -> Self {
        Self::new(FaultKind::BitRot)
    }

    /// A write is acknowledged and flushed, but not on the medium.
    ///
    /// ```
    /// # use seawall_io::{Create, Disk as _, OpenHow, SyncHow, WriteHow};
    /// use seawall_sim::{Fault, SimDisk, SimOptions};
    /// # let disk = SimDisk::new(SimOptions::default());
    /// # let how = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
    /// # let file = disk.open("/f".as_ref(), how)?;
    /// # disk.sync_dir("/".as_ref())?;
    /// disk.inject(Fault::lost_write().once());
    /// disk.write_at(&file, 0, &[std::io::IoSlice::new(b"row")], WriteHow::default())?;
    /// disk.sync(&file, SyncHow::All)?;
    /// disk.power_cut();
    /// assert_ne!(disk.seen("/f"), Some(b"row".to_vec()), "everything was acknowledged");
    /// # Ok::<(), seawall_io::IoError>(())
    /// ```
    pub fn lost_write() -> Self {
        Self::new(FaultKind::LostWrite)
    }

    /// The bytes of a write land elsewhere in the file.
    ///
    /// ```
    /// # use seawall_sim::{Fault, FaultKind, Legality};
    /// assert_eq!(Fault::misdirected_write().kind(), FaultKind::MisdirectedWrite);
    /// assert_eq!(FaultKind::MisdirectedWrite.legality(), Legality::Illegal);
    /// ```
    pub fn misdirected_write() -> Self {
        Self::new(FaultKind::MisdirectedWrite)
    }

    /// Limits the fault to this operation. `Op::Write` includes durable writes.
    pub fn on(mut self, op: Op) -> Self {
        self.op = Some(op);
        self
    }

    /// Limits the fault to this file, or to this directory and all in it.
    pub fn path(mut self, path: impl AsRef<Path>) -> Self {
        self.path = Some(crate::names::normal(path.as_ref()));
        self
    }

    /// Limits the fault to this file or directory itself, without what is in it.
    ///
    /// ```
    /// # use seawall_io::{Create, Disk as _, OpenHow, SyncHow};
    /// use seawall_io::Op;
    /// use seawall_sim::{Fault, SimDisk, SimOptions};
    /// # let disk = SimDisk::new(SimOptions::default());
    /// # let how = OpenHow { write: true, create: Create::New, ..OpenHow::default() };
    /// # let file = disk.open("/db/f".as_ref(), how)?;
    /// disk.inject(Fault::eio().on(Op::Sync).exactly("/db"));
    /// disk.sync(&file, SyncHow::Data)?;
    /// assert!(disk.sync_dir("/db".as_ref()).is_err());
    /// # Ok::<(), seawall_io::IoError>(())
    /// ```
    pub fn exactly(mut self, path: impl AsRef<Path>) -> Self {
        self.exactly = true;
        self.path(path)
    }

    /// Limits the fault to files of this name, in any directory; `?` matches any one character.
    ///
    /// ```
    /// # use seawall_io::{Create, Disk as _, OpenHow};
    /// # use seawall_sim::{Fault, SimDisk, SimOptions};
    /// # let disk = SimDisk::new(SimOptions::default());
    /// disk.inject(Fault::eio().named("log.??"));
    /// let open = |path: &str| disk.open(path.as_ref(), OpenHow { create: Create::New, ..OpenHow::default() });
    /// assert!(open("/db/log.07").is_err());
    /// assert!(open("/db/log.07.new").is_ok() && open("/db/data").is_ok());
    /// ```
    pub fn named(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    /// Limits the fault to the `n`th matching operation from now, counted from 1.
    pub fn nth(mut self, n: u64) -> Self {
        self.when = When::Nth(n);
        self
    }

    /// Limits the fault to the operation with this number in the disk's trace.
    pub fn at_op(mut self, number: u64) -> Self {
        self.when = When::AtOp(number);
        self
    }

    /// Applies the fault to each matching operation with this probability, from 0 to 1.
    pub fn probability(mut self, probability: f64) -> Self {
        self.when = When::PerMillion((probability.clamp(0.0, 1.0) * 1e6) as u32);
        self
    }

    /// Applies the fault at most once.
    pub fn once(self) -> Self {
        self.times(1)
    }

    /// Applies the fault at most `times` times.
    pub fn times(mut self, times: u64) -> Self {
        self.left = times;
        self
    }

    /// What goes wrong.
    #[must_use]
    pub fn kind(&self) -> FaultKind {
        self.kind
    }

    fn strikes(&mut self, call: Call, path: &Path, number: u64, asynchronous: bool, rng: &mut SeededRng) -> bool {
        let Some(op) = call.op() else { return false };
        let op_fits = match self.op {
            None => true,
            Some(Op::Write) => matches!(op, Op::Write | Op::DurableWrite),
            Some(wanted) => wanted == op,
        };
        let fits = op_fits
            && self
                .path
                .as_ref()
                .is_none_or(|wanted| if self.exactly { path == wanted } else { path.starts_with(wanted) })
            && self.name.is_none_or(|wanted| is_named(path, wanted))
            && self.kind.can_hit(call, asynchronous);
        if !fits || self.left == 0 {
            return false;
        }
        self.matched += 1;
        let strikes = match self.when {
            When::Always => true,
            When::Nth(n) => self.matched == n,
            When::AtOp(wanted) => wanted == number,
            When::PerMillion(ppm) => rng.ppm(ppm),
        };
        self.left -= u64::from(strikes);
        strikes
    }
}

fn is_named(path: &Path, wanted: &str) -> bool {
    let name = path.file_name().map_or(&[][..], |name| name.as_encoded_bytes());
    name.len() == wanted.len()
        && name.iter().zip(wanted.bytes()).all(|(found, wanted)| wanted == b'?' || *found == wanted)
}

/// Faults in the order in which they are checked.
///
/// ```
/// use seawall_io::Op;
/// use seawall_sim::{Fault, FaultPlan, Legality};
/// let plan = FaultPlan::new().with(Fault::short().probability(0.2)).with(Fault::eio().on(Op::Sync).nth(4));
/// assert_eq!(plan.legality(), Legality::Legal);
/// assert_eq!(plan.with(Fault::bit_rot().once()).legality(), Legality::Illegal);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FaultPlan {
    faults: Vec<Fault>,
}

impl FaultPlan {
    /// Creates an empty plan: nothing goes wrong.
    ///
    /// ```
    /// # use seawall_sim::{FaultPlan, Legality};
    /// assert_eq!(FaultPlan::new().legality(), Legality::Legal);
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fault.
    #[must_use]
    pub fn with(mut self, fault: Fault) -> Self {
        self.faults.push(fault);
        self
    }

    /// Returns [`Legality::Illegal`] if any of its faults is illegal.
    #[must_use]
    pub fn legality(&self) -> Legality {
        self.faults.iter().map(|fault| fault.kind.legality()).max().unwrap_or(Legality::Legal)
    }

    pub(crate) fn push(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    pub(crate) fn strike(
        &mut self,
        call: Call,
        path: &Path,
        number: u64,
        asynchronous: bool,
        rng: &mut SeededRng,
    ) -> Option<FaultKind> {
        let mut striking = None;
        for fault in &mut self.faults {
            if striking.is_none() && fault.strikes(call, path, number, asynchronous, rng) {
                striking = Some(fault.kind);
            }
        }
        striking
    }
}
