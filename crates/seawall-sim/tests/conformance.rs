//! One suite over every implementation of `Disk`: the operating system's disk with each backend, and the
//! simulated one. The same calls have the same results, and the same errors: operation, path, offset, length
//! and kind.

mod common;

#[path = "../../seawall-io/tests/common/skip.rs"]
mod skip;

use common::{PLAIN, RW};
use seawall_io::{
    AlignedBuf, Allocate, Backend, Create, Disk, FileClass, Fill, FillOptions, Handle, IoError, Op, OpenHow, OsDisk,
    Request, SyncHow, WriteHow, recycle,
};
use seawall_sim::{SimDisk, SimOptions};
use std::fmt::Debug;
use std::io::IoSlice;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The calls and their results, without the directory they ran in.
struct Record {
    dir: PathBuf,
    lines: Vec<String>,
}

impl Record {
    fn short(&self, path: &Path) -> String {
        path.strip_prefix(&self.dir).map_or_else(|_| path.display().to_string(), |rest| format!("./{}", rest.display()))
    }

    fn note<T: Debug>(&mut self, asked: &str, answer: &Result<T, IoError>) {
        let said = match answer {
            Ok(value) => format!("{value:?}"),
            Err(IoError { op, path, offset, len, kind }) => {
                format!("failed: {op} of {} at {offset:?} of {len:?}: {kind:?}", self.short(path))
            }
        };
        self.lines.push(format!("{asked}: {said}"));
    }

    /// Records the answer; returns the value, if any.
    fn got<T: Debug>(&mut self, asked: &str, answer: Result<T, IoError>) -> Option<T> {
        self.note(asked, &answer);
        answer.ok()
    }

    /// Like `got`, but for values that differ from disk to disk.
    fn went<T>(&mut self, asked: &str, answer: Result<T, IoError>) -> Option<T> {
        let (noted, value) = match answer {
            Ok(value) => (Ok(()), Some(value)),
            Err(error) => (Err(error), None),
        };
        self.note(asked, &noted);
        value
    }
}

fn write(disk: &dyn Disk, file: &Handle, offset: u64, bytes: &[u8], how: WriteHow) -> Result<usize, IoError> {
    disk.write_at(file, offset, &[IoSlice::new(bytes)], how)
}

fn completion(disk: &dyn Disk, request: Request) -> Result<Vec<Vec<u8>>, IoError> {
    let ticket = disk.submit(vec![request]).remove(0);
    let done = disk.wait(&ticket);
    assert!(ticket.take().is_none(), "a completion is there once");
    done.result.map(|()| done.bufs.iter().map(|buf| buf.to_vec()).collect())
}

