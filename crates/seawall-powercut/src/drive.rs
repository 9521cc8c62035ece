//! Rounds: work, cut, mount what the disks kept, recover (and cut again), compare.
//!
//! ```text
//!   fresh disks ──mount──> work ──cut──> mount ──> look ──(cut)──> mount ──> look ... ──> compare ──┬──> work
//!        ^                                                                                         │
//!        └────────────────────────── after some rounds, with other options ────────────────────────┘
//! ```
//!
//! 1. A round's settings and the number of requests until its cut follow from the seed. The interleaving of
//!    the threads does not: after a failure, the images of the disks and the output lines of the process are
//!    kept for inspection.
//! 2. An error of the process under test before the power was cut is a failure too.
//! 3. A btrfs that the kernel refuses to mount is counted separately: btrfs has such defects (replaying its
//!    log into a new block group ends with "missing free space info"). Too many refused mounts count as a
//!    failure: they would hide everything else. On ext4 and xfs a refused mount is always a failure.

use crate::Result;
use crate::engine::{Orders, read_items};
use crate::machine::{self, Fs, Mounted, Recorder};
use crate::model::Model;
use crate::rng::{SeededRng, mix};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The options of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    pub rounds: u64,
    pub seed: u64,
    /// Only this file system.
    pub fs: Option<Fs>,
    /// A defect of the engine to plant.
    pub mutant: Option<String>,
    /// The disk acknowledges flushes without doing them.
    pub lie: bool,
    /// Log and doublewrite are always on a second disk.
    pub apart: bool,
    /// Prints nothing about single rounds.
    pub quiet: bool,
    /// Directory for the images of a failure.
    pub keep: PathBuf,
}

/// The result of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub rounds: u64,
    pub cuts: u64,
    pub cuts_in_recovery: u64,
    pub acks: u64,
    pub rounds_by_fs: BTreeMap<&'static str, u64>,
    /// Rounds that ended with a btrfs that the kernel refuses to mount.
    pub refused: u64,
    pub failure: Option<String>,
}

/// How a round ended.
#[derive(Debug)]
enum RoundEnd {
    Passed,
    /// The file system is lost, but not because of the engine.
    Refused,
    Failed(String),
}

/// One set of disks and options.
#[derive(Debug)]
struct Setup {
    fs: Fs,
    /// The file system of the second disk, and what is stored on it.
    second: Option<(Fs, SecondDisk)>,
    /// Bytes that a disk writes atomically.
    unit: usize,
    sector: u64,
    mount: &'static str,
    orders: Orders,
    model: Model,
    /// Counts cuts: part of the disks' names.
    generation: u64,
    mounts: Vec<Mounted>,
    rounds_left: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SecondDisk {
    Log,
    Doublewrite,
    Both,
}

struct Driver<'a> {
    request: &'a Request,
    recorder: Recorder,
    dir: PathBuf,
    systems: &'a [Fs],
    /// Empty file systems, kept as templates to copy.
    made: Vec<String>,
    outcome: Outcome,
    /// The reports of this round's cuts.
    cuts: String,
    /// The lines of the process under test since the last comparison.
    lines: Vec<String>,
}

/// The names of a database's disks, and of their mount points beside the recorder's directory.
pub(crate) const DISKS: [&str; 2] = ["a", "b"];
const METHODS: [&str; 5] = ["fsync", "o_dsync", "o_direct", "o_direct_no_fsync", "o_direct_dsync"];
/// A process that takes longer is considered hung.
const PATIENCE: Duration = Duration::from_secs(120);
/// Work is cut after this time, even if fewer requests have arrived.
const WORK_MAX: Duration = Duration::from_secs(12);

