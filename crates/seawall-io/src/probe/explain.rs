//! What each finding means, in words for the person who runs the database.

use super::{DirectIo, Finding, Probe, WriteCache};

/// A finding with its meaning.
///
/// ```
/// use seawall_io::probe::{explain, probe};
/// # let dir = tempfile::tempdir()?;
/// let lines = explain(&probe(dir.path())?);
/// let direct = lines.iter().find(|line| line.name == "direct I/O").unwrap();
/// println!("direct I/O: {}; {}", direct.value, direct.meaning);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// What was examined.
    pub name: &'static str,
    /// What was found.
    pub value: String,
    /// What follows from it.
    pub meaning: String,
}

/// Explains every finding, in the order that suits a reader.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let found = seawall_io::probe::probe(dir.path())?;
/// for line in seawall_io::probe::explain(&found) {
///     println!("{:<22} {:<28} {}", line.name, line.value, line.meaning);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn explain(probe: &Probe) -> Vec<Explained> {
    let mut lines = Lines(Vec::new());
    lines.file_system(probe);
    lines.device(probe);
    lines.direct_io(probe);
    lines.system_calls(probe);
    lines.0
}

struct Lines(Vec<Explained>);

impl Lines {
    fn say(&mut self, name: &'static str, value: String, meaning: &str) {
        self.0.push(Explained { name, value, meaning: meaning.into() });
    }

    fn file_system(&mut self, probe: &Probe) {
        match &probe.file_system {
            Finding::Known(fs) => {
                let kind = format!("{} on {}", fs.kind, fs.mount_point.display());
                self.say(
                    "file system",
                    kind,
                    if matches!(fs.kind.as_str(), "tmpfs" | "ramfs" | "devtmpfs") {
                        "memory: nothing here survives a restart"
                    } else {
                        ""
                    },
                );
                self.say("mount options", fs.options.clone(), "");
                self.say(
                    "copy on write",
                    yes_no(&fs.copy_on_write),
                    match fs.copy_on_write {
                        Finding::Known(true) => {
                            "overwriting in place is impossible: preallocation promises nothing here"
                        }
                        Finding::Known(false) => {
                            "blocks are overwritten in place: a preallocated log stays where it is"
                        }
                        Finding::Unknown(_) => "do not count on preallocation",
                    },
                );
                self.say(
                    "journal",
                    yes_no(&fs.journal),
                    match fs.journal {
                        Finding::Known(true) => {
                            "a sync after growth commits the journal too: one flush more than after an overwrite"
                        }
                        Finding::Known(false) => {
                            "no journal commit at a sync; after a crash the file system needs a check"
                        }
                        Finding::Unknown(_) => "",
                    },
                );
            }
            Finding::Unknown(reason) => self.say("file system", format!("unknown ({reason})"), ""),
        }
    }

    fn device(&mut self, probe: &Probe) {
        match &probe.device {
            Finding::Known(device) => {
                let mut name = device.name.clone();
                if device.volume != device.name {
                    name = format!("{} (on {})", device.volume, device.name);
                }
                self.say("device", name, "");
                for below in &device.below {
                    self.say("lies on", below.clone(), "what holds for the device above need not hold for this one");
                }
                self.say("model", device.model.to_string(), "");
                self.say(
                    "rotational",
                    yes_no(&device.rotational),
                    match device.rotational {
                        Finding::Known(true) => {
                            "a head must move, and a flush costs a rotation; virtual disks often say so without \
                             having one"
                        }
                        Finding::Known(false) => "no moving head, or a hypervisor that says so",
                        Finding::Unknown(_) => "",
                    },
                );
                self.say(
                    "write cache",
                    device.write_cache.to_string(),
                    match device.write_cache {
                        Finding::Known(WriteCache::Back) => {
                            "a completed write may be lost: only a flush (or FUA) makes it durable"
                        }
                        Finding::Known(WriteCache::Through) => {
                            "the kernel sends no flushes: durability rests on what the device claims"
                        }
                        Finding::Unknown(_) => "taken for volatile: every durable write is flushed",
                    },
                );
                self.say(
                    "FUA",
                    yes_no(&device.fua),
                    match device.fua {
                        Finding::Known(true) => {
                            "O_DSYNC and RWF_DSYNC can bypass the cache for one write, on written extents"
                        }
                        Finding::Known(false) => {
                            "O_DSYNC and RWF_DSYNC are a write and a flush: nothing is gained over fdatasync"
                        }
                        Finding::Unknown(_) => "",
                    },
                );
                self.say("logical block", bytes(&device.logical_block_bytes), "the smallest direct write");
                self.say(
                    "physical block",
                    bytes(&device.physical_block_bytes),
                    "smaller writes make the device read first: keep log blocks at least this large",
                );
                self.say("I/O scheduler", device.scheduler.to_string(), "");
            }
            Finding::Unknown(reason) => {
                self.say("device", format!("unknown ({reason})"), "device counters cannot be shown");
            }
        }
    }

