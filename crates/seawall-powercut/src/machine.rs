//! The machine around the disks: its capabilities, the recorder's process, loop devices, file systems and
//! mounts.
//!
//! 1. The driver runs in its own mount namespace, and the kernel detaches a loop device after its last use:
//!    however the driver ends, nothing stays mounted.
//! 2. A mount is verified: an fsync on it must arrive at the recorder as a flush.

use crate::Result;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Fs {
    Ext4,
    Xfs,
    Btrfs,
}

impl Fs {
    pub(crate) const ALL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// Returns the size, bytes, of a small disk that is large enough for this file system.
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Self::Ext4 => 128 << 20,
            Self::Xfs => 320 << 20,
            Self::Btrfs => 256 << 20,
        }
    }

    fn mkfs(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Self::Ext4 => {
                ("mkfs.ext4", &["-q", "-F", "-b", "4096", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"])
            }
            Self::Xfs => ("mkfs.xfs", &["-q", "-f", "-K"]),
            Self::Btrfs => ("mkfs.btrfs", &["-q", "-f", "-K"]),
        }
    }

    /// Returns the mount options: `nouuid`, because two disks may be copies of one image.
    fn mount_option(self) -> &'static str {
        if self == Self::Xfs { "noatime,nouuid" } else { "noatime" }
    }

    /// Returns why this file system cannot be used here, if it cannot.
    pub(crate) fn missing(self) -> Option<String> {
        // The list does not contain a module that is not loaded yet.
        let _loaded = Command::new("modprobe").arg(self.name()).stderr(Stdio::null()).status();
        let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        if !known.lines().any(|line| line.split_whitespace().last() == Some(self.name())) {
            return Some(format!("the kernel has no {}", self.name()));
        }
        let (mkfs, _) = self.mkfs();
        let found = Command::new(mkfs).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
        found.is_err().then(|| format!("{mkfs} is not installed"))
    }
}

/// Returns why no power can be cut here, if it cannot.
pub(crate) fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("mounting needs root".into());
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        let opened = std::fs::OpenOptions::new().read(true).write(true).open(device);
        if let Err(error) = opened {
            return Some(format!("{device}: {error}"));
        }
    }
    None
}

/// The kernel refuses to mount what a power cut left: not a defect of the engine.
#[derive(Debug)]
pub(crate) struct Unmountable {
    pub fs: Fs,
    why: String,
}

impl std::fmt::Display for Unmountable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the {} cannot be mounted: {}", self.fs.name(), self.why)
    }
}

impl std::error::Error for Unmountable {}

/// Runs a program; returns its standard output.
fn run(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{command:?}: {e}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("{command:?}: {}: {why}", output.status).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The process that serves the disks.
#[derive(Debug)]
pub(crate) struct Recorder {
    child: Child,
    commands: Option<ChildStdin>,
    answers: Receiver<String>,
    cuts: Receiver<String>,
    dir: PathBuf,
}

impl Recorder {
    /// Starts the process; its disks are files in `dir`.
    pub(crate) fn start(dir: &Path) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("disks")
            .arg(dir)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let commands = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().ok_or("no output")?);
        let ((answer, answers), (cut, cuts)) = (channel(), channel());
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let sent = if line.starts_with("cut ") { cut.send(line) } else { answer.send(line) };
                if sent.is_err() {
                    return;
                }
            }
        });
        let mut recorder = Self { child, commands, answers, cuts, dir: dir.into() };
        recorder.command("pace 0")?;
        Ok(recorder)
    }

    pub(crate) fn command(&mut self, line: &str) -> Result<String> {
        let commands = self.commands.as_mut().ok_or("the recorder has ended")?;
        writeln!(commands, "{line}")?;
        let answer = self.answers.recv_timeout(Duration::from_secs(60));
        let answer = answer.map_err(|e| format!("the recorder does not answer {line:?}: {e}"))?;
        match answer.strip_prefix("ok ") {
            Some(text) => Ok(text.to_owned()),
            None => Err(format!("the recorder: {answer}").into()),
        }
    }

    /// Returns the report of the cut, if it happens within `time`.
    pub(crate) fn cut_within(&self, time: Duration) -> Result<Option<String>> {
        match self.cuts.recv_timeout(time) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err("the recorder has ended".into()),
        }
    }

    fn flushes(&mut self, disk: &str) -> Result<u64> {
        let counts = self.command(&format!("counts {disk}"))?;
        Ok(counts.split(' ').nth(1).ok_or("no count of flushes")?.parse()?)
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // Closing its input ends the process.
        self.commands = None;
        let _mounted = run(Command::new("umount").arg("-l").arg(&self.dir));
        let _ended = self.child.wait();
    }
}

