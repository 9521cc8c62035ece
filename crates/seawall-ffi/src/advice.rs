//! What a server writes into its error log: the engine's messages, and findings with advice.

use crate::database::Database;
use crate::slice::{Slice, exclusive, free, hand_out, shared, usage};
use crate::status::{Status, call};
use seawall::MemoryLimit;
use seawall_tools::doctor::{Diagnosis, Severity, Watch, place};
use std::ffi::c_void;
use std::sync::RwLock;

/// The importance of a message or a finding.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Importance {
    /// Worth knowing.
    Note = 0,
    /// It costs performance, or will soon cause something worse.
    Warning = 1,
    /// Act now.
    Error = 2,
}

/// Called with a message.
pub type MessageFn = Option<unsafe extern "C" fn(context: *mut c_void, importance: Importance, text: Slice)>;
/// Called with a finding: its name in docs/operations.md (`id`), what was observed (`sentence`), and what to do
/// (`advice`).
pub type AdviceFn = Option<
    unsafe extern "C" fn(context: *mut c_void, importance: Importance, id: Slice, sentence: Slice, advice: Slice),
>;

/// Where messages go. The caller promises that any thread may use the context.
struct Destination {
    told: unsafe extern "C" fn(context: *mut c_void, importance: Importance, text: Slice),
    context: *mut c_void,
}
// SAFETY: as `seawall_on_message` requires.
unsafe impl Send for Destination {}
// SAFETY: as `seawall_on_message` requires.
unsafe impl Sync for Destination {}

static DESTINATION: RwLock<Option<Destination>> = RwLock::new(None);

struct Messages;

impl log::Log for Messages {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Info
    }

    fn log(&self, record: &log::Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let Ok(destination) = DESTINATION.read() else { return };
        let Some(to) = &*destination else { return };
        let importance = match record.level() {
            log::Level::Error => Importance::Error,
            log::Level::Warn => Importance::Warning,
            _ => Importance::Note,
        };
        let text = record.args().to_string();
        // SAFETY: as `seawall_on_message` requires: `told` may be called until it is replaced, and replacing it waits
        // for this call.
        unsafe { (to.told)(to.context, importance, Slice::of(text.as_bytes())) };
    }

    fn flush(&self) {}
}

/// Sets the function that is called with each message of the engine, for all databases of the process; null removes it.
/// Waits until no call of the previous function runs. Any thread may call `told`, which must not call this function.
///
/// # Safety
/// Any thread may call `told` with `context`, until another function is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_on_message(told: MessageFn, context: *mut c_void) -> Status {
    call(|| {
        static LOGGER: Messages = Messages;
        // No thread panics while it changes the value under this lock, so a poisoned lock still has a whole value.
        let mut destination = DESTINATION.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        *destination = told.map(|told| Destination { told, context });
        if log::set_logger(&LOGGER).is_ok() {
            log::set_max_level(log::LevelFilter::Info);
        }
        Ok(Status::Ok)
    })
}

/// Watches a database for what its operator should know.
#[derive(Debug, Default)]
pub struct Advice {
    watch: Watch,
    looked: bool,
}

fn tell(found: &[Diagnosis], told: impl Fn(Importance, Slice, Slice, Slice)) {
    for finding in found {
        let importance = match finding.severity {
            Severity::Critical => Importance::Error,
            Severity::Warning => Importance::Warning,
            Severity::Note | Severity::Good => Importance::Note,
        };
        let text = |text: &str| Slice::of(text.as_bytes());
        told(importance, text(finding.id), text(&finding.sentence), text(&finding.advice));
    }
}

/// Makes a watch for one opening of a database.
///
/// # Safety
/// `advice` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_advice_new(advice: *mut *mut Advice) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        unsafe { hand_out(advice, Advice::default()) }?;
        Ok(Status::Ok)
    })
}

/// Calls `told` with each new finding about the time since the last call. A finding is new if it was not reported
/// within the last hour, or is worse since. The first call also checks the options, and the disks of the database's
/// directories.
///
/// # Safety
/// `advice` and `db` are handles; `told` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_advice_look(
    advice: *mut Advice,
    db: *const Database,
    told: AdviceFn,
    context: *mut c_void,
) -> Status {
    call(|| {
        // SAFETY: as the function requires.
        let (advice, db) = unsafe { (exclusive(advice)?, shared(db)?) };
        let told = told.ok_or_else(|| usage("seawall_advice_look without a function"))?;
        let mut found = Vec::new();
        let text = |text: &str| Slice::of(text.as_bytes());
        // SAFETY: as the function requires.
        let say = |importance, id, sentence, what| unsafe { told(context, importance, id, sentence, what) };
        if !std::mem::replace(&mut advice.looked, true) {
            for warning in db.0.options().warnings(&MemoryLimit::read()) {
                say(Importance::Warning, text(warning.option), text(&warning.to_string()), text(""));
            }
            let dir = db.0.path();
            found.extend(place(dir));
            let log_dir = db.0.options().log_dir_of(dir);
            if log_dir != dir {
                found.extend(place(&log_dir));
            }
        }
        found.extend(advice.watch.look(db.0.stats()));
        tell(&found, say);
        Ok(Status::Ok)
    })
}

/// Frees a watch.
///
/// # Safety
/// `advice` is null, or a handle that no call uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn seawall_advice_free(advice: *mut Advice) {
    // SAFETY: as the function requires.
    unsafe { free(advice) };
}
