//! The run: writes without pause, and reports each write to the witness after the disk has acknowledged it,
//! never before.
//!
//! 1. A write is *acknowledged* when everything its [`WriteMethod`] does to make it durable has returned
//!    without an error.
//! 2. It is *reported* after that and before its stream writes again: at the cut, each stream has at most one write in
//!    flight that the witness does not know. That write may be there completely, partly, or not at all.
//! 3. All files of a stream exist durably before its first report; their preparation is synced under every
//!    method.
//! 4. The first I/O error ends the run: writes after a failed sync prove nothing.
//! 5. The run overwrites only files that it created.

use super::client::Client;
use super::error::WitnessError;
use super::layout::{Description, Layout, StreamKind};
use super::method::WriteMethod;
use super::protocol::DESCRIPTION_BYTES_MAX;
use super::reporter::{Progress, Reporter, Return, Writer};
use super::{RunId, boot_id, whole};
use seawall_io::{AlignedBuf, Create, Disk, Handle, IoError, IoErrorKind, Op, OpenHow, SyncHow, WriteHow};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Options of a run.
///
/// ```
/// use seawall_tools::witness::{RunOptions, WriteMethod};
/// let options = RunOptions { method: WriteMethod::DirectDsync, threads: 8, ..RunOptions::default() };
/// assert!(options.control, "a stream without any sync runs beside, to show that the cut was one");
/// assert_eq!(options.boot_id, seawall_tools::witness::boot_id());
/// ```
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// Host and port of the witness.
    pub witness: String,
    /// Shared secret; empty for none.
    pub token: String,
    /// The name under which the witness keeps this run. Random by default.
    pub run: RunId,
    /// Seed of content and placement.
    pub seed: u64,
    /// Boot id of this machine; [`boot_id`] by default.
    pub boot_id: Option<String>,
    /// How writes are made durable.
    pub method: WriteMethod,
    /// Threads; each overwrites and appends in turn.
    pub threads: u32,
    /// Bytes of one write, a multiple of 512; the direct methods also need the device's alignment.
    pub block_bytes: u32,
    /// Number of places that each thread overwrites.
    pub slots: u32,
    /// Blocks in an append file before the next is created.
    pub append_blocks: u32,
    /// Whether an unsynced control stream runs in parallel: if it loses no data, the power was not really cut.
    pub control: bool,
    /// Stop after this long.
    pub duration: Option<Duration>,
    /// Stop after this many writes.
    pub writes_max: Option<u64>,
    /// How long to wait for a lost witness before the run ends.
    pub reconnect_time_max: Duration,
    /// Space of the file system left free, bytes.
    pub reserve_bytes: u64,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            witness: "127.0.0.1:7440".into(),
            token: String::new(),
            run: RunId::random(),
            seed: 1,
            boot_id: boot_id(),
            method: WriteMethod::default(),
            threads: 4,
            block_bytes: 16 << 10,
            slots: 256,
            append_blocks: 4096,
            control: true,
            duration: None,
            writes_max: None,
            reconnect_time_max: Duration::from_secs(30),
            reserve_bytes: 1 << 30,
        }
    }
}

/// The result of a run that ended before a power cut.
///
/// ```
/// use seawall_io::Disk;
/// use seawall_tools::witness::{RunOptions, ServeOptions, Witness, run};
/// use seawall_sim::{SimDisk, SimOptions};
/// use std::sync::{Arc, atomic::{AtomicBool, Ordering}};
/// let (theirs, ours): (Arc<dyn Disk>, _) = (SimDisk::new(SimOptions::default()), SimDisk::new(SimOptions::default()));
/// let listen = ServeOptions { listen: "127.0.0.1:0".into(), ..ServeOptions::default() };
/// let witness = Witness::bind(&theirs, "/witness".as_ref(), &listen)?;
/// let options = RunOptions {
///     witness: witness.local_addr()?.to_string(),
///     writes_max: Some(20),
///     threads: 1, slots: 8, append_blocks: 8, reserve_bytes: 0,
///     ..RunOptions::default()
/// };
/// let stop = AtomicBool::new(false);
/// let summary = std::thread::scope(|scope| {
///     scope.spawn(|| witness.serve(&stop, &|event| println!("{event}")));
///     let summary = run(&*ours, "/scratch".as_ref(), &options, &AtomicBool::new(false), &|_| ());
///     stop.store(true, Ordering::Relaxed);
///     summary
/// })?;
/// assert_eq!((summary.run, summary.acknowledged), (options.run, 20));
/// # Ok::<(), seawall_tools::witness::WitnessError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSummary {
    /// The run.
    pub run: RunId,
    /// Writes acknowledged and confirmed, including the control's.
    pub acknowledged: u64,
    /// Time from the first write to the last.
    pub elapsed: Duration,
}

