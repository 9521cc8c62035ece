//! Crashes: of the process, or of the machine.
//!
//! 1. The page cache survives a process crash. Writes in flight of the dead process may land later, until
//!    its successor holds the lock of the file.
//! 2. After a power cut, [`crate::crash`] has decided every pending change, and nothing is in flight.
//! 3. After either, no handle and no lock is left.

use super::requests::{request_error, rest};
use super::*;
use crate::crash::CrashOutcomes;

impl State {
    /// Kills the process: handles and locks are gone, the page cache stays, writes in flight may land later.
    pub(crate) fn process_crash(&mut self) {
        self.note(Call::ProcessCrash);
        for late in self.writes_in_flight() {
            if self.rng.percent(75) {
                let due_op = self.ops + 1 + self.rng.below(self.options.late_within_ops);
                self.late.push(LateWrite { due_op, ..late });
            }
        }
        self.end_process();
    }

    /// Cuts the power: any subset of what is pending and in flight persists; then the machine restarts.
    pub(crate) fn power_cut(&mut self) {
        self.note(Call::PowerCut);
        let mut torn = self.writes_in_flight();
        torn.append(&mut self.late);
        for late in torn {
            let volatile = OpenHow { dsync: false, ..late.open };
            let how = WriteHow { atomic: late.how.atomic, ..WriteHow::default() };
            match self.write_inode(late.inode, late.offset, &late.bytes, how, volatile, None) {
                // No space, or the file no longer exists: the write has no effect.
                Ok(_) | Err(_) => {}
            }
        }
        self.end_process();
        let seqs = || self.files.values().flat_map(|file| file.pending.seqs()).chain(self.names.seqs());
        let (oldest, newest) = (seqs().min().unwrap_or(0), seqs().max().unwrap_or(0));
        let unit = self.unit();
        let mut outcomes = CrashOutcomes::new(&mut self.rng, oldest, newest);
        for file in self.files.values_mut() {
            if !file.pending.is_empty() {
                file.pending.cut(unit, &mut file.stable, &mut outcomes);
            }
            file.restart();
        }
        self.names.cut(&mut outcomes);
        self.forget_unreachable();
        self.now += Duration::from_secs(30);
    }

    /// Loses everything pending, without random decisions.
    pub(crate) fn lose_all(&mut self) {
        self.note(Call::PowerCut);
        self.late.clear();
        self.end_process();
        for file in self.files.values_mut() {
            file.stable.settle();
            file.restart();
        }
        self.names.forget_pending();
        self.forget_unreachable();
    }

    fn note(&mut self, call: Call) {
        self.ops += 1;
        let (number, at) = (self.ops, self.now);
        self.trace.push(TraceEntry {
            number,
            at,
            call,
            path: PathBuf::new(),
            offset: 0,
            len: 0,
            outcome: Ok(0),
            grew: 0,
            allocated: 0,
            device_read: 0,
            fault: None,
        });
    }

    /// Returns the rest of every write in flight, in due order.
    pub(super) fn writes_in_flight(&self) -> Vec<LateWrite> {
        self.queue
            .iter()
            .filter_map(|one| {
                let request = &one.request;
                let RequestKind::Write(how) = request.kind else { return None };
                let id = request.file.simulated_id()?;
                let open = self.open.get(&id)?;
                Some(LateWrite {
                    inode: open.inode,
                    path: normal(request.file.path()),
                    offset: request.offset + request.done as u64,
                    bytes: rest(request),
                    how,
                    open: open.how,
                    due_op: 0,
                    keeps_lock: self.locks.get(&open.inode).is_some_and(|holders| holders.handles.contains(&id)),
                })
            })
            .filter(|late| late.open.write && self.check_late(late))
            .collect()
    }

    fn check_late(&self, late: &LateWrite) -> bool {
        self.check_range(late.offset, late.bytes.len() as u64, late.open.direct, libc::EFBIG).is_ok()
    }

    fn end_process(&mut self) {
        for InFlight { request, completer, .. } in self.queue.drain() {
            let result = Err(request_error(&request, Errno(libc::ENXIO)));
            self.queue.ready.push((completer, Completion { result, bufs: request.bufs }));
        }
        self.open.clear();
        self.locks.clear();
        self.forget_unreachable();
    }

    pub(super) fn land_late(&mut self) {
        let now = self.ops;
        if self.late.iter().any(|late| late.due_op <= now) {
            self.land(|late| late.due_op <= now);
        }
    }

    pub(super) fn land(&mut self, which: impl Fn(&LateWrite) -> bool) {
        let (mut landing, waiting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.late).into_iter().partition(which);
        self.late = waiting;
        landing.sort_by_key(|late| late.due_op);
        for late in landing {
            self.ops += 1;
            let answer = self.write_inode(late.inode, late.offset, &late.bytes, late.how, late.open, None);
            self.trace.push(TraceEntry {
                number: self.ops,
                at: self.now,
                call: Call::LateWrite,
                path: late.path,
                offset: late.offset,
                len: late.bytes.len() as u64,
                outcome: answer.map(|((), moved)| moved).map_err(|errno| errno.0),
                grew: 0,
                allocated: 0,
                device_read: 0,
                fault: None,
            });
        }
        self.forget_unreachable();
    }
}
