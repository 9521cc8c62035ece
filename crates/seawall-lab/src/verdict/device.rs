//! Verdicts about file system, device and the real behaviour of direct I/O.
//!
//! - Direct I/O is judged by the contents of the page cache, not by an accepted flag.
//! - "Rotating" is the kernel's information; a read rate that no disk can reach overrules it.

use super::Level::{CannotTell, Good, Note, Warning};
use super::Writer;
use crate::cell::{Access, Beside, Preparation};
use crate::experiment::baseline::{random_read, too_fast_to_rotate};
use crate::results::{CellResult, Results};
use crate::text;
use seawall_io::probe::{DirectIo, Finding};

/// File systems whose "disk" is memory.
pub(crate) fn in_memory(kind: &str) -> bool {
    matches!(kind, "tmpfs" | "ramfs" | "devtmpfs")
}

pub(crate) fn conclude(results: &Results, w: &mut Writer<'_>) {
    file_system(results, w);
    direct_io(results, w);
    medium(results, w);
}

fn file_system(results: &Results, w: &mut Writer<'_>) {
    let fs = match &results.probe.file_system {
        Finding::Known(fs) => fs,
        Finding::Unknown(why) => {
            let sentence = "cannot tell which file system this is";
            return w.add("file-system", CannotTell, sentence, why.clone(), &[]);
        }
    };
    let kind = &fs.kind;
    let (path, mount) = (results.probe.path.display(), fs.mount_point.display());
    let mut reason = format!("{path} is {kind} mounted at {mount} ({})", fs.options);
    let (level, sentence) = match &fs.copy_on_write {
        _ if in_memory(kind) => {
            (Warning, format!("{kind} is memory: nothing here survives a restart, nor describes a disk"))
        }
        Finding::Known(true) => {
            reason = format!(
                "preallocated space is given away at the first overwrite (on btrfs, `chattr +C` on the empty \
                 directory, or another file system for the log); {reason}"
            );
            (Warning, format!("{kind} copies on write: preallocation promises nothing"))
        }
        Finding::Known(false) => (Good, format!("{kind} overwrites in place: space that is written stays allocated")),
        Finding::Unknown(why) => {
            reason = format!("{reason}; {why}");
            (CannotTell, format!("cannot tell whether {kind} overwrites in place"))
        }
    };
    w.add("file-system", level, sentence, reason, &[]);
}

/// A direct cell that still left a large part of its writes in the page cache.
fn direct_cell_in_cache(results: &Results) -> Option<(&CellResult, u64)> {
    let direct = results.cells.iter().filter(|c| {
        // The file of these preparations was filled through the page cache on purpose.
        let filled = matches!(c.spec.preparation, Preparation::ZeroFilledNow | Preparation::ZeroFilledWait);
        c.spec.access == Access::Direct && c.spec.beside != Beside::CachedPages && !filled
    });
    let most = (16 << 20).min((results.run.file_bytes / 10).max(1 << 20));
    super::most_cached(direct).filter(|(_, cached)| *cached > most)
}

fn direct_io(results: &Results, w: &mut Writer<'_>) {
    let name = super::file_system_word(results);
    let cached = direct_cell_in_cache(results);
    let cells: Vec<&CellResult> = cached.iter().map(|(cell, _)| *cell).collect();
    let (level, sentence, reason) = match (&results.probe.direct_io, cached) {
        (Finding::Known(DirectIo::SilentlyBuffered), _) => {
            let reason = "a trial write with O_DIRECT left its pages in the page cache: memory holds the data twice, \
                          and every cell called direct here was not";
            (Warning, format!("this {name} accepts O_DIRECT and buffers anyway"), reason.into())
        }
        (Finding::Known(DirectIo::Refused), _) => {
            let reason = "a trial open or write failed: an engine here works through the page cache, which holds the \
                          data twice";
            (Warning, format!("this {name} refuses O_DIRECT"), reason.into())
        }
        (Finding::Known(DirectIo::Yes), Some((cell, bytes))) => {
            let size = text::bytes(bytes as f64);
            let sentence = format!("O_DIRECT passed the trial, yet {size} of page cache appeared under load");
            (Warning, sentence, format!("{}: {size} cached", cell.spec.title()))
        }
        (Finding::Known(DirectIo::Yes), None) => {
            let sentence = "direct I/O works and leaves nothing in the page cache";
            (Good, sentence.into(), "a trial write with O_DIRECT left no pages behind".into())
        }
        (Finding::Unknown(why), _) => (CannotTell, "cannot tell whether direct I/O works here".into(), why.clone()),
    };
    w.add("direct-io", level, sentence, reason, &cells);
}