/// State shared by the threads of a run.
struct Work<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    layout: &'a Layout,
    stop: &'a AtomicBool,
    /// Set by the first writer that fails.
    halt: AtomicBool,
    error: Mutex<Option<WitnessError>>,
    deadline: Option<Instant>,
    writes_left: Option<AtomicU64>,
}

/// Runs until `stop` is set, a limit of `options` is reached, or the power fails.
///
/// ```no_run
/// use seawall_tools::witness::{RunOptions, run};
/// use std::sync::atomic::AtomicBool;
/// # fn demo(disk: &dyn seawall_io::Disk) -> Result<(), seawall_tools::witness::WitnessError> {
/// let options = RunOptions { witness: "other-machine:7440".into(), ..Default::default() };
/// println!("after the power cut: seawall witness verify --run {}", options.run);
/// run(disk, "/srv/db/scratch".as_ref(), &options, &AtomicBool::new(false), &|p| println!("{} writes", p.acknowledged))?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// Any [`WitnessError`] from the connection to the witness or from the disk. Reports confirmed by then stay on record.
pub fn run(
    disk: &dyn Disk,
    dir: &Path,
    options: &RunOptions,
    stop: &AtomicBool,
    progress: &(dyn Fn(&Progress) + Sync),
) -> Result<RunSummary, WitnessError> {
    let layout = Layout::new(
        options.run,
        Description {
            seed: options.seed,
            boot_id: options.boot_id.clone(),
            method: options.method,
            block_bytes: options.block_bytes,
            threads: options.threads,
            slots: options.slots,
            append_blocks: options.append_blocks,
            control: options.control,
            dir: dir.into(),
        },
    )?;
    let description = serde_json::to_vec(&layout.what).unwrap_or_default();
    if description.is_empty() || description.len() > DESCRIPTION_BYTES_MAX {
        let reason = "must be a path of UTF-8 characters and at most about 3000 bytes".into();
        return Err(WitnessError::BadOption { option: "directory", reason });
    }
    let connect = || Client::connect(&options.witness, &options.token, options.run);
    // Checks before any write that there is a witness. The connection is not kept, because preparing may outlast the
    // witness's idle limit.
    drop(connect()?);
    check_space(disk, dir, &layout, options.reserve_bytes)?;
    let began = prepare(disk, dir, &layout).map_err(WitnessError::from).and_then(|()| {
        let mut client = connect()?;
        client.begin(layout.streams(), description).map_err(|failure| Client::give_up(&options.witness, failure))?;
        Ok(client)
    });
    let client = match began {
        Ok(client) => client,
        Err(error) => {
            // The first error is the one returned; files that cannot be removed carry the run's id.
            if !matches!(&error, WitnessError::Io(e) if e.errno() == Some(rustix::io::Errno::EXIST.raw_os_error())) {
                drop(cleanup(disk, dir, options.run));
            }
            return Err(error);
        }
    };
    let reporter = Reporter::new(layout.streams());
    let began = Instant::now();
    let work = Work {
        disk,
        dir,
        layout: &layout,
        stop,
        halt: AtomicBool::new(false),
        error: Mutex::new(None),
        deadline: options.duration.map(|d| began + d),
        writes_left: options.writes_max.map(AtomicU64::new),
    };
    let back = Return { connect: &connect, addr: &options.witness, time_max: options.reconnect_time_max };
    let carried = thread::scope(|scope| {
        for thread in 0..options.threads {
            let (work, writer) = (&work, reporter.writer());
            scope.spawn(move || work.until_over(|work| work.overwrite_and_append(thread, &writer)));
        }
        let (work_ref, writer) = (&work, reporter.writer());
        scope.spawn(move || work_ref.until_over(|work| work.replace_names(&writer)));
        if options.control {
            let (work_ref, writer) = (&work, reporter.writer());
            scope.spawn(move || work_ref.until_over(|work| work.overwrite_unsynced(&writer)));
        }
        reporter.carry(client, &back, stop, &|| !work.halt.load(Ordering::Relaxed), progress)
    });
    let first = work.error.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(error) = first {
        return Err(error);
    }
    carried?;
    Ok(RunSummary { run: options.run, acknowledged: reporter.confirmed().iter().sum(), elapsed: began.elapsed() })
}

