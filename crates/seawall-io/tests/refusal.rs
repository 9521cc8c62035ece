//! Kernels and containers that refuse: io_uring forbidden or absent, too little locked memory, file size
//! limits, a full disk.
#![allow(unsafe_code)]

mod common;

use common::skip::skipped;
use common::{dir, in_child};
use seawall_io::{
    AlignedBuf, Arena, Backend, Cause, Create, Disk, File, FileClass, FileOptions, FlushMethod, IoBuf, OpenHow, OsDisk,
    Request, WriteHow,
};
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

/// From here on `syscall` fails with `errno` on this thread, as under a container's seccomp profile.
fn refuse_on_this_thread(syscalls: &[libc::c_long], errno: i32) {
    let load_number = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut program = vec![statement(load_number, 0)];
    for &syscall in syscalls {
        program.push(libc::sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt: 0,
            jf: 1,
            k: syscall as u32,
        });
        program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32));
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: plain flags; only restricts this thread.
    let sealed = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(sealed, 0);
    // SAFETY: `filter` points to `program`, and both live until the call returns; the kernel copies them.
    let applied = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) };
    assert_eq!(applied, 0, "{}", std::io::Error::last_os_error());
}

fn works(disk: &OsDisk, dir: &Path) {
    let how = OpenHow { write: true, create: Create::IfMissing, ..OpenHow::default() };
    let file = disk.open(&dir.join("works"), how).unwrap();
    let block: IoBuf = AlignedBuf::copy_of(&[7; 4096]).into();
    let written = disk.wait(&disk.submit(vec![Request::write(&file, 0, vec![block], WriteHow::default())])[0]);
    written.result.unwrap();
    let read = disk.wait(&disk.submit(vec![Request::read(&file, 0, AlignedBuf::zeroed(4096).into())])[0]);
    read.result.unwrap();
    assert!(read.bufs[0].iter().all(|&b| b == 7));
}

#[test]
fn a_refused_io_uring_falls_back_and_keeps_the_reason() {
    for (errno, word, hint) in [
        (libc::EPERM, "Operation not permitted", "seccomp"),
        (libc::ENOSYS, "Function not implemented", "kernel is older"),
    ] {
        let dir = dir();
        std::thread::spawn(move || {
            refuse_on_this_thread(&[libc::SYS_io_uring_setup], errno);
            let disk = OsDisk::new(Backend::Auto, Some(Arena::new(4096, 4))).unwrap();
            let info = disk.backend();
            assert_eq!(info.name, "threads");
            assert!(info.reason.contains("io_uring") && info.reason.contains(word), "{info:?}");
            assert!(info.registered_buffers.is_err());
            works(&disk, dir.path());
            let e = OsDisk::new(Backend::IoUring, None).unwrap_err();
            assert_eq!(e.backend, Backend::IoUring);
            let text = e.to_string();
            for part in ["io_uring", word, hint, "`threads`", "`auto`"] {
                assert!(text.contains(part), "{part:?} is missing: {text}");
            }
        })
        .join()
        .unwrap();
    }
}

#[test]
fn a_ring_that_cannot_be_entered_falls_back_too() {
    let dir = dir();
    std::thread::spawn(move || {
        refuse_on_this_thread(&[libc::SYS_io_uring_enter], libc::EPERM);
        let disk = OsDisk::new(Backend::Auto, None).unwrap();
        assert_eq!(disk.backend().name, "threads");
        works(&disk, dir.path());
    })
    .join()
    .unwrap();
}

#[test]
fn without_cachestat_residence_is_still_known() {
    let dir = dir();
    std::thread::spawn(move || {
        let disk = OsDisk::synchronous();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![1u8; 64 << 10]).unwrap();
        let file = disk.open(&path, OpenHow { write: true, ..OpenHow::default() }).unwrap();
        let before = disk.cached(&file, 64 << 10).unwrap();
        refuse_on_this_thread(&[451], libc::ENOSYS);
        let after = disk.cached(&file, 64 << 10).unwrap();
        assert_eq!(before.resident, after.resident);
        assert_eq!((after.dirty, after.writeback, after.evicted), (None, None, None), "unknown is a value");
    })
    .join()
    .unwrap();
}

/// Drops CAP_IPC_LOCK (which lifts the limit on locked memory) from this process, and CAP_SYS_ADMIN with it.
fn drop_capabilities() {
    let uid = 65534;
    // SAFETY: changes only this process's identity; root thereby gives up all capabilities.
    let answer = unsafe { libc::setresuid(uid, uid, uid) };
    if answer != 0 {
        skipped(format_args!("giving up root: {}", std::io::Error::last_os_error()));
    }
}

