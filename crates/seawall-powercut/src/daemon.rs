//! The process that serves the disks: one FUSE directory, in which each file is a recorded disk for a loop
//! device.
//!
//! 1. It is a separate process and accesses no file on the file systems that are mounted from its disks, so
//!    that it never waits for itself.
//! 2. One thread does everything, so all disks share one order of arrivals, completions and cuts.
//! 3. An answer may be delayed for a random time (`pace`): several writes are then in flight, complete out of
//!    order, and overlap flushes.
//! 4. A cut happens at one moment for all disks named in it. After it, the old disks fail every request, and
//!    the new ones hold what the cut kept.
//!
//! Commands come on standard input, one per line; each is answered by one line on standard output, `ok ...`
//! or `failed ...`. A cut reports itself as `cut ...`. At the end of the input all disks fail, the file
//! systems on them are unmounted, and the process ends.
//!
//! 5. It never ends while a file system is mounted on its disks. The last process of a mount namespace
//!    unmounts what is left in it. If that were this process, the unmount would wait for an answer of the
//!    very process that executes it. Signals to the terminal's process group do not reach it.

use crate::Result;
use crate::drive::DISKS;
use crate::fuse::{self, What};
use crate::recorder::{Disk, FlushBehaviour, Image, Kept};
use crate::rng::SeededRng;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A delayed answer.
#[derive(Debug, Clone, Copy)]
struct DelayedReply {
    node: u64,
    id: u64,
    /// Bytes of a write, `None` for a flush.
    written: Option<usize>,
}

/// An armed cut.
#[derive(Debug)]
struct Armed {
    rng: SeededRng,
    /// Writes and flushes left until the cut.
    left: u64,
    unit: usize,
    /// Each disk to be cut and its replacement.
    disks: Vec<(String, String)>,
}

struct Daemon {
    dir: PathBuf,
    device: OwnedFd,
    disks: HashMap<u64, Disk>,
    names: HashMap<String, u64>,
    last_node: u64,
    held: BTreeMap<(Instant, u64), DelayedReply>,
    /// The longest delay of an answer.
    pace: Duration,
    rng: SeededRng,
    armed: Option<Armed>,
    /// Whether the last armed cut has happened.
    fired: bool,
}

/// Serves disks as files in `dir` until standard input ends.
pub(crate) fn run(dir: &Path) -> Result<()> {
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?;
    let data = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("seawall-powercut", dir, "fuse.seawall-powercut", flags, CString::new(data)?.as_c_str())?;
    let mut daemon = Daemon {
        dir: dir.into(),
        device,
        disks: HashMap::new(),
        names: HashMap::new(),
        last_node: fuse::ROOT,
        held: BTreeMap::new(),
        pace: Duration::ZERO,
        rng: SeededRng::new(0),
        armed: None,
        fired: false,
    };
    daemon.serve()
}