/// Removes the files of a run; returns how many there were.
///
/// # Errors
/// The disk's refusal.
///
/// ```
/// use seawall_tools::witness::{RunId, cleanup};
/// # let dir = tempfile::tempdir()?;
/// let disk = seawall_io::OsDisk::synchronous();
/// for name in ["witness-0000000000000007-scratch", "witness-0000000000000008-scratch"] {
///     std::fs::write(dir.path().join(name), b"")?;
/// }
/// assert_eq!(cleanup(&disk, dir.path(), RunId(7))?, 1, "other runs keep theirs");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn cleanup(disk: &dyn Disk, dir: &Path, run: RunId) -> Result<usize, WitnessError> {
    let prefix = Layout::prefix(run);
    let mut removed = 0;
    for path in disk.list(dir)? {
        if path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&prefix)) {
            disk.remove(&path)?;
            removed += 1;
        }
    }
    disk.sync_dir(dir)?;
    Ok(removed)
}

fn check_space(disk: &dyn Disk, dir: &Path, layout: &Layout, reserve: u64) -> Result<(), WitnessError> {
    let blocks: u64 = (0..layout.streams())
        .map(|stream| match layout.kind(stream) {
            // When a new file is begun, its two predecessors still exist.
            StreamKind::Append => layout.slots(stream) * 3 / 2,
            _ => layout.slots(stream),
        })
        .sum();
    let needed = blocks * layout.block();
    let available = disk.free_bytes(dir)?.saturating_sub(reserve);
    if needed > available {
        return Err(IoError::new(Op::Grow, dir, IoErrorKind::Reserve { needed, available, reserve }).into());
    }
    Ok(())
}

/// Creates the files that are overwritten in place, with a valid version 0 in every block, and syncs them and their
/// names.
fn prepare(disk: &dyn Disk, dir: &Path, layout: &Layout) -> Result<(), IoError> {
    let mut block = AlignedBuf::zeroed(layout.what.block_bytes as usize);
    let mut file: Option<(String, Handle)> = None;
    for stream in 0..layout.streams() {
        let how = match layout.kind(stream) {
            StreamKind::Overwrite => layout.what.method.open(Create::New),
            StreamKind::Control => WriteMethod::NoSync.open(Create::New),
            StreamKind::Append | StreamKind::Names => continue,
        };
        // A sync for each block would only cost time: one at the end covers all.
        let how = OpenHow { dsync: false, ..how };
        for slot in 0..layout.slots(stream) {
            let place = layout.place(stream, slot, 0);
            if file.as_ref().is_none_or(|(name, _)| *name != place.file) {
                if let Some((_, done)) = &file {
                    disk.sync(done, SyncHow::All)?;
                }
                let handle = disk.open(&dir.join(&place.file), how)?;
                file = Some((place.file.clone(), handle));
            }
            let Some((_, handle)) = &file else { continue };
            layout.author(stream).write(0, place.offset, &mut block);
            whole::write(disk, handle, place.offset, &block, WriteHow::default())?;
        }
    }
    if let Some((_, done)) = &file {
        disk.sync(done, SyncHow::All)?;
    }
    disk.sync_dir(dir)
}

