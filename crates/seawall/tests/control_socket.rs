//! The socket through which other processes ask for backups of an open database.
//!
//! 1. The socket belongs to the owner and exists exactly while the database is open; a stale socket does no harm.
//! 2. Clients that hang, send garbage or disconnect harm only themselves.
//! 3. Every way of closing aborts a backup. It never waits for a client.
#![allow(unsafe_code)]

use seawall::{BackupAnswer, BackupOptions, BackupProgress, ControlSocketChoice, Database, Error, Options};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn options() -> Options {
    Options::default()
        .with_page_size(4096)
        .with_pool_size(1 << 20)
        .with_data_initial_size(1 << 20)
        .with_log_segment_size(256 << 10)
        .with_log_capacity(4 << 20)
        .with_log_buffer_size(1 << 20)
}

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn at_rate(rate: u64) -> BackupOptions {
    BackupOptions { rate, ..BackupOptions::default() }
}

fn ask(db: &Path, to: &Path) -> seawall::Result<BackupAnswer> {
    Database::ask_for_backup(db, to, &at_rate(0), |_| ControlFlow::Continue(()))
}

/// Requests a backup so slow that it never ends.
fn ask_slowly(
    db: &Path,
    to: &Path,
    go_on: impl FnMut(&BackupProgress) -> ControlFlow<()>,
) -> seawall::Result<BackupAnswer> {
    Database::ask_for_backup(db, to, &at_rate(1), go_on)
}

fn is_done(asked: &BackupAnswer) -> bool {
    matches!(asked, BackupAnswer::Done(report) if report.end >= report.begin)
}

/// The other process's refusal.
#[track_caller]
fn says(asked: seawall::Result<BackupAnswer>, what: &str) {
    let error = asked.unwrap_err();
    assert!(matches!(error, Error::BackupRefused { .. }) && error.to_string().contains(what), "{what}: {error}");
}

/// Waits until a backup into `to` has begun.
fn has_begun(to: &Path) {
    while !to.join("backup.unfinished").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_backup_that_is_asked_for_restores_to_what_was_committed() {
    let scratch = dir();
    // Longer than the longest address of a socket.
    let path = scratch.path().join("d".repeat(120));
    let db = Database::open_with(&path, options()).unwrap();
    let tree = db.create_tree("t").unwrap();
    db.transact(|tx| tx.put(&tree, b"k", b"not on disk yet")).unwrap();
    let socket = std::fs::metadata(path.join("control.socket")).unwrap();
    assert!(socket.file_type().is_socket());
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
    let (full, more) = (scratch.path().join("full"), scratch.path().join("more"));
    assert!(is_done(&ask(&path, &full).unwrap()));
    db.transact(|tx| tx.put(&tree, b"k", b"changed")).unwrap();
    let since = BackupOptions { incremental_from: Some(full.clone()), ..at_rate(0) };
    let asked = Database::ask_for_backup(&path, &more, &since, |_| ControlFlow::Continue(())).unwrap();
    assert!(matches!(asked, BackupAnswer::Done(report) if report.incremental), "{asked:?}");
    says(ask(&path, &full), "new or empty");
    Database::restore(&[&full, &more], scratch.path().join("restored")).unwrap();
    db.close().unwrap();
    assert!(!path.join("control.socket").exists());
    assert_eq!(ask(&path, &scratch.path().join("not")).unwrap(), BackupAnswer::NoListener);
    let restored = Database::open_with(scratch.path().join("restored"), options()).unwrap();
    let tree = restored.open_tree("t").unwrap();
    assert_eq!(restored.get(&tree, b"k").unwrap().as_deref(), Some(&b"changed"[..]));
}

/// As a server takes a backup: it blocks commits for a moment, tells the backup to end, and lets commits go on. The
/// restored database has exactly what was committed at that moment.
#[test]
fn a_backup_that_is_told_its_end_has_exactly_what_was_committed_then() {
    let scratch = dir();
    let path = scratch.path().join("db");
    let db = Database::open_with(&path, options()).unwrap();
    let tree = db.create_tree("t").unwrap();
    let (stop, commits) = (AtomicBool::new(false), std::sync::Mutex::new(0_u64));
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let mut commits = commits.lock().unwrap();
                    *commits += 1;
                    let mut tx = db.begin().unwrap();
                    tx.put(&tree, &commits.to_be_bytes(), &[b'v'; 200]).unwrap();
                    tx.commit().unwrap();
                }
            });
        }
        for round in 0..8 {
            let to = scratch.path().join(format!("backup{round}"));
            let told = BackupOptions { ends_when_told: true, ..at_rate(0) };
            assert_eq!(db.tell_backup_to_end().unwrap(), None, "no backup waits");
            let mut at_end = None;
            let asked = Database::ask_for_backup(&path, &to, &told, |progress| {
                if progress.waits && at_end.is_none() {
                    let blocked = commits.lock().unwrap();
                    at_end = db.tell_backup_to_end().unwrap().map(|end| (end, *blocked));
                    assert_eq!(db.tell_backup_to_end().unwrap(), at_end.map(|(end, _)| end), "told once");
                }
                ControlFlow::Continue(())
            });
            let Ok(BackupAnswer::Done(report)) = asked else { panic!("{asked:?}") };
            let (end, committed) = at_end.unwrap();
            assert_eq!(report.end, end);
            let again = scratch.path().join(format!("restored{round}"));
            Database::restore(&[&to], &again).unwrap();
            let restored = Database::open_with(&again, options()).unwrap();
            let copy = restored.open_tree("t").unwrap();
            let last = restored.begin().unwrap().iter(&copy).count() as u64;
            assert_eq!(last, committed, "round {round}");
        }
        stop.store(true, Ordering::Relaxed);
    });
    // A backup that still copies pages does not end.
    let to = scratch.path().join("slow");
    let slow = BackupOptions { ends_when_told: true, ..at_rate(1) };
    let asked = Database::ask_for_backup(&path, &to, &slow, |_| {
        if !to.join("backup.unfinished").exists() {
            return ControlFlow::Continue(());
        }
        assert_eq!(db.tell_backup_to_end().unwrap(), None);
        ControlFlow::Break(())
    });
    assert_eq!(asked.unwrap(), BackupAnswer::Aborted);
}