/// Runs the requested rounds, or up to the first failure.
pub(crate) fn run(request: &Request, systems: &[Fs]) -> Result<Outcome> {
    let dir = tempfile::Builder::new().prefix("seawall-powercut-").tempdir()?;
    let disks = dir.path().join("disks");
    std::fs::create_dir(&disks)?;
    let recorder = Recorder::start(&disks)?;
    let mut driver = Driver {
        request,
        recorder,
        dir: dir.path().into(),
        systems,
        made: Vec::new(),
        outcome: Outcome::default(),
        cuts: String::new(),
        lines: Vec::new(),
    };
    let mut life = None;
    for round in 0..request.rounds {
        let mut rng = SeededRng::new(mix(request.seed) ^ mix(round));
        let begun = match life.take() {
            Some(life) => Ok(life),
            None => driver.begin(&mut rng),
        };
        let told = begun.and_then(|mut begun| {
            let told = driver.round(&mut begun, &mut rng, round)?;
            begun.rounds_left -= 1;
            if begun.rounds_left > 0 && matches!(told, RoundEnd::Passed) {
                life = Some(begun);
            } else {
                driver.end(begun, !matches!(told, RoundEnd::Passed))?;
            }
            Ok(told)
        })?;
        driver.outcome.rounds += 1;
        match told {
            RoundEnd::Passed => {}
            RoundEnd::Refused => driver.outcome.refused += 1,
            RoundEnd::Failed(why) => driver.outcome.failure = Some(why),
        }
        if driver.outcome.refused > 2 + driver.outcome.rounds / 25 {
            driver.outcome.failure = Some("btrfs cannot be mounted too often".into());
        }
        if driver.outcome.failure.is_some() {
            break;
        }
    }
    if let Some(life) = life {
        driver.end(life, false)?;
    }
    Ok(driver.outcome)
}

impl Setup {
    fn disk(&self, number: usize) -> String {
        format!("{}{}", DISKS[number], self.generation)
    }

    fn disks(&self) -> usize {
        1 + usize::from(self.second.is_some())
    }

    fn describe(&self) -> String {
        let options: Vec<_> = self.orders.options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let second = match self.second {
            Some((fs, SecondDisk::Log)) => format!(", log on {}", fs.name()),
            Some((fs, SecondDisk::Doublewrite)) => format!(", doublewrite on {}", fs.name()),
            Some((fs, SecondDisk::Both)) => format!(", log and doublewrite on {}", fs.name()),
            None => String::new(),
        };
        let (fs, unit, threads) = (self.fs.name(), self.unit, self.orders.threads);
        format!("{fs}{}{second}, torn at {unit}, {threads} threads; {}", self.mount, options.join(" "))
    }
}