    fn direct_io(&mut self, probe: &Probe) {
        self.say(
            "direct I/O",
            probe.direct_io.to_string(),
            match probe.direct_io {
                Finding::Known(DirectIo::Yes) => "data and log can bypass the page cache",
                Finding::Known(DirectIo::SilentlyBuffered) => {
                    "the page cache is used whatever is asked for: memory is held twice"
                }
                Finding::Known(DirectIo::Refused) => {
                    "files are opened buffered instead, and the mode in effect says so"
                }
                Finding::Unknown(_) => "",
            },
        );
        match &probe.direct_align {
            Finding::Known(a) => self.say(
                "direct alignment",
                format!("offset {} B, memory {} B", a.offset_bytes, a.memory_bytes),
                "what statx promises",
            ),
            Finding::Unknown(reason) => self.say("direct alignment", format!("unknown ({reason})"), ""),
        }
        self.say("smallest direct write", bytes(&probe.direct_align_tried_bytes), "by trial");
        match &probe.atomic_writes {
            Finding::Known(a) if a.unit_bytes_max == 0 => {
                self.say("atomic writes", "none".into(), "pages can be torn by a power cut: keep doublewrite");
            }
            Finding::Known(a) => self.say(
                "atomic writes",
                format!("{} to {} B", a.unit_bytes_min, a.unit_bytes_max),
                "writes of these sizes cannot be torn: doublewrite could be left out for pages that fit",
            ),
            Finding::Unknown(reason) => {
                self.say(
                    "atomic writes",
                    format!("unknown ({reason})"),
                    "pages can be torn by a power cut: keep doublewrite",
                );
            }
        }
    }

    fn system_calls(&mut self, probe: &Probe) {
        self.say(
            "RWF_DSYNC",
            yes_no(&probe.rwf_dsync),
            "one durable write in one system call; `seawall lab` says whether it is faster",
        );
        self.say(
            "RWF_DONTCACHE",
            yes_no(&probe.rwf_dontcache),
            "buffered appends that leave no pages behind (Linux 6.14); overwrites in place may leave theirs",
        );
        self.say(
            "fallocate",
            yes_no(&probe.fallocate),
            "reserves space; the first write into it still costs what an append costs",
        );
        self.say(
            "WRITE_ZEROES",
            yes_no(&probe.write_zeroes),
            "written extents without writing zeroes (Linux 6.17, and the device's help)",
        );
        self.say(
            "cachestat",
            yes_no(&probe.cachestat),
            "exact page-cache figures per file; without it only residence is known",
        );
        self.say("io_uring", yes_no(&probe.io_uring), &probe.io_uring_reason);
        self.say(
            "locked memory",
            probe.memlock_bytes.map_or_else(|| "unlimited".into(), |b| format!("{} KiB", b >> 10)),
            "bounds the buffers that can be registered with the kernel (ulimit -l)",
        );
        self.say("free space", format!("{:.1} GiB", probe.free_bytes as f64 / f64::from(1 << 30)), "");
    }
}

fn yes_no(finding: &Finding<bool>) -> String {
    match finding {
        Finding::Known(true) => "yes".into(),
        Finding::Known(false) => "no".into(),
        Finding::Unknown(reason) => format!("unknown ({reason})"),
    }
}

fn bytes(finding: &Finding<u32>) -> String {
    match finding {
        Finding::Known(n) => format!("{n} B"),
        Finding::Unknown(reason) => format!("unknown ({reason})"),
    }
}
