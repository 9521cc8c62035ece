//! Verdicts about file system, device and the real behaviour of direct I/O.
//!
//! - Direct I/O is judged by the contents of the page cache, not by an accepted flag.
//! - "Rotating" is the kernel's information; a read rate that no disk can reach overrules it.

use super::{Says, Writer, data};
use crate::cell::{Access, Beside, Preparation};
use crate::experiment::baseline::too_fast_to_rotate;
use crate::results::{CellResult, Results};
use crate::text::{self, vars};
use seawall_io::probe::{DirectIo, FileSystem, Finding};
use std::sync::LazyLock;

/// File systems whose "disk" is memory.
pub(crate) fn in_memory(kind: &str) -> bool {
    matches!(kind, "tmpfs" | "ramfs" | "devtmpfs")
}

/// The words of these verdicts.
pub(crate) static SAYS: LazyLock<Says> = LazyLock::new(|| data(include_str!("device.toml")));

pub(crate) fn conclude(results: &Results, w: &mut Writer<'_>) {
    file_system(results, w);
    direct_io(results, w);
    medium(results, w);
}

fn file_system(results: &Results, w: &mut Writer<'_>) {
    let fs = match &results.probe.file_system {
        Finding::Known(fs) => fs,
        Finding::Unknown(why) => return w.say("file-system", "unknown", vars![why]),
    };
    let FileSystem { kind, mount_point, options, copy_on_write, .. } = fs;
    let (outcome, why) = match copy_on_write {
        _ if in_memory(kind) => ("memory", ""),
        Finding::Known(true) => ("copies", ""),
        Finding::Known(false) => ("in-place", ""),
        Finding::Unknown(why) => ("unclear", why.as_str()),
    };
    let path = results.probe.path.display();
    w.say("file-system", outcome, vars![path, kind, mount = mount_point.display(), options, why]);
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
    let cached = direct_cell_in_cache(results);
    let (outcome, why) = match &results.probe.direct_io {
        Finding::Known(DirectIo::SilentlyBuffered) => ("buffers", ""),
        Finding::Known(DirectIo::Refused) => ("refused", ""),
        Finding::Known(DirectIo::Yes) => (if cached.is_some() { "cached" } else { "works" }, ""),
        Finding::Unknown(why) => ("unknown", why.as_str()),
    };
    let (title, size) = cached.map(|(cell, bytes)| (cell.spec.title(), text::bytes(bytes as f64))).unwrap_or_default();
    w.say("direct-io", outcome, vars![fs = super::file_system_word(results), title, size, why]);
}

fn medium(results: &Results, w: &mut Writer<'_>) {
    let Finding::Known(device) = &results.probe.device else { return };
    let name = &device.name;
    let model = device.model.known().map_or_else(|| name.clone(), |m| format!("{name} ({m})"));
    let too_fast = too_fast_to_rotate(results);
    let (outcome, why) = match &device.rotational {
        Finding::Known(true) => (if too_fast.is_some() { "claims" } else { "rotates" }, ""),
        Finding::Known(false) => ("solid", ""),
        Finding::Unknown(why) => ("unknown", why.as_str()),
    };
    w.say("rotational", outcome, vars![name, model, rate = text::or_missing(too_fast, text::count), why]);
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