impl Driver<'_> {
    /// Creates fresh disks with random settings.
    fn begin(&mut self, rng: &mut SeededRng) -> Result<Setup> {
        let fs = rng.pick(self.systems);
        // Copies of one btrfs cannot be mounted at the same time.
        let others: Vec<Fs> = self.systems.iter().copied().filter(|other| *other != Fs::Btrfs).collect();
        let apart = match rng.below(6) {
            0 if !self.request.apart => Some(SecondDisk::Log),
            1 if !self.request.apart => Some(SecondDisk::Doublewrite),
            // Only flushes of the data file itself reach its disk.
            2 => Some(SecondDisk::Both),
            _ if self.request.apart => Some(SecondDisk::Both),
            _ => None,
        };
        let second = apart.filter(|_| !others.is_empty()).map(|apart| (rng.pick(&others), apart));
        // btrfs relies on the disk to write its superblock of 4 KiB atomically.
        let small = rng.one_in(2) && fs != Fs::Btrfs;
        let (sector, unit) = if small { (512, 512) } else { (4096, 4096) };
        let mount = match fs {
            Fs::Ext4 => rng.pick(&["", ",data=writeback", ",data=journal"]),
            Fs::Btrfs => rng.pick(&["", ",nodatacow"]),
            Fs::Xfs => "",
        };
        let root = self.dir.join("a");
        let mut orders = Orders {
            dir: root.join("db"),
            seed: rng.next(),
            threads: 1 + rng.below(6),
            options: Vec::new(),
            mutant: self.request.mutant.clone(),
        };
        let mut set = |name: &str, value: &str| orders.options.push((name.into(), value.into()));
        let page = rng.pick(&["4K", "8K", "16K", "32K"]);
        set("page_size", page);
        // Small, so that pages are written back all the time.
        set("pool_size", if page == "32K" { "3M" } else { rng.pick(&["1M", "2M", "4M"]) });
        set("pool_size_max", "16M");
        set("io_backend", rng.pick(&["io_uring", "threads", "sync"]));
        set("data_flush_method", rng.pick(&METHODS));
        set("log_flush_method", rng.pick(&METHODS));
        set("log_block_bytes", if small { rng.pick(&["512", "4K"]) } else { rng.pick(&["4K", "8K"]) });
        set("log_segment_size", rng.pick(&["64K", "256K", "1M"]));
        // With the larger log, checkpoints are rare, so that pages stay in the data file's cache.
        set("log_capacity", rng.pick(&["4M", "32M"]));
        set("log_buffer_size", rng.pick(&["1M", "4M"]));
        set("data_initial_size", "1M");
        set("data_growth_step", rng.pick(&["1M", "8M"]));
        set("flush_interval", rng.pick(&["5ms", "50ms", "500ms"]));
        set("preallocate", rng.pick(&["written", "off"]));
        if let Some((_, SecondDisk::Log | SecondDisk::Both)) = second {
            set("log_dir", &self.dir.join("b/log").display().to_string());
        }
        let model = Model::new(orders.seed, orders.threads);
        let rounds_left = 1 + rng.below(5);
        let mut life =
            Setup { fs, second, unit, sector, mount, orders, model, generation: 0, mounts: Vec::new(), rounds_left };
        for number in 0..life.disks() {
            let fs = if number == 0 { life.fs } else { second.map_or(life.fs, |(fs, _)| fs) };
            let base = format!("base-{}-{sector}", fs.name());
            if !self.made.contains(&base) {
                self.recorder.command("pace 0")?;
                machine::make_fs(&mut self.recorder, &base, fs, sector)?;
                self.made.push(base.clone());
            }
            self.recorder.command(&format!("clone {base} {}", life.disk(number)))?;
        }
        self.mount(&mut life)?;
        if let Some((_, SecondDisk::Doublewrite | SecondDisk::Both)) = second {
            self.look(&life, true)?.wait()?;
            let (here, there) = (life.orders.dir.join("doublewrite"), self.dir.join("b/doublewrite"));
            std::fs::copy(&here, &there)?;
            std::fs::remove_file(&here)?;
            std::os::unix::fs::symlink(&there, &here)?;
            for dir in &life.mounts {
                let file = std::fs::File::open(&dir.dir)?;
                rustix::fs::syncfs(&file)?;
            }
        }
        Ok(life)
    }

    fn mount(&mut self, life: &mut Setup) -> Result<()> {
        for (number, name) in DISKS.iter().enumerate().take(life.disks()) {
            let (fs, more) = match (number, life.second) {
                (1, Some((fs, _))) => (fs, ""),
                _ => (life.fs, life.mount),
            };
            let dir = self.dir.join(name);
            life.mounts.push(Mounted::mount(&mut self.recorder, &life.disk(number), fs, life.sector, &dir, more)?);
        }
        if self.request.lie {
            for number in 0..life.disks() {
                self.recorder.command(&format!("lie {}", life.disk(number)))?;
            }
        }
        Ok(())
    }

    /// Removes the disks.
    fn end(&mut self, mut life: Setup, failed: bool) -> Result<()> {
        for mounted in life.mounts.drain(..) {
            match mounted.unmount() {
                Err(error) if !failed => return Err(error),
                _ => {}
            }
        }
        for number in 0..life.disks() {
            self.recorder.command(&format!("drop {}", life.disk(number)))?;
        }
        Ok(())
    }

    fn arm(&mut self, life: &Setup, rng: &mut SeededRng, requests: u64) -> Result<()> {
        let pairs: Vec<String> = (0..life.disks())
            .map(|number| format!("{}={}{}", life.disk(number), DISKS[number], life.generation + 1))
            .collect();
        let line = format!("arm {} {requests} {} {}", rng.next(), life.unit, pairs.join(" "));
        self.recorder.command(&line).map(drop)
    }

    /// Unmounts the old disks after a cut and mounts the new ones. An error is an error of the file system.
    fn after_cut(&mut self, life: &mut Setup) -> Result<()> {
        for mounted in life.mounts.drain(..).rev() {
            mounted.unmount()?;
        }
        for number in 0..life.disks() {
            self.recorder.command(&format!("drop {}", life.disk(number)))?;
        }
        life.generation += 1;
        self.recorder.command("pace 0")?;
        for (number, name) in DISKS.iter().enumerate().take(life.disks()) {
            // Kept as evidence, in case of a failure.
            let _none = self.recorder.command(&format!("drop evidence-{name}"));
            self.recorder.command(&format!("clone {} evidence-{name}", life.disk(number)))?;
        }
        self.mount(life)
    }

    fn child(&self, command: &str, life: &Setup, more: &[String]) -> Result<Child> {
        let mut child = Command::new(std::env::current_exe()?);
        child.arg(command).args(more).args(life.orders.to_args());
        Ok(child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
    }

    fn dump(&self) -> PathBuf {
        self.dir.join("dump")
    }

    fn look(&self, life: &Setup, close: bool) -> Result<Child> {
        let end = if close { "close" } else { "leave" };
        self.child("look", life, &[self.dump().display().to_string(), end.into()])
    }

    /// Runs one round.
    fn round(&mut self, life: &mut Setup, rng: &mut SeededRng, round: u64) -> Result<RoundEnd> {
        let begun = Instant::now();
        let acks = life.model.acks;
        self.lines.clear();
        self.cuts.clear();
        let told = self.cut_and_compare(life, rng);
        let told = match told {
            Ok(()) => {
                if !self.request.quiet {
                    let (settings, acks, time) = (life.describe(), life.model.acks - acks, begun.elapsed());
                    println!("round {round}: {settings} ({acks} acknowledged, {time:.1?}){}", self.cuts);
                }
                RoundEnd::Passed
            }
            Err(error) if error.downcast_ref().is_some_and(|e: &machine::Unmountable| e.fs == Fs::Btrfs) => {
                println!("round {round}: not counted: {error}");
                RoundEnd::Refused
            }
            Err(error) => {
                let at = self.keep(life, round)?;
                RoundEnd::Failed(format!(
                    "round {round} of seed {}: {error}\n  {}{}\n  kept in {}",
                    self.request.seed,
                    life.describe(),
                    self.cuts,
                    at.display()
                ))
            }
        };
        self.outcome.acks += life.model.acks - acks;
        *self.outcome.rounds_by_fs.entry(life.fs.name()).or_default() += 1;
        Ok(told)
    }

    fn cut_and_compare(&mut self, life: &mut Setup, rng: &mut SeededRng) -> Result<()> {
        let pace = rng.pick(&[0, 200, 2000]);
        let killed = rng.below(20);
        let requests = rng.scale(3000);
        if killed < 3 {
            // Kills the process; its dirty pages in the page cache still reach the disk.
            let mut worker = Worker::start(self.child("work", life, &[])?)?;
            self.recorder.command(&format!("pace {pace}"))?;
            let until = rng.scale(500);
            worker.wait_for(until, &mut life.model, &mut self.lines)?;
            worker.kill(&mut life.model, &mut self.lines)?;
            self.cuts += " | killed";
            if killed == 0 {
                self.arm(life, rng, requests.min(200))?;
                std::thread::sleep(Duration::from_millis(rng.scale(50)));
                self.recorder.command("now")?;
            }
        }
        if killed > 0 {
            self.recorder.command(&format!("pace {pace}"))?;
            let from_start = rng.one_in(3);
            if from_start {
                self.arm(life, rng, requests)?;
            }
            let mut worker = Worker::start(self.child("work", life, &[])?)?;
            if !from_start {
                let until = rng.scale(400);
                worker.wait_for(until, &mut life.model, &mut self.lines)?;
                self.arm(life, rng, requests)?;
            }
            let fired = worker.until_cut(&mut self.recorder, &mut life.model, &mut self.lines)?;
            if fired.is_none() {
                self.recorder.command("now")?;
            }
            self.cuts += &fired.map(|line| format!(" | {line}")).unwrap_or_default();
            worker.kill(&mut life.model, &mut self.lines)?;
        }
        while let Some(line) = self.recorder.cut_within(Duration::ZERO)? {
            self.cuts += &format!(" | {line}");
        }
        self.outcome.cuts += 1;
        self.after_cut(life)?;
        for _ in 0..rng.below(3) {
            self.recorder.command(&format!("pace {pace}"))?;
            let requests = rng.scale(400);
            self.arm(life, rng, requests)?;
            let mut look = self.look(life, false)?;
            let fired = loop {
                if let Some(line) = self.recorder.cut_within(Duration::from_millis(2))? {
                    break Some(line);
                }
                if look.try_wait()?.is_some() {
                    break None;
                }
            };
            if fired.is_none() && self.recorder.command("disarm")? == "quiet" {
                // `look` ended before the cut: its findings count.
                self.compare(life, look)?;
                continue;
            }
            look.kill()?;
            look.wait()?;
            let line = fired.map_or_else(|| self.recorder.cut_within(Duration::from_secs(1)), |line| Ok(Some(line)))?;
            self.cuts += &format!(" | in recovery {}", line.unwrap_or_default());
            self.outcome.cuts += 1;
            self.outcome.cuts_in_recovery += 1;
            self.after_cut(life)?;
        }
        self.recorder.command("pace 0")?;
        let close = rng.one_in(2);
        let look = self.look(life, close)?;
        self.compare(life, look)
    }

    /// Waits for a `look` without a cut, and compares what it found.
    fn compare(&mut self, life: &mut Setup, mut look: Child) -> Result<()> {
        let begun = Instant::now();
        while look.try_wait()?.is_none() {
            if begun.elapsed() > PATIENCE {
                look.kill()?;
                look.wait()?;
                return Err(format!("the database did not open within {PATIENCE:?}").into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let output = look.wait_with_output()?;
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(format!("the database does not open: {}: {why}", output.status).into());
        }
        let items = read_items(&std::fs::read(self.dump())?).ok_or("the dump is cut")?;
        life.model.compare(&items)?;
        self.lines.clear();
        Ok(())
    }

    /// Keeps the evidence of a failure.
    fn keep(&mut self, life: &Setup, round: u64) -> Result<PathBuf> {
        let dir = self.request.keep.join(format!("failure-{}-{round}", self.request.seed));
        std::fs::create_dir_all(&dir)?;
        let dir = dir.canonicalize()?;
        for disk in &DISKS[..life.disks()] {
            if let Err(error) = self.recorder.command(&format!("save evidence-{disk} {}/{disk}.img", dir.display())) {
                eprintln!("no image of disk {disk}: {error}");
            }
        }
        let text = format!("{}\nlook DUMP close {}\n", life.describe(), life.orders.to_args().join(" "));
        std::fs::write(dir.join("orders"), text)?;
        std::fs::write(dir.join("lines"), self.lines.join("\n"))?;
        if Path::new(&self.dump()).exists() {
            std::fs::copy(self.dump(), dir.join("dump"))?;
        }
        Ok(dir)
    }
}

/// The process under test while it works; killed when dropped.
struct Worker {
    child: Child,
    lines: Receiver<String>,
}

impl Worker {
    fn start(mut child: Child) -> Result<Self> {
        let out = BufReader::new(child.stdout.take().ok_or("no output")?);
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(std::io::Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, lines })
    }

    fn hear(line: String, model: &mut Model, lines: &mut Vec<String>) {
        model.line(&line);
        lines.push(line);
    }

    fn check(&mut self, model: &mut Model) -> Result<()> {
        if let Some(error) = model.errors.pop() {
            return Err(format!("an error while the disk had power: {error}").into());
        }
        if let Some(status) = self.child.try_wait()? {
            return Err(format!("it ended by itself while the disk had power: {status}").into());
        }
        Ok(())
    }

    /// Waits until `acks` more acknowledgements have arrived, or `WORK_MAX` has passed.
    fn wait_for(&mut self, acks: u64, model: &mut Model, lines: &mut Vec<String>) -> Result<()> {
        let (begun, from) = (Instant::now(), model.acks);
        while model.acks < from + acks && begun.elapsed() < WORK_MAX {
            if let Ok(line) = self.lines.recv_timeout(Duration::from_millis(10)) {
                Self::hear(line, model, lines);
            }
            self.check(model)?;
        }
        Ok(())
    }

    /// Waits until the cut has happened; returns `None` after `WORK_MAX`.
    fn until_cut(
        &mut self,
        recorder: &mut Recorder,
        model: &mut Model,
        lines: &mut Vec<String>,
    ) -> Result<Option<String>> {
        let begun = Instant::now();
        loop {
            while let Ok(line) = self.lines.try_recv() {
                Self::hear(line, model, lines);
            }
            if let Some(cut) = recorder.cut_within(Duration::from_millis(2))? {
                return Ok(Some(cut));
            }
            if let Err(error) = self.check(model) {
                // The recorder reported the cut before the worker's first error, but on another pipe.
                if recorder.command("disarm")? == "quiet" {
                    return Err(error);
                }
                return recorder.cut_within(PATIENCE);
            }
            if begun.elapsed() > WORK_MAX {
                return Ok(None);
            }
        }
    }

    fn kill(&mut self, model: &mut Model, lines: &mut Vec<String>) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        // The pipe outlives the process: all of its output can still be read.
        for line in &self.lines {
            Self::hear(line, model, lines);
        }
        model.errors.clear();
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _killed = self.child.kill().and_then(|()| self.child.wait());
    }
}
