//! Verdicts about file system, device and the real behaviour of direct I/O.
//!
//! - Direct I/O is judged by the contents of the page cache, not by an accepted flag.
//! - "Rotating" is the kernel's information; a read rate that no disk can reach overrules it.

use super::{Level, Verdict, Writer, too_fast_to_rotate};
use crate::cell::{Access, Beside, Preparation};
use crate::results::{CellResult, Results};
use crate::text;
use seawall_io::probe::{DirectIo, Finding};

/// File systems whose "disk" is memory.
pub(crate) fn in_memory(kind: &str) -> bool {
    matches!(kind, "tmpfs" | "ramfs" | "devtmpfs")
}

pub(super) fn verdicts(results: &Results, out: &mut Vec<Verdict>) {
    let mut w = Writer { out, experiment: None };
    file_system(results, &mut w);
    direct_io(results, &mut w);
    medium(results, &mut w);
}

fn file_system(results: &Results, w: &mut Writer<'_>) {
    let path = results.probe.path.display();
    let fs = match &results.probe.file_system {
        Finding::Known(fs) => fs,
        Finding::Unknown(why) => {
            w.add(
                "file-system",
                Level::CannotTell,
                "cannot tell which file system this is, so neither whether it overwrites in place",
                why.clone(),
                &[],
            );
            return;
        }
    };
    let reason = format!("{path} is {} mounted at {} ({})", fs.kind, fs.mount_point.display(), fs.options);
    if in_memory(&fs.kind) {
        w.add(
            "file-system",
            Level::Warning,
            format!("{} is memory: nothing here survives a restart, and the figures say nothing about a disk", fs.kind),
            reason,
            &[],
        );
        return;
    }
    match &fs.copy_on_write {
        Finding::Known(true) => w.add(
            "file-system",
            Level::Warning,
            format!(
                "{} copies on write: preallocated space is given away at the first overwrite, so preallocation promises nothing \
                 (on btrfs, `chattr +C` on the empty directory, or another file system for the log)",
                fs.kind
            ),
            reason,
            &[],
        ),
        Finding::Known(false) => w.add(
            "file-system",
            Level::Good,
            format!("{} overwrites in place: space that is allocated and written stays so", fs.kind),
            reason,
            &[],
        ),
        Finding::Unknown(why) => w.add(
            "file-system",
            Level::CannotTell,
            format!("cannot tell whether {} overwrites in place", fs.kind),
            format!("{reason}; {why}"),
            &[],
        ),
    }
}

/// A direct cell that still left a large part of its writes in the page cache.
fn direct_cell_in_cache(results: &Results) -> Option<(&CellResult, u64)> {
    results
        .cells
        .iter()
        .filter(|c| c.spec.access == Access::Direct && c.spec.beside != Beside::CachedPages)
        // Their file was filled through the page cache on purpose.
        .filter(|c| !matches!(c.spec.preparation, Preparation::ZeroFilledNow | Preparation::ZeroFilledWait))
        .filter_map(|c| Some((c, c.cached_bytes_max()?)))
        .filter(|(_, cached)| *cached > (16 << 20).min((results.run.file_bytes / 10).max(1 << 20)))
        .max_by_key(|(_, cached)| *cached)
}

fn direct_io(results: &Results, w: &mut Writer<'_>) {
    let name = super::file_system_word(results);
    let cached = direct_cell_in_cache(results);
    match &results.probe.direct_io {
        Finding::Known(DirectIo::SilentlyBuffered) => w.add(
            "direct-io",
            Level::Warning,
            format!(
                "this {name} accepts O_DIRECT and buffers all the same: the page cache holds the data twice, \
                 and every cell called direct here was not"
            ),
            "a trial write with O_DIRECT left its pages in the page cache",
            &[],
        ),
        Finding::Known(DirectIo::Refused) => w.add(
            "direct-io",
            Level::Warning,
            format!(
                "this {name} refuses O_DIRECT: an engine here works through the page cache, which holds the data twice"
            ),
            "a trial open or write with O_DIRECT failed",
            &[],
        ),
        Finding::Known(DirectIo::Yes) => match cached {
            Some((cell, bytes)) => w.add(
                "direct-io",
                Level::Warning,
                format!(
                    "O_DIRECT passed the trial, yet {} of page cache appeared under load",
                    text::bytes(bytes as f64)
                ),
                format!("{}: {} cached", cell.spec.title(), text::bytes(bytes as f64)),
                &[cell],
            ),
            None => w.add(
                "direct-io",
                Level::Good,
                "direct I/O works and leaves nothing in the page cache",
                "a trial write with O_DIRECT left no pages behind",
                &[],
            ),
        },
        Finding::Unknown(why) => {
            w.add("direct-io", Level::CannotTell, "cannot tell whether direct I/O works here", why.clone(), &[]);
        }
    }
}

fn medium(results: &Results, w: &mut Writer<'_>) {
    let Finding::Known(device) = &results.probe.device else { return };
    let model = device.model.known().map_or_else(|| device.name.clone(), |m| format!("{} ({m})", device.name));
    match &device.rotational {
        Finding::Known(true) => match too_fast_to_rotate(results) {
            Some(rate) => w.add(
                "rotational",
                Level::Note,
                format!(
                    "the kernel calls {} a rotating disk, but {} random reads per second are more than any disk makes: \
                     it is virtual or mislabelled, and settings made for disks would hurt",
                    device.name,
                    text::count(rate)
                ),
                format!("{model}: rotational = 1; a disk makes 80 to 250 random reads per second"),
                &results.cell(&crate::plan::random_read(1)).into_iter().collect::<Vec<_>>(),
            ),
            None => w.add(
                "rotational",
                Level::Note,
                format!("{} is a rotating disk: each random access costs a seek, so sequential work and few, big requests pay", device.name),
                format!("{model}: rotational = 1"),
                &[],
            ),
        },
        Finding::Known(false) => w.add(
            "rotational",
            Level::Good,
            format!("{} is solid state: random access costs no seek", device.name),
            format!("{model}: rotational = 0"),
            &[],
        ),
        Finding::Unknown(why) => w.add(
            "rotational",
            Level::CannotTell,
            format!("cannot tell whether {} rotates", device.name),
            format!("{model}: {why}"),
            &[],
        ),
    }
}

#[cfg(test)]
mod tests {
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
        for (mut r, text) in [(slow, "rotating disk: each random"), (fast, "more than any disk makes")] {
            device(&mut r).rotational = Finding::Known(true);
            assert!(said(&r, "run.rotational").1.contains(text));
            device(&mut r).rotational = Finding::unknown("sysfs");
            assert_eq!(said(&r, "run.rotational").0, Level::CannotTell);
        }
    }
}