/// Attaches a disk to a loop device.
fn attach(recorder: &Recorder, disk: &str, sector: u64) -> Result<String> {
    let mut command = Command::new("losetup");
    command.args(["--find", "--show", "--direct-io=on", "--sector-size"]).arg(sector.to_string());
    command.arg(recorder.dir.join(disk));
    // Two processes that search for a free device at the same time may find the same one.
    let mut attempt = 0;
    loop {
        match run(&mut command) {
            Err(_) if attempt < 20 => attempt += 1,
            attached => return attached,
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Makes a file system on a disk.
pub(crate) fn make_fs(recorder: &mut Recorder, disk: &str, fs: Fs, sector: u64) -> Result<()> {
    recorder.command(&format!("new {disk} {}", fs.bytes()))?;
    let device = attach(recorder, disk, sector)?;
    let (mkfs, args) = fs.mkfs();
    let made = run(Command::new(mkfs).args(args).arg(&device));
    run(Command::new("losetup").arg("-d").arg(&device))?;
    made.map(drop)
}

/// A mounted disk; unmounted when dropped.
#[derive(Debug)]
pub(crate) struct Mounted {
    pub dir: PathBuf,
    /// `unmount` has taken over: dropping must not unmount again.
    gone: bool,
}

impl Mounted {
    /// Mounts a disk, and verifies that flushes arrive.
    pub(crate) fn mount(
        recorder: &mut Recorder,
        disk: &str,
        fs: Fs,
        sector: u64,
        dir: &Path,
        more: &str,
    ) -> Result<Self> {
        let device = attach(recorder, disk, sector)?;
        std::fs::create_dir_all(dir)?;
        let options = format!("{}{more}", fs.mount_option());
        let mounted = run(Command::new("mount").args(["-t", fs.name(), "-o", &options]).arg(&device).arg(dir));
        // The device is busy: the kernel detaches it at the unmount.
        run(Command::new("losetup").arg("-d").arg(&device))?;
        mounted.map_err(|e| Unmountable { fs, why: e.to_string() })?;
        let mounted = Self { dir: dir.into(), gone: false };
        let before = recorder.flushes(disk)?;
        let probe = dir.join("probe");
        std::fs::write(&probe, b"a flush must follow").and_then(|()| std::fs::File::open(&probe)?.sync_all())?;
        if recorder.flushes(disk)? == before {
            return Err(format!("an fsync on {} does not arrive as a flush of its disk", fs.name()).into());
        }
        Ok(mounted)
    }

    /// Unmounts the disk and waits for that: a copy of a btrfs can be mounted only after the original is
    /// unmounted.
    pub(crate) fn unmount(mut self) -> Result<()> {
        self.gone = true;
        let begun = Instant::now();
        loop {
            match run(Command::new("umount").arg(&self.dir)) {
                Ok(_) => return Ok(()),
                // Requests of the killed process are still being completed.
                Err(_) if begun.elapsed() < Duration::from_secs(20) => std::thread::sleep(Duration::from_millis(20)),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.gone {
            let _unmounted = run(Command::new("umount").arg("-l").arg(&self.dir));
        }
    }
}