/// Every operation of the trait, with the errors that need no fault.
fn suite(disk: &Arc<dyn Disk>, dir: &Path) -> Vec<String> {
    let mut r = Record { dir: dir.into(), lines: Vec::new() };
    let d = &**disk;
    let at = |name: &str| dir.join(name);
    let read_only = OpenHow::default();
    let new = OpenHow { create: Create::New, ..RW };

    // Names.
    let f = r.went("create", d.open(&at("f"), new)).unwrap();
    r.went("create again", d.open(&at("f"), new));
    r.went("open what is missing", d.open(&at("missing"), read_only));
    r.went("open below a file", d.open(&at("f").join("g"), RW));
    r.went("open with or without", d.open(&at("f"), RW));
    r.went("sync the directory", d.sync_dir(dir));
    r.went("sync it again", d.sync_dir(dir));
    r.went("sync a file as a directory", d.sync_dir(&at("f")));
    r.went("rename what is missing", d.rename(&at("missing"), &at("x")));
    r.went("rename what is missing, to a new name", d.rename_new(&at("missing"), &at("x")));
    r.went("rename", d.rename(&at("f"), &at("g")));
    r.went("another", d.open(&at("h"), new));
    r.went("rename to a name in use", d.rename_new(&at("g"), &at("h")));
    r.went("rename to a new name", d.rename_new(&at("g"), &at("f")));
    r.went("rename over a file", d.rename(&at("h"), &at("f")));
    r.went("remove", d.remove(&at("f")));
    r.went("remove what is missing", d.remove(&at("f")));
    let names = d.list(dir).map(|names| names.iter().map(|name| r.short(name)).collect::<Vec<_>>());
    r.got("list", names);
    r.went("free bytes", d.free_bytes(dir));

    // An open file without any name remains usable.
    r.got("length", d.len(&f));
    r.got("write", write(d, &f, 0, &[1; 3000], PLAIN));
    r.got("write apart", write(d, &f, 8000, &[2; 192], PLAIN));
    let dsync = WriteHow { dsync: true, ..PLAIN };
    r.got("durable write", write(d, &f, 3000, &[3; 96], dsync));
    r.got("length after", d.len(&f));
    let mut buf = vec![9; 200];
    r.got("read", d.read_at(&f, 2900, &mut buf));
    r.lines.push(format!("{buf:?}"));
    r.got("read a hole", d.read_at(&f, 5000, &mut buf));
    r.lines.push(format!("{buf:?}"));
    r.got("read over the end", d.read_at(&f, 8100, &mut buf));
    r.got("read beyond the end", d.read_at(&f, 9000, &mut buf));
    r.got("read where no file reaches", d.read_at(&f, u64::MAX - 10, &mut buf));
    r.got("write where no offset is", write(d, &f, u64::MAX - 10, &[1; 100], PLAIN));
    // Linux says EFBIG, and some file systems EINVAL.
    let far = write(d, &f, i64::MAX as u64 - 10, &[1; 100], PLAIN).map_err(|e| (e.op, e.offset, e.errno()));
    assert!(matches!(far, Err((Op::Write, Some(_), Some(libc::EFBIG | libc::EINVAL)))), "{far:?}");
    r.went("sync data", d.sync(&f, SyncHow::Data));
    r.went("sync all", d.sync(&f, SyncHow::All));
    r.went("shorten", d.set_len(&f, 5000));
    r.went("lengthen", d.set_len(&f, 6000));
    r.went("a length that no file has", d.set_len(&f, u64::MAX));
    r.got("length after", d.len(&f));
    r.went("allocate nothing", d.allocate(&f, Allocate::Unwritten, 0, 0));
    r.went("allocate where no file reaches", d.allocate(&f, Allocate::Unwritten, u64::MAX - 1, 100));
    r.went("allocate", d.allocate(&f, Allocate::Unwritten, 0, 16384));
    r.got("length after", d.len(&f));
    r.went("allocate beyond the end", d.allocate(&f, Allocate::KeepSize, 16384, 16384));
    r.got("length after", d.len(&f));

    // What a handle may not do.
    let path = at("read-only");
    r.went("create", d.open(&path, new));
    let reader = r.went("open to read", d.open(&path, read_only)).unwrap();
    r.got("write to it", write(d, &reader, 0, &[1; 10], PLAIN));
    r.got("write to it, durably", write(d, &reader, 0, &[1; 10], dsync));
    r.went("lengthen it", d.set_len(&reader, 10));
    r.went("allocate in it", d.allocate(&reader, Allocate::Unwritten, 0, 10));
    r.went("sync it", d.sync(&reader, SyncHow::Data));
    r.went(
        "write to it, in flight",
        completion(d, Request::write(&reader, 0, vec![AlignedBuf::zeroed(512).into()], PLAIN)),
    );
    r.went("read from it, in flight", completion(d, Request::read(&reader, 0, AlignedBuf::zeroed(512).into())));

    // Locks belong to handles, not to processes.
    let (one, two) = (d.open(&path, RW).unwrap(), d.open(&path, RW).unwrap());
    r.went("lock", d.lock(&one));
    r.went("lock again", d.lock(&one));
    r.went("lock it elsewhere", d.lock(&two));
    r.went("rename what is locked", d.rename(&path, &at("renamed")));
    r.went("lock it elsewhere, renamed", d.lock(&two));
    drop(one);
    r.went("lock it when the other is closed", d.lock(&two));
    let three = d.open(&at("renamed"), OpenHow::default()).unwrap();
    r.went("share a lock that is exclusive", d.lock_shared(&three));
    r.went("make it a shared one", d.lock_shared(&two));
    r.went("share it", d.lock_shared(&three));
    r.went("lock what is shared", d.lock(&two));
    drop(three);
    r.went("lock it when it is not shared", d.lock(&two));

    // Requests in flight.
    let file = r.went("create", d.open(&at("requests"), new)).unwrap();
    let blocks =
        |fill: u8| vec![AlignedBuf::copy_of(&[fill; 4096]).into(), AlignedBuf::copy_of(&[fill + 1; 512]).into()];
    r.went("write", completion(d, Request::write(&file, 0, blocks(4), PLAIN)));
    r.went("write durably", completion(d, Request::write(&file, 4608, blocks(6), dsync)));
    r.went("sync", completion(d, Request::sync(&file, SyncHow::Data)));
    r.got("read", completion(d, Request::read(&file, 4000, AlignedBuf::zeroed(700).into())));
    r.went("read over the end", completion(d, Request::read(&file, 9000, AlignedBuf::zeroed(700).into())));
    r.went("read beyond the end", completion(d, Request::read(&file, 10_000, AlignedBuf::zeroed(700).into())));
    let far = Request::read(&file, u64::MAX - 10, AlignedBuf::zeroed(700).into());
    r.went("read where no file reaches", completion(d, far));
    r.got("length after", d.len(&file));

    // Files prepared ahead, and recycled.
    let options = FillOptions { reserve: 0, write_zeroes: false, ..FillOptions::new(FileClass::Redo, 8192) };
    let begun = r.went("begin a file", Fill::begin(disk.clone(), &at("log.1"), options.clone())).map(drop);
    assert!(begun.is_some(), "given up again");
    let fill = r.went("begin it again", Fill::begin(disk.clone(), &at("log.1"), options.clone())).unwrap();
    r.went("a second one", Fill::begin(disk.clone(), &at("log.1"), options.clone()));
    r.went("take its name too early", fill.name());
    let mut fill = Fill::begin(disk.clone(), &at("log.1"), options.clone()).unwrap();
    while fill.progress().0 < 8192 {
        let Ok(seawall_io::FillStep::Filling(more)) = fill.step() else { panic!("the last step is left") };
        fill = more;
    }
    r.went("take its name", fill.name());
    r.went("one that is there", Fill::begin(disk.clone(), &at("log.1"), options.clone()));
    let huge = FillOptions { reserve: 1 << 60, ..options };
    assert!(r.went("a reserve that is not there", Fill::begin(disk.clone(), &at("log.2"), huge)).is_none());
    r.went("use again", recycle(d, &at("log.1"), &at("log.2")));
    r.went("use again what is gone", recycle(d, &at("log.1"), &at("log.3")));
    let names = d.list(dir).map(|names| names.iter().map(|name| r.short(name)).collect::<Vec<_>>());
    r.got("list", names);
    r.lines
}

#[test]
fn the_simulated_disk_answers_as_the_operating_systems() {
    let sim: Arc<dyn Disk> = SimDisk::new(SimOptions::default());
    let simulated = suite(&sim, Path::new("/db"));
    let mut compared = 0;
    for backend in [Backend::Sync, Backend::Threads, Backend::IoUring] {
        let disk: Arc<dyn Disk> = match OsDisk::new(backend, None) {
            Ok(disk) => Arc::new(disk),
            Err(why) => {
                skip::skipped(format_args!("{backend}: {why}"));
                continue;
            }
        };
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let real = suite(&disk, dir.path());
        assert_eq!(real.len(), simulated.len());
        let differ: Vec<String> = real
            .iter()
            .zip(&simulated)
            .filter(|(real, simulated)| real != simulated)
            .map(|(real, simulated)| format!("\n  {backend}: {real}\n  simulated: {simulated}"))
            .collect();
        assert!(differ.is_empty(), "{}", differ.concat());
        compared += 1;
    }
    assert!(compared > 0, "the synchronous backend works everywhere");
}