#[test]
fn a_stale_socket_is_replaced_and_none_is_made_where_it_is_off() {
    let scratch = dir();
    let path = scratch.path().join("db");
    let off = || options().with_control_socket(ControlSocketChoice::Off);
    let db = Database::open_with(&path, off()).unwrap();
    assert!(!path.join("control.socket").exists());
    assert_eq!(ask(&path, &scratch.path().join("a")).unwrap(), BackupAnswer::NoListener);
    db.close().unwrap();
    // As left by killed processes: one that had the database open, and one that was about to open it.
    for name in ["control.socket", "control.socket.new"] {
        drop(UnixListener::bind(path.join(name)).unwrap());
    }
    assert_eq!(ask(&path, &scratch.path().join("a")).unwrap(), BackupAnswer::NoListener);
    let db = Database::open_with(&path, options()).unwrap();
    assert!(is_done(&ask(&path, &scratch.path().join("a")).unwrap()));
    assert!(!path.join("control.socket.new").exists());
    db.close().unwrap();
    assert_eq!(ask(&scratch.path().join("nothing"), &scratch.path().join("b")).unwrap(), BackupAnswer::NoListener);
}

#[test]
fn where_no_socket_can_be_made_the_database_is_open_all_the_same() {
    let scratch = dir();
    let path = scratch.path().join("db");
    std::fs::create_dir_all(path.join("control.socket.new/in the way")).unwrap();
    let db = Database::open_with(&path, options()).unwrap();
    db.create_tree("t").unwrap();
    assert_eq!(ask(&path, &scratch.path().join("a")).unwrap(), BackupAnswer::NoListener);
    db.close().unwrap();
}

#[test]
fn clients_that_hang_or_talk_nonsense_are_alone_with_it() {
    let scratch = dir();
    let path = scratch.path().join("db");
    let db = Database::open_with(&path, options()).unwrap();
    let connect = || UnixStream::connect(path.join("control.socket")).unwrap();
    let answer = |mut stream: UnixStream| {
        // Fails where the server has not read all of the request.
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        String::from_utf8(answer).unwrap()
    };
    let long = [b"seawall-control 1\nbackup\nto /".to_vec(), vec![b'a'; 100 << 10]].concat();
    let nonsense: [(&[u8], &str); 5] = [
        (b"GET / HTTP/1.1\r\n\r\n", "expects%20the%20greeting"),
        (b"seawall-control 1\nrestore\n.\n", "unknown%20request"),
        (b"seawall-control 1\nbackup\nto relative\n.\n", "absolute"),
        (b"\xff\xfe\n", "error"),
        (&long, "longer"),
    ];
    for (bytes, why) in nonsense {
        let mut stream = connect();
        // The request may be refused before all of it is written.
        drop(stream.write_all(bytes));
        let answer = answer(stream);
        assert!(answer.starts_with("seawall-control 1\nerror ") && answer.contains(why), "{why}: {answer}");
    }
    // One client disconnects during its request, one during its backup.
    connect().write_all(b"seawall-control 1\nbackup\n").unwrap();
    let mut stream = connect();
    let gone = scratch.path().join("gone");
    writeln!(stream, "seawall-control 1\nbackup\nto {}\nrate 1\n.", gone.display()).unwrap();
    has_begun(&gone);
    drop(stream);
    // Seven are silent: one more connection is possible. The slots of disconnected clients are freed
    // gradually.
    let mut hanging = Vec::new();
    while hanging.len() < 7 {
        let mut stream = BufReader::new(connect());
        stream.get_ref().set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let mut line = String::new();
        if stream.read_line(&mut line).is_err() {
            hanging.push(stream);
        }
    }
    loop {
        match ask(&path, &scratch.path().join("beside")) {
            Ok(asked) => break assert!(is_done(&asked)),
            Err(error) if error.to_string().contains("one at a time") => {}
            Err(error) if error.to_string().contains("serves 8 other connections") => {}
            Err(error) => panic!("{error}"),
        }
    }
    let last = loop {
        let mut stream = BufReader::new(connect());
        stream.get_ref().set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        if stream.read_line(&mut String::new()).is_err() {
            break stream;
        }
    };
    says(ask(&path, &scratch.path().join("ninth")), "serves 8 other connections");
    // Closing does not wait for them.
    db.close().unwrap();
    for stream in hanging.into_iter().chain([last]) {
        let stream = stream.into_inner();
        stream.set_read_timeout(None).unwrap();
        let answer = answer(stream);
        assert!(answer.contains("error"), "{answer}");
    }
}