impl Daemon {
    fn serve(&mut self) -> Result<()> {
        let mut request = vec![0; fuse::REQUEST_BYTES_MAX];
        let (mut input, mut line) = (std::io::stdin(), Vec::new());
        // The process that unmounts after the driver has ended.
        let mut last: Option<Child> = None;
        loop {
            if let Some(unmounting) = &mut last {
                if unmounting.try_wait()?.is_some() {
                    return Ok(());
                }
            }
            let now = Instant::now();
            while self.held.first_key_value().is_some_and(|(key, _)| key.0 <= now) {
                let (_, held) = self.held.pop_first().expect("it was just seen");
                self.complete(held);
            }
            let wait = self.held.keys().next().map(|key| key.0.saturating_duration_since(now));
            let wait = if last.is_some() { Some(Duration::from_millis(20)) } else { wait };
            let wait = wait.map(Timespec::try_from).transpose()?;
            let (commands, requests) = {
                let mut fds =
                    [PollFd::new(&input, PollFlags::IN), PollFd::from_borrowed_fd(self.device.as_fd(), PollFlags::IN)];
                match poll(&mut fds, wait.as_ref()) {
                    Err(Errno::INTR) => continue,
                    polled => polled?,
                };
                (!fds[0].revents().is_empty(), !fds[1].revents().is_empty())
            };
            if requests {
                match rustix::io::read(&self.device, &mut request) {
                    Ok(0) | Err(Errno::NODEV) => return Ok(()),
                    Ok(len) => self.request(&request[..len])?,
                    // ENOENT: the request was cancelled before it was read.
                    Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if commands && last.is_none() {
                let mut bytes = [0; 4096];
                let len = input.read(&mut bytes)?;
                if len == 0 {
                    self.disks.values_mut().for_each(|disk| disk.dead = true);
                    let places = DISKS.map(|disk| self.dir.with_file_name(disk));
                    last = Some(Command::new("umount").args(["-q", "-l"]).args(places).spawn()?);
                }
                for byte in &bytes[..len] {
                    if *byte != b'\n' {
                        line.push(*byte);
                        continue;
                    }
                    let command = String::from_utf8(std::mem::take(&mut line))?;
                    let answer = match self.command(&command) {
                        Ok(text) => format!("ok {text}"),
                        Err(error) => format!("failed {command}: {error}"),
                    };
                    say(&answer)?;
                }
            }
        }
    }

    // --- the kernel ----------------------------------------------------------------------------------------

    fn answer(&self, id: u64, errno: i32, body: &[u8]) {
        // An error means that the kernel no longer waits for the answer.
        let _gone = rustix::io::write(&self.device, &fuse::answer(id, errno, body));
    }

    fn request(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(request) = fuse::parse(bytes) else { return Err("a request that cannot be read".into()) };
        let (id, node) = (request.id, request.node);
        if matches!(request.what, What::Write { .. } | What::Sync) && self.count_down(node) {
            self.cut()?;
        }
        match request.what {
            What::Init { minor, flags } => self.answer(id, 0, &fuse::init(minor, flags)?),
            What::Silent => {}
            What::Close => self.answer(id, 0, &[]),
            What::StatFs => self.answer(id, 0, &fuse::statfs()),
            What::Open => self.answer(id, 0, &fuse::opened()),
            What::GetAttr if node == fuse::ROOT => self.answer(id, 0, &fuse::attr(node, 0)),
            What::Lookup(name) => {
                let found = std::str::from_utf8(name).ok().and_then(|name| self.names.get(name)).copied();
                match found {
                    Some(node) => self.answer(id, 0, &fuse::entry(node, self.disks[&node].image().bytes())),
                    None => self.answer(id, fuse::ENOENT, &[]),
                }
            }
            What::GetAttr => match self.disks.get(&node) {
                Some(disk) => self.answer(id, 0, &fuse::attr(node, disk.image().bytes())),
                None => self.answer(id, fuse::ENOENT, &[]),
            },
            What::Read { offset, len } => match self.alive(node, offset, len) {
                Some(disk) => {
                    let mut out = vec![0; len];
                    disk.image().read(offset, &mut out);
                    self.answer(id, 0, &out);
                }
                None => self.answer(id, fuse::EIO, &[]),
            },
            What::Write { offset, data } => match self.alive(node, offset, data.len()) {
                Some(disk) => {
                    disk.write(id, offset, data);
                    self.hold(DelayedReply { node, id, written: Some(data.len()) });
                }
                None => self.answer(id, fuse::EIO, &[]),
            },
            What::Sync => match self.alive(node, 0, 0) {
                Some(disk) => {
                    disk.flush_began(id);
                    self.hold(DelayedReply { node, id, written: None });
                }
                None => self.answer(id, fuse::EIO, &[]),
            },
            What::Other(_) => self.answer(id, fuse::ENOSYS, &[]),
        }
        Ok(())
    }

    /// Returns the disk, if it has power and contains the range.
    fn alive(&mut self, node: u64, offset: u64, len: usize) -> Option<&mut Disk> {
        self.disks.get_mut(&node).filter(|disk| !disk.dead && disk.image().contains(offset, len))
    }

    fn hold(&mut self, held: DelayedReply) {
        let micros = self.pace.as_micros() as u64;
        // Most answers are immediate; a few are late, so that others overtake them.
        if micros == 0 || self.rng.below(4) != 0 {
            return self.complete(held);
        }
        let due = Instant::now() + Duration::from_micros(self.rng.scale(micros));
        self.held.insert((due, held.id), held);
    }

    fn complete(&mut self, held: DelayedReply) {
        let Some(disk) = self.alive(held.node, 0, 0) else { return self.answer(held.id, fuse::EIO, &[]) };
        match held.written {
            Some(len) => {
                disk.write_done(held.id);
                self.answer(held.id, 0, &fuse::written(len));
            }
            None => {
                disk.flush_done(held.id);
                self.answer(held.id, 0, &[]);
            }
        }
    }

    // --- the driver ----------------------------------------------------------------------------------------

    /// Counts a request to a disk whose power is to be cut; returns true when the cut is due.
    fn count_down(&mut self, node: u64) -> bool {
        let Self { armed: Some(armed), names, .. } = self else { return false };
        if !armed.disks.iter().any(|(old, _)| names.get(old) == Some(&node)) {
            return false;
        }
        armed.left = armed.left.saturating_sub(1);
        armed.left == 0
    }

    fn cut(&mut self) -> Result<()> {
        let Some(mut armed) = self.armed.take() else { return Ok(()) };
        self.fired = true;
        let mut line = String::from("cut");
        for (old, new) in &armed.disks {
            let disk = self.disks.get_mut(self.names.get(old).ok_or("no such disk")?).ok_or("no such disk")?;
            disk.dead = true;
            let (image, kept) = disk.cut(&mut armed.rng, armed.unit);
            let Kept { pending, whole, torn, lost } = kept;
            line += &format!(" {old}: {pending} pending, {whole} kept, {torn} torn, {lost} lost;");
            self.add(new, Disk::new(image))?;
        }
        say(&line)
    }

    fn add(&mut self, name: &str, disk: Disk) -> Result<()> {
        if self.names.contains_key(name) {
            return Err(format!("disk {name} exists").into());
        }
        self.last_node += 1;
        self.names.insert(name.to_owned(), self.last_node);
        self.disks.insert(self.last_node, disk);
        Ok(())
    }

    fn disk(&mut self, name: &str) -> Result<&mut Disk> {
        let node = self.names.get(name).ok_or_else(|| format!("no disk {name}"))?;
        Ok(self.disks.get_mut(node).ok_or("a name without a disk")?)
    }

    fn command(&mut self, line: &str) -> Result<String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            // new NAME BYTES: an empty disk.
            ["new", name, bytes] => self.add(name, Disk::new(Image::new(bytes.parse()?)))?,
            // clone FROM TO: a new disk with the contents that reads of FROM see.
            ["clone", from, to] => {
                let image = self.disk(from)?.image().clone();
                self.add(to, Disk::new(image))?;
            }
            ["drop", name] => {
                let node = self.names.remove(name).ok_or_else(|| format!("no disk {name}"))?;
                self.disks.remove(&node);
            }
            ["save", name, path] => self.disk(name)?.image().save(Path::new(path))?,
            // counts NAME: the writes and flushes that arrived.
            ["counts", name] => {
                let disk = self.disk(name)?;
                return Ok(format!("{} {}", disk.writes, disk.flushes));
            }
            // pace MICROSECONDS: the longest delay of an answer.
            ["pace", micros] => self.pace = Duration::from_micros(micros.parse()?),
            // lie NAME: flushes do nothing from now on.
            ["lie", name] => self.disk(name)?.lie(FlushBehaviour::Ignores),
            // arm SEED REQUESTS UNIT OLD=NEW...: a cut at the REQUESTSth write or flush from now.
            ["arm", seed, left, unit, ref disks @ ..] => {
                let disks = disks.iter().map(|pair| pair.split_once('=').ok_or("OLD=NEW"));
                let disks: Result<Vec<_>, _> = disks.map(|p| p.map(|(a, b)| (a.to_owned(), b.to_owned()))).collect();
                let rng = SeededRng::new(seed.parse()?);
                self.rng = SeededRng::new(seed.parse::<u64>()? ^ 1);
                self.fired = false;
                self.armed = Some(Armed { rng, left: left.parse()?, unit: unit.parse()?, disks: disks? });
            }
            // now: cuts the power now, if an armed cut has not happened.
            ["now"] => self.cut()?,
            // disarm: reports whether the armed cut has happened; if not, cancels it.
            ["disarm"] => {
                self.armed = None;
                return Ok(if std::mem::take(&mut self.fired) { "fired" } else { "quiet" }.into());
            }
            _ => return Err("no such command".into()),
        }
        Ok(String::new())
    }
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
