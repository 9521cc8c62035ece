//! The active ids and the horizon, without a lock: a begin and an end write one cache line that all threads
//! share, and one of the thread's own stripe.
//!
//! ```text
//!   begin:  slot := BEGINNING (was FREE)     end:  state += 1         HELD in it: state -= 1, and end with the lock of the views held
//!           id   := next.fetch_add(1)              slot := FREE
//!           slot := id                             state -= 1;  was the id the horizon: raise it
//!
//!   close (with the lock of the views):  state |= GATE;  wait until ENDING is 0;  read `next`, then the slots;  state &= !GATE
//! ```
//!
//! 1. *A closed gate is one moment.* An end that adds to `state` after the gate was closed sees the gate, and frees no
//!    slot; `close` waits for an end that added before. So between closing and opening no transaction ends. A
//!    transaction whose `fetch_add` comes after the read of `next` has an id that is not below that `next`. A
//!    transaction whose `fetch_add` came before had already claimed its slot, so the reader of `next` sees the claim;
//!    it waits while the slot says `BEGINNING`.
//! 2. *No thread sees an end too early.* While views are made of the newest snapshot (`FRESH`), an end takes the lock
//!    of the views, clears `FRESH`, and only then frees its slot: once an id is seen as ended, every view made
//!    afterwards sees it.
//! 3. *The horizon* is the lowest active id, or `next`, while there is no snapshot (`LIVE`), and the `low` of the
//!    oldest snapshot while there is one. The end of the id that equals it raises it. `raise` reads the slots, then
//!    does a read-modify-write of `state` that changes nothing, and finds no `LIVE` there: a snapshot that is made
//!    later sees all ends that `raise` has seen, so its `low` is not below the new horizon. After raising, it checks
//!    whether the id has ended meanwhile: both `raise` and an end do a read-modify-write of `state` between their write
//!    and their read, so one of the two sees the other.
//! 4. Ids that find no slot in their stripe are in `spill`.
//! 5. Stripes from `used` on have had no id. `used` is raised before an id that needs the stripe is taken: as for slots
//!    (1), a reader of `next` sees that. So with few threads only a few stripes are searched.
//!
//! The model test (`model.rs`) checks 1 and 3 under every interleaving of a few threads.

use super::sync::{AtomicU64, MORE, Mutex, Ordering, Padded, STRIPES, pause, thread_number};

/// The slot has no id.
const FREE: u64 = u64::MAX;
/// The slot is claimed, and is about to get an id.
const BEGINNING: u64 = u64::MAX - 1;

/// In `state`: the number of transactions that are ending.
const ENDING: u64 = (1 << 32) - 1;
/// In `state`: no transaction may end.
const GATE: u64 = 1 << 32;
/// In `state`: the newest snapshot is of now.
const FRESH: u64 = 1 << 33;
/// In `state`: there is a snapshot.
const LIVE: u64 = 1 << 34;
/// An end needs the lock of the views.
const HELD: u64 = GATE | FRESH;

#[derive(Debug)]
pub(super) struct Ids {
    line: Padded<Line>,
    stripes: Box<[Padded<Stripe>]>,
    used: AtomicU64,
    /// The number of ids in `spill`; written with it locked.
    spilled: AtomicU64,
    spill: Mutex<Vec<u64>>,
}

#[derive(Debug)]
struct Line {
    next: AtomicU64,
    state: AtomicU64,
    horizon: AtomicU64,
}

#[derive(Debug)]
struct Stripe {
    first: AtomicU64,
    /// An upper bound of the number of other slots in use.
    used: AtomicU64,
    more: [AtomicU64; MORE],
}

/// The result of an attempt to end without the lock of the views.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// It is done.
    Done,
    /// It is done, and the caller has to prune with the lock held.
    Prune,
    /// Nothing was done: the end needs the lock.
    Locked,
}

impl Stripe {
    fn new() -> Self {
        let first = AtomicU64::new(FREE);
        Self { first, used: AtomicU64::new(0), more: std::array::from_fn(|_| AtomicU64::new(FREE)) }
    }