#[test]
fn of_two_at_once_one_is_refused_and_one_can_be_broken_off() {
    let scratch = dir();
    let path = scratch.path().join("db");
    let db = Database::open_with(&path, options()).unwrap();
    let [first, second] = ["first", "second"].map(|name| scratch.path().join(name));
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            ask_slowly(&path, &first, |_| {
                if enough.load(Ordering::SeqCst) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        });
        has_begun(&first);
        says(ask(&path, &second), "one at a time");
        assert!(matches!(db.backup_to(&second, &at_rate(0)), Err(Error::Usage(_))));
        enough.store(true, Ordering::SeqCst);
        assert_eq!(asking.join().unwrap().unwrap(), BackupAnswer::Aborted);
    });
    // The server notices that the client has disconnected.
    let asked = loop {
        match ask(&path, &second) {
            Err(error) if error.to_string().contains("one at a time") => {}
            asked => break asked.unwrap(),
        }
    };
    assert!(is_done(&asked));
    let refused = Database::restore(&[&first], scratch.path().join("not"));
    assert!(matches!(refused, Err(Error::UnfinishedBackup { .. })), "{refused:?}");
}

/// Ends the database in some way during a backup that would never end.
fn ends(end: impl FnOnce(Database)) {
    let scratch = dir();
    let path = scratch.path().join("db");
    let db = Database::open_with(&path, options()).unwrap();
    let tree = db.create_tree("t").unwrap();
    db.transact(|tx| tx.put(&tree, b"k", b"v")).unwrap();
    let to = scratch.path().join("copy");
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask_slowly(&path, &to, |_| ControlFlow::Continue(())));
        has_begun(&to);
        drop(tree);
        end(db);
        // The backup no longer holds the files.
        let again = Database::open_with(&path, options()).unwrap();
        let tree = again.open_tree("t").unwrap();
        assert_eq!(again.get(&tree, b"k").unwrap().as_deref(), Some(&b"v"[..]));
        again.close().unwrap();
        says(asking.join().unwrap(), "shut down");
    });
    let refused = Database::restore(&[&to], scratch.path().join("not"));
    assert!(matches!(refused, Err(Error::UnfinishedBackup { .. })), "{refused:?}");
}

#[test]
fn closing_breaks_a_backup_off() {
    ends(|db| db.close().unwrap());
}

#[test]
fn dropping_the_last_handle_breaks_a_backup_off() {
    ends(drop);
}

#[test]
fn a_shutdown_breaks_a_backup_off() {
    ends(|db| {
        let other = db.clone();
        db.shutdown().unwrap();
        assert!(matches!(other.begin(), Err(Error::ShutDown)));
    });
}

/// Runs `f` on a thread of another user, if permitted.
fn as_nobody<T: Send>(f: impl FnOnce() -> T + Send) -> Option<T> {
    let unchanged = libc::uid_t::MAX;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: the bare system call changes the user of the calling thread alone, which ends after `f`.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, unchanged, 65_534, unchanged) };
            (changed == 0).then(f)
        });
        thread.join().unwrap()
    })
}

#[test]
fn another_user_is_refused() {
    let scratch = dir();
    std::fs::set_permissions(scratch.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path: PathBuf = scratch.path().join("db");
    let db = Database::open_with(&path, options()).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let to = scratch.path().join("copy");
    let Some(asked) = as_nobody(|| ask(&path, &to)) else {
        eprintln!("skipped: only root can be another user");
        return;
    };
    assert!(matches!(asked, Err(Error::Io(_))), "{asked:?}");
    // Even after a change of the socket's mode.
    std::fs::set_permissions(path.join("control.socket"), std::fs::Permissions::from_mode(0o666)).unwrap();
    says(as_nobody(|| ask(&path, &to)).unwrap(), "its own user");
    assert!(!to.exists());
    assert!(is_done(&ask(&path, &to).unwrap()));
    db.close().unwrap();
}