#[test]
fn too_little_locked_memory_degrades_quietly() {
    if !in_child("too_little_locked_memory_degrades_quietly") {
        return;
    }
    // Created and opened while the process still has permission.
    let dir = dir();
    let file = dir.path().join("works");
    std::fs::write(&file, []).unwrap();
    let opened = OsDisk::synchronous().open(&file, OpenHow { write: true, ..OpenHow::default() }).unwrap();
    // The open file is enough, and only root could remove the directory.
    drop(dir);
    // Enough for the rings, which count too on recent kernels, but not for the arena.
    let limit = libc::rlimit { rlim_cur: 512 << 10, rlim_max: 512 << 10 };
    // SAFETY: `limit` lives through the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) }, 0);
    drop_capabilities();
    let arena = Arena::new(4096, 1024);
    let disk = match OsDisk::new(Backend::IoUring, Some(arena.clone())) {
        Ok(disk) => disk,
        Err(e) => return skipped(format_args!("memlock: {e}")),
    };
    match &disk.backend().registered_buffers {
        Ok(()) => return skipped("memlock: the limit does not bind here"),
        Err(reason) => assert!(reason.contains("RLIMIT_MEMLOCK") && reason.contains("ulimit -l"), "{reason}"),
    }
    // I/O from the arena's slots works, unregistered.
    let mut slot = arena.claim().unwrap();
    slot.fill(5);
    let done = disk.wait(&disk.submit(vec![Request::write(&opened, 0, vec![slot], WriteHow::default())])[0]);
    done.result.unwrap();
    let done = disk.wait(&disk.submit(vec![Request::read(&opened, 0, AlignedBuf::zeroed(4096).into())])[0]);
    assert!(done.bufs[0].iter().all(|&b| b == 5));
}

#[test]
fn a_file_size_limit_is_named() {
    if !in_child("a_file_size_limit_is_named") {
        return;
    }
    let limit = libc::rlimit { rlim_cur: 8192, rlim_max: 8192 };
    // SAFETY: ignoring a signal has no handler that could misbehave.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    // SAFETY: `limit` lives through the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
    for backend in common::backends() {
        let dir = dir();
        let path = dir.path().join("f");
        let disk = Arc::new(OsDisk::new(backend, None).unwrap());
        let options = FileOptions::new(FileClass::Redo, FlushMethod::Fsync).create(Create::New);
        let file = File::open(disk.clone(), &path, options).unwrap();
        file.write_at(0, &[1; 4096], Cause::Other).unwrap();
        // The first part fits and the rest does not: a short write, then the refusal.
        let e = file.write_at(4096, &[1; 8192], Cause::Other).unwrap_err();
        assert_eq!(e.errno(), Some(libc::EFBIG));
        assert!(e.is_fatal() && e.to_string().contains("ulimit -f"), "{e}");
        let handle = disk.open(&path, OpenHow { write: true, ..OpenHow::default() }).unwrap();
        let bufs = vec![AlignedBuf::zeroed(8192).into()];
        let e = disk
            .wait(&disk.submit(vec![Request::write(&handle, 4096, bufs, WriteHow::default())])[0])
            .result
            .unwrap_err();
        assert_eq!((e.errno(), e.offset, e.len), (Some(libc::EFBIG), Some(4096), Some(8192)), "{backend}");
    }
}

/// A memory file system of its own, unmounted and removed at the end.
struct SmallFileSystem(tempfile::TempDir);

impl SmallFileSystem {
    fn mount(bytes: u64) -> Option<Self> {
        let dir = dir();
        let c = |s: &str| std::ffi::CString::new(s).unwrap();
        let (target, kind, data) = (c(dir.path().to_str().unwrap()), c("tmpfs"), c(&format!("size={bytes}")));
        // SAFETY: all strings are NUL-terminated and live through the call.
        let answer = unsafe { libc::mount(kind.as_ptr(), target.as_ptr(), kind.as_ptr(), 0, data.as_ptr().cast()) };
        if answer != 0 {
            skipped(format_args!("a full disk: mount: {}", std::io::Error::last_os_error()));
            return None;
        }
        Some(Self(dir))
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let target = std::ffi::CString::new(self.0.path().to_str().unwrap()).unwrap();
        // SAFETY: the string is NUL-terminated and lives through the call.
        let answer = unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
        if answer != 0 {
            eprintln!("umount: {}", std::io::Error::last_os_error());
        }
    }
}

#[test]
fn a_full_disk_is_named() {
    let Some(small) = SmallFileSystem::mount(256 << 10) else { return };
    let dir = small.0.path();
    let disk = Arc::new(OsDisk::new(Backend::Auto, None).unwrap());
    let path = dir.join("f");
    let file = disk.open(&path, OpenHow { write: true, create: Create::New, ..OpenHow::default() }).unwrap();
    let data = AlignedBuf::copy_of(&vec![1; 512 << 10]);
    let written = disk.write_at(&file, 0, &[IoSlice::new(&data)], WriteHow::default()).unwrap();
    assert!(written > 0 && written < data.len(), "as much as there was room for");
    let bufs = vec![AlignedBuf::copy_of(&data).into()];
    let e = disk.wait(&disk.submit(vec![Request::write(&file, 0, bufs, WriteHow::default())])[0]).result.unwrap_err();
    assert_eq!(e.errno(), Some(libc::ENOSPC));
    assert!(e.to_string().contains("free some space") && e.is_fatal(), "{e}");
    // Existing data can still be read, and removing files frees space.
    let read = disk.wait(&disk.submit(vec![Request::read(&file, 0, AlignedBuf::zeroed(4096).into())])[0]);
    assert!(read.bufs[0].iter().all(|&b| b == 1));
    disk.remove(&path).unwrap();
    drop((file, read));

    // The preallocator detects the full disk before it writes, and leaves nothing.
    let options =
        |reserve| seawall_io::FillOptions { reserve, ..seawall_io::FillOptions::new(FileClass::Redo, 1 << 20) };
    let e = seawall_io::Fill::begin(disk.clone(), &dir.join("log"), options(0)).unwrap_err();
    assert!(matches!(e.kind, seawall_io::IoErrorKind::Reserve { reserve: 0, .. }), "{e}");
    assert!(disk.list(dir).unwrap().is_empty());
}