    /// Claims a free slot: sets it to `BEGINNING`.
    fn claim(&self) -> Option<&AtomicU64> {
        let take = |slot: &&AtomicU64| {
            slot.load(Ordering::Relaxed) == FREE
                && slot.compare_exchange(FREE, BEGINNING, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        if take(&&self.first) {
            return Some(&self.first);
        }
        self.used.fetch_add(1, Ordering::AcqRel);
        let slot = self.more.iter().find(take);
        if slot.is_none() {
            self.used.fetch_sub(1, Ordering::AcqRel);
        }
        slot
    }

    fn free(&self, id: u64) -> bool {
        let free = |slot: &AtomicU64| {
            slot.load(Ordering::Relaxed) == id
                && slot.compare_exchange(id, FREE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        if free(&self.first) {
            return true;
        }
        let freed = self.used.load(Ordering::Acquire) > 0 && self.more.iter().any(free);
        if freed {
            self.used.fetch_sub(1, Ordering::AcqRel);
        }
        freed
    }
}

/// The id in a slot, once it is known.
#[inline]
fn id_in(slot: &AtomicU64) -> Option<u64> {
    let mut turn = 0;
    loop {
        match slot.load(Ordering::Acquire) {
            FREE => return None,
            BEGINNING => pause(turn),
            id => return Some(id),
        }
        turn += 1;
    }
}

impl Ids {
    pub(super) fn new() -> Self {
        Self {
            line: Padded(Line { next: AtomicU64::new(1), state: AtomicU64::new(0), horizon: AtomicU64::new(1) }),
            stripes: (0..STRIPES).map(|_| Padded(Stripe::new())).collect(),
            used: AtomicU64::new(0),
            spilled: AtomicU64::new(0),
            spill: Mutex::new(Vec::new()),
        }
    }

    /// The stripe of the calling thread.
    fn own(&self) -> &Stripe {
        let own = thread_number() % STRIPES;
        if own as u64 >= self.used.load(Ordering::Relaxed) {
            self.used.fetch_max(own as u64 + 1, Ordering::AcqRel);
        }
        &self.stripes[own].0
    }

    /// The stripes that had an id (5).
    #[inline]
    fn used(&self) -> &[Padded<Stripe>] {
        &self.stripes[..self.used.load(Ordering::Acquire) as usize]
    }

    fn line(&self) -> &Line {
        &self.line.0
    }

    /// The id that the next begin gets.
    pub(super) fn next(&self) -> u64 {
        self.line().next.load(Ordering::Acquire)
    }

    pub(super) fn horizon(&self) -> u64 {
        self.line().horizon.load(Ordering::Acquire)
    }

    /// Called before another thread has the set: `next` is the first id to assign, `unended` are active.
    pub(super) fn restore(&self, next: u64, unended: &[u64]) {
        for stripe in &self.stripes {
            for slot in std::iter::once(&stripe.0.first).chain(&stripe.0.more) {
                slot.store(FREE, Ordering::Release);
            }
            stripe.0.used.store(0, Ordering::Release);
        }
        let mut spill = self.spill.lock();
        spill.clear();
        for (i, &id) in unended.iter().enumerate() {
            match self.stripes[i % STRIPES].0.claim() {
                Some(slot) => slot.store(id, Ordering::Release),
                None => spill.push(id),
            }
        }
        self.used.fetch_max(unended.len().min(STRIPES) as u64, Ordering::AcqRel);
        self.spilled.store(spill.len() as u64, Ordering::Release);
        drop(spill);
        self.line().next.store(next, Ordering::Release);
        self.line().state.store(0, Ordering::Release);
        self.line().horizon.store(unended.iter().copied().min().unwrap_or(next), Ordering::Release);
    }

    /// The next id, active from now on.
    pub(super) fn begin(&self) -> u64 {
        let next = &self.line().next;
        if let Some(slot) = self.own().claim() {
            let id = next.fetch_add(1, Ordering::AcqRel);
            slot.store(id, Ordering::Release);
            return id;
        }
        let mut spill = self.spill.lock();
        // Before the id is taken: as for slots (1), a reader of `next` sees it.
        self.spilled.fetch_add(1, Ordering::AcqRel);
        let id = next.fetch_add(1, Ordering::AcqRel);
        spill.push(id);
        id
    }

    /// Makes `id` inactive; returns whether it was active. Called only where the gate cannot be closed
    /// meanwhile.
    pub(super) fn free(&self, id: u64) -> bool {
        if self.own().free(id) || self.used().iter().any(|Padded(stripe)| stripe.free(id)) {
            return true;
        }
        if self.spilled.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut spill = self.spill.lock();
        let at = spill.iter().position(|&one| one == id);
        if let Some(at) = at {
            spill.swap_remove(at);
            self.spilled.fetch_sub(1, Ordering::AcqRel);
        }
        at.is_some()
    }

    /// Ends `id`, as far as possible without the lock of the views.
    pub(super) fn end(&self, id: u64) -> Ended {
        let state = &self.line().state;
        if state.fetch_add(1, Ordering::AcqRel) & HELD != 0 {
            state.fetch_sub(1, Ordering::AcqRel);
            return Ended::Locked;
        }
        self.free(id);
        let before = state.fetch_sub(1, Ordering::AcqRel);
        if self.horizon() != id {
            return Ended::Done;
        }
        if before & LIVE != 0 || !self.raise() { Ended::Prune } else { Ended::Done }
    }

    /// The lowest active id, or `next`; and the stripe that has it in its first slot.
    fn low(&self) -> (u64, Option<usize>) {
        let (mut low, mut at) = (self.next(), None);
        for (i, Padded(stripe)) in self.used().iter().enumerate() {
            if let Some(id) = id_in(&stripe.first).filter(|&id| id < low) {
                (low, at) = (id, Some(i));
            }
            if stripe.used.load(Ordering::Acquire) > 0 {
                if let Some(id) = stripe.more.iter().filter_map(id_in).min().filter(|&id| id < low) {
                    (low, at) = (id, None);
                }
            }
        }
        if self.spilled.load(Ordering::Acquire) > 0 {
            if let Some(&id) = self.spill.lock().iter().min().filter(|&&id| id < low) {
                (low, at) = (id, None);
            }
        }
        (low, at)
    }

    /// Raises the horizon to the lowest active id; `false` if there is a snapshot, which limits the horizon.
    pub(super) fn raise(&self) -> bool {
        let line = self.line();
        let mut last = None;
        loop {
            let (low, at) = self.low();
            // Changes nothing, but takes its place in the order of all changes of `state` (3).
            if line.state.fetch_or(0, Ordering::AcqRel) & LIVE != 0 {
                return false;
            }
            line.horizon.fetch_max(low, Ordering::AcqRel);
            line.state.fetch_or(0, Ordering::AcqRel);
            // If the id has ended meanwhile, its end may have read the horizon before it was raised.
            let there = match at {
                Some(stripe) => self.stripes[stripe].0.first.load(Ordering::Acquire) == low,
                None => self.next() == low || last == Some(low),
            };
            if there {
                return true;
            }
            last = Some(low);
        }
    }

    /// Clears `LIVE`: no snapshot is left. The caller holds the lock of the views.
    pub(super) fn none_is_live(&self) {
        self.line().state.fetch_and(!LIVE, Ordering::AcqRel);
    }

    /// Raises the horizon to `low`, of the oldest snapshot. The caller holds the lock of the views.
    pub(super) fn raise_to(&self, low: u64) {
        self.line().horizon.fetch_max(low, Ordering::AcqRel);
    }

    /// Clears `FRESH`: no more views are made of the newest snapshot. The caller holds the lock of the views.
    pub(super) fn none_is_fresh(&self) {
        self.line().state.fetch_and(!FRESH, Ordering::AcqRel);
    }

    /// Closes the gate: until it is opened no transaction ends. Calls `each` with all active ids, in no
    /// particular order; returns the `next` of this moment. The caller holds the lock of the views.
    pub(super) fn close(&self, mut each: impl FnMut(u64)) -> u64 {
        let state = &self.line().state;
        state.fetch_or(GATE, Ordering::AcqRel);
        let mut turn = 0;
        while state.load(Ordering::Acquire) & ENDING != 0 {
            pause(turn);
            turn += 1;
        }
        let next = self.next();
        self.for_each(|id| {
            if id < next {
                each(id);
            }
        });
        next
    }

    /// Opens the gate. `fresh`: a snapshot was made of this moment, and views can be made of it from now on.
    pub(super) fn open(&self, fresh: bool) {
        let state = &self.line().state;
        if fresh {
            state.fetch_or(FRESH | LIVE, Ordering::AcqRel);
        }
        state.fetch_and(!GATE, Ordering::AcqRel);
    }

    /// Calls `each` with the active ids. They are of no single moment, unless the gate is closed.
    pub(super) fn for_each(&self, mut each: impl FnMut(u64)) {
        for Padded(stripe) in self.used() {
            if let Some(id) = id_in(&stripe.first) {
                each(id);
            }
            if stripe.used.load(Ordering::Acquire) > 0 {
                stripe.more.iter().filter_map(id_in).for_each(&mut each);
            }
        }
        if self.spilled.load(Ordering::Acquire) > 0 {
            self.spill.lock().iter().copied().for_each(each);
        }
    }

    /// Whether `id` is active. The caller knows that it was begun.
    pub(super) fn is_active(&self, id: u64) -> bool {
        let in_stripe = |Padded(stripe): &Padded<Stripe>| {
            stripe.first.load(Ordering::Acquire) == id
                || (stripe.used.load(Ordering::Acquire) > 0
                    && stripe.more.iter().any(|slot| slot.load(Ordering::Acquire) == id))
        };
        self.used().iter().any(in_stripe)
            || (self.spilled.load(Ordering::Acquire) > 0 && self.spill.lock().contains(&id))
    }
}