fn medium(results: &Results, w: &mut Writer<'_>) {
    let Finding::Known(device) = &results.probe.device else { return };
    let name = &device.name;
    let model = device.model.known().map_or_else(|| name.clone(), |m| format!("{name} ({m})"));
    let too_fast = too_fast_to_rotate(results);
    let (level, sentence, reason) = match (&device.rotational, too_fast) {
        (Finding::Known(true), Some(rate)) => (
            Note,
            format!("{name} claims to rotate, but {} random reads/s: virtual or mislabelled", text::count(rate)),
            "rotational = 1; a disk makes 80 to 250 random reads per second, and settings made for disks would hurt",
        ),
        (Finding::Known(true), None) => {
            let sentence = format!("{name} is a rotating disk: each random access costs a seek");
            (Note, sentence, "rotational = 1; sequential work and few, big requests pay")
        }
        (Finding::Known(false), _) => {
            (Good, format!("{name} is solid state: random access costs no seek"), "rotational = 0")
        }
        (Finding::Unknown(why), _) => (CannotTell, format!("cannot tell whether {name} rotates"), why.as_str()),
    };
    let contradicts = device.rotational.is_yes() && too_fast.is_some();
    let cells: Vec<_> = results.cell(&random_read(1)).into_iter().filter(|_| contradicts).collect();
    w.add("rotational", level, sentence, format!("{model}: {reason}"), &cells);
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::super::testing::said;
    use super::*;
    use crate::{plan, sample};
    use seawall_io::probe::{BlockDevice, FileSystem};

    fn fs(results: &mut Results) -> &mut FileSystem {
        match &mut results.probe.file_system {
            Finding::Known(fs) => fs,
            Finding::Unknown(_) => panic!("sample knows its file system"),
        }
    }

    fn device(results: &mut Results) -> &mut BlockDevice {
        match &mut results.probe.device {
            Finding::Known(device) => device,
            Finding::Unknown(_) => panic!("sample knows its device"),
        }
    }

    #[test]
    fn pages_of_a_buffered_zero_fill_are_not_held_against_direct_io() {
        let spec = crate::plan::extend(Preparation::ZeroFilledWait, Access::Direct, crate::cell::Sync::Fdatasync);
        let mut results = crate::sample::of_plan(&[spec]);
        for round in &mut results.cells[0].rounds {
            round.cached_bytes = Some(100 << 20);
        }
        assert!(direct_cell_in_cache(&results).is_none());
        results.cells[0].spec.preparation = Preparation::Written;
        assert!(direct_cell_in_cache(&results).is_some());
    }

    #[test]
    fn file_systems_each_way() {
        let mut r = sample::results(vec![]);
        assert_eq!(said(&r, "run.file-system").0, Level::Good);
        fs(&mut r).copy_on_write = Finding::unknown("fuse");
        assert_eq!(said(&r, "run.file-system").0, Level::CannotTell);
        fs(&mut r).kind = "btrfs".into();
        fs(&mut r).copy_on_write = Finding::Known(true);
        assert!(said(&r, "run.file-system").1.starts_with("btrfs copies on write"));
        fs(&mut r).kind = "tmpfs".into();
        assert!(said(&r, "run.file-system").1.starts_with("tmpfs is memory"));
        r.probe.file_system = Finding::unknown("no mountinfo");
        assert_eq!(said(&r, "run.file-system").0, Level::CannotTell);
    }

    #[test]
    fn direct_io_each_way() {
        let mut r = sample::of_plan(&plan::decisive());
        assert_eq!(said(&r, "run.direct-io").0, Level::Good);
        let direct = r.cells.iter_mut().find(|c| c.spec.access == Access::Direct).unwrap();
        direct.rounds[0].cached_bytes = Some(900 << 20);
        assert!(said(&r, "run.direct-io").1.contains("900 MiB of page cache"));
        for (finding, level) in [
            (Finding::Known(DirectIo::SilentlyBuffered), Level::Warning),
            (Finding::Known(DirectIo::Refused), Level::Warning),
            (Finding::unknown("read only"), Level::CannotTell),
        ] {
            r.probe.direct_io = finding;
            assert_eq!(said(&r, "run.direct-io").0, level);
        }
    }

    #[test]
    fn medium_each_way_and_reads_overrule_the_kernel() {
        let slow = sample::results(vec![sample::cell(plan::random_read(1), 120.0)]);
        let fast = sample::results(vec![sample::cell(plan::random_read(1), 14_000.0)]);
        assert_eq!(said(&fast, "run.rotational").0, Level::Good);
        for (mut r, text) in [(slow, "rotating disk: each random"), (fast, "claims to rotate")] {
            device(&mut r).rotational = Finding::Known(true);
            assert!(said(&r, "run.rotational").1.contains(text));
            device(&mut r).rotational = Finding::unknown("sysfs");
            assert_eq!(said(&r, "run.rotational").0, Level::CannotTell);
        }
    }
}