impl Work<'_> {
    /// Runs a writer; keeps the first error and stops the other writers.
    fn until_over(&self, writer: impl FnOnce(&Self) -> Result<(), IoError>) {
        if let Err(error) = writer(self) {
            let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert(error.into());
            self.halt.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether to do another write.
    fn goes_on(&self) -> bool {
        !self.halt.load(Ordering::Relaxed)
            && !self.stop.load(Ordering::Relaxed)
            && self.deadline.is_none_or(|deadline| Instant::now() < deadline)
            && self.writes_left.as_ref().is_none_or(|left| {
                left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
            })
    }

    /// Writes, and returns when the write is acknowledged.
    fn write(&self, file: &Handle, offset: u64, block: &[u8], method: WriteMethod) -> Result<(), IoError> {
        whole::write(self.disk, file, offset, block, method.write())?;
        if method.syncs_after() { self.disk.sync(file, SyncHow::Data) } else { Ok(()) }
    }

    fn block(&self) -> AlignedBuf {
        AlignedBuf::zeroed(self.layout.what.block_bytes as usize)
    }

    fn overwrite_and_append(&self, thread: u32, writer: &Writer<'_>) -> Result<(), IoError> {
        let method = self.layout.what.method;
        let scratch = self.disk.open(&self.dir.join(self.layout.file("scratch")), method.open(Create::No))?;
        let mut append: Option<Handle> = None;
        let mut block = self.block();
        for sequence in 1.. {
            if !self.goes_on() {
                break;
            }
            if !self.overwrite(thread, sequence, &scratch, method, &mut block, writer)? {
                break;
            }
            if !self.goes_on() {
                break;
            }
            let stream = thread + self.layout.what.threads;
            let place = self.layout.place(stream, 0, sequence);
            let generation = self.layout.generation(sequence);
            let first = place.offset == 0;
            if first {
                append = Some(self.disk.open(&self.dir.join(&place.file), method.open(Create::New))?);
                if !method.is_control() {
                    self.disk.sync_dir(self.dir)?;
                }
            }
            let Some(file) = &append else { break };
            self.layout.author(stream).write(sequence, place.offset, &mut block);
            self.write(file, place.offset, &block, method)?;
            if !writer.report(stream, sequence) {
                break;
            }
            // Remove it only now: the verifier expects the file before the last one until the witness knows the newest.
            if first && generation >= 2 {
                self.disk.remove(&self.dir.join(self.layout.append_file(stream, generation - 2)))?;
            }
        }
        Ok(())
    }

    /// Does one overwrite and reports it; returns false if the witness is gone.
    fn overwrite(
        &self,
        stream: u32,
        sequence: u64,
        file: &Handle,
        method: WriteMethod,
        block: &mut AlignedBuf,
        writer: &Writer<'_>,
    ) -> Result<bool, IoError> {
        let place = self.layout.place(stream, self.layout.slot(stream, sequence), sequence);
        self.layout.author(stream).write(sequence, place.offset, block);
        self.write(file, place.offset, block, method)?;
        Ok(writer.report(stream, sequence))
    }

    fn overwrite_unsynced(&self, writer: &Writer<'_>) -> Result<(), IoError> {
        let method = WriteMethod::NoSync;
        let file = self.disk.open(&self.dir.join(self.layout.file("control")), method.open(Create::No))?;
        let stream = self.layout.streams() - 1;
        let mut block = self.block();
        for sequence in 1.. {
            if !self.goes_on() || !self.overwrite(stream, sequence, &file, method, &mut block, writer)? {
                break;
            }
        }
        Ok(())
    }

    fn replace_names(&self, writer: &Writer<'_>) -> Result<(), IoError> {
        let method = self.layout.what.method;
        let stream = 2 * self.layout.what.threads;
        let mut block = self.block();
        let fresh = self.dir.join(self.layout.file("name-new"));
        for sequence in 1.. {
            if !self.goes_on() {
                break;
            }
            let place = self.layout.place(stream, self.layout.slot(stream, sequence), sequence);
            self.layout.author(stream).write(sequence, place.offset, &mut block);
            let file = self.disk.open(&fresh, method.open(Create::New))?;
            // The content is durable before the name points to it: a name always shows a whole version.
            self.write(&file, place.offset, &block, method)?;
            self.disk.rename(&fresh, &self.dir.join(&place.file))?;
            if !method.is_control() {
                self.disk.sync_dir(self.dir)?;
            }
            if !writer.report(stream, sequence) {
                break;
            }
        }
        Ok(())
    }
}
