//! Intervals of keys, and sets of them.
//!
//! 1. A span is half-open, `lo <= key < hi`; without `hi` it has no end. Keys are byte strings, so the next
//!    key after `k` is `k` plus a zero byte: every kind of bound has this one form, and the empty key is the
//!    lowest of all.
//! 2. The spans of a set are sorted, not empty, and neither overlap nor touch: their `hi` are sorted too.
//! 3. Adding and joining never uncover a key. A span is removed only as a whole, if nothing was joined to it.

use crate::spare;
use std::borrow::Cow;
use std::cell::Cell;
use std::ops::Bound;

thread_local! {
    /// The memory of the thread's spans ([`KeySpan::with`]).
    static SPAN: Cell<KeySpan> = Cell::default();
}

/// Keys from `lo` to before `hi`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeySpan {
    pub(super) lo: Vec<u8>,
    pub(super) hi: Option<Vec<u8>>,
}

/// Makes `to` the least key above `key`.
fn set_after(to: &mut Vec<u8>, key: &[u8]) {
    to.clear();
    to.reserve(key.len() + 1);
    to.extend_from_slice(key);
    to.push(0);
}

/// Makes `to` this key.
fn set_same(to: &mut Vec<u8>, key: &[u8]) {
    to.clear();
    to.extend_from_slice(key);
}

/// Whether `lo` is below the end `hi`.
fn before(lo: &[u8], hi: Option<&Vec<u8>>) -> bool {
    hi.is_none_or(|hi| lo < hi.as_slice())
}

impl KeySpan {
    pub(super) fn new(lo: Bound<&[u8]>, hi: Bound<&[u8]>) -> Self {
        let mut span = Self::default();
        span.set(lo, hi);
        span
    }

    /// Calls `f` with the span between two bounds, in memory that the thread keeps.
    pub fn with<T>(lo: Bound<&[u8]>, hi: Bound<&[u8]>, f: impl FnOnce(&Self) -> T) -> T {
        let mut span = spare::take(&SPAN);
        span.set(lo, hi);
        let answer = f(&span);
        spare::keep(&SPAN, span);
        answer
    }

    /// Changes it to this interval, reusing its memory.
    fn set(&mut self, lo: Bound<&[u8]>, hi: Bound<&[u8]>) {
        match lo {
            Bound::Unbounded => self.lo.clear(),
            Bound::Included(key) => set_same(&mut self.lo, key),
            Bound::Excluded(key) => set_after(&mut self.lo, key),
        }
        match hi {
            Bound::Unbounded => self.hi = None,
            Bound::Included(key) => set_after(self.hi.get_or_insert_default(), key),
            Bound::Excluded(key) => set_same(self.hi.get_or_insert_default(), key),
        }
    }

    /// One key.
    pub(super) fn key(key: &[u8]) -> Self {
        Self::new(Bound::Included(key), Bound::Included(key))
    }

    pub(super) fn is_empty(&self) -> bool {
        !before(&self.lo, self.hi.as_ref())
    }

    /// Every possible key.
    pub(super) fn is_whole(&self) -> bool {
        self.lo.is_empty() && self.hi.is_none()
    }
}

/// The keys of a request: one, or a span.
#[derive(Debug, Clone, Copy)]
pub(super) enum Keys<'a> {
    One(&'a [u8]),
    Span(&'a KeySpan),
}

impl<'a> Keys<'a> {
    pub(super) fn meets(self, span: &KeySpan) -> bool {
        match self {
            Self::One(key) => span.lo.as_slice() <= key && before(key, span.hi.as_ref()),
            Self::Span(other) => before(&other.lo, span.hi.as_ref()) && before(&span.lo, other.hi.as_ref()),
        }
    }

    pub(super) fn to_span(self) -> Cow<'a, KeySpan> {
        match self {
            Self::One(key) => Cow::Owned(KeySpan::key(key)),
            Self::Span(span) => Cow::Borrowed(span),
        }
    }
}

/// A set of keys made of spans.
#[derive(Debug, Default)]
pub(super) struct Spans(Vec<KeySpan>);

impl Spans {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The last span that starts before the end of `keys`. By (2) no span before it reaches further.
    fn candidate(&self, keys: Keys<'_>) -> Option<&KeySpan> {
        let until = match keys {
            Keys::One(key) => self.0.partition_point(|span| span.lo.as_slice() <= key),
            Keys::Span(want) => self.0.partition_point(|span| before(&span.lo, want.hi.as_ref())),
        };
        self.0.get(until.checked_sub(1)?)
    }

    /// Whether the set has a key of `keys`.
    pub(super) fn meets(&self, keys: Keys<'_>) -> bool {
        self.candidate(keys).is_some_and(|span| keys.meets(span))
    }

    /// Whether the set has every key of `keys`.
    pub(super) fn covers(&self, keys: Keys<'_>) -> bool {
        self.candidate(keys).is_some_and(|span| match keys {
            Keys::One(key) => before(key, span.hi.as_ref()),
            Keys::Span(want) => {
                span.lo <= want.lo
                    && match (&span.hi, &want.hi) {
                        (None, _) => true,
                        (Some(_), None) => false,
                        (Some(own), Some(hi)) => own >= hi,
                    }
            }
        })
    }

    /// Adds a span that is not empty, and merges it with the spans it overlaps or touches.
    pub(super) fn add(&mut self, span: &KeySpan) {
        // A scan adds a span for each row, and each begins where the one before ends.
        if let Some(last) = self.0.last_mut().filter(|last| last.hi.as_ref() == Some(&span.lo)) {
            last.hi.clone_from(&span.hi);
            return;
        }
        let from = self.0.partition_point(|one| one.hi.as_ref().is_some_and(|hi| *hi < span.lo));
        let to = self.0.partition_point(|one| span.hi.as_ref().is_none_or(|hi| one.lo <= *hi));
        if from >= to {
            self.0.insert(from, span.clone());
            return;
        }
        let last = self.0.drain(from + 1..to).next_back();
        let first = &mut self.0[from];
        if span.lo < first.lo {
            first.lo.clone_from(&span.lo);
        }
        for hi in [last.as_ref().map(|last| &last.hi), Some(&span.hi)].into_iter().flatten() {
            let further = match (&first.hi, hi) {
                (None, _) => false,
                (Some(_), None) => true,
                (Some(own), Some(hi)) => hi > own,
            };
            if further {
                first.hi.clone_from(hi);
            }
        }
    }

    /// Removes exactly this span; returns whether it was there.
    pub(super) fn remove(&mut self, span: &KeySpan) -> bool {
        let found = self.0.iter().position(|one| one == span);
        found.map(|at| self.0.remove(at)).is_some()
    }

    /// Joins neighbours, those whose facing ends share the longest prefix first, until there are at most
    /// `max` spans. Returns whether it joined any.
    pub(super) fn join_to(&mut self, max: usize) -> bool {
        let mut joined = false;
        while self.0.len() > max.max(1) {
            let alike = |pair: &[KeySpan]| {
                let left = pair[0].hi.as_deref().unwrap_or_default();
                left.iter().zip(&pair[1].lo).take_while(|(left, right)| left == right).count()
            };
            let best = self.0.windows(2).enumerate().max_by_key(|(_, pair)| alike(pair)).map_or(0, |(at, _)| at);
            let right = self.0.remove(best + 1);
            self.0[best].hi = right.hi;
            joined = true;
        }
        joined
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
        let key = prop::collection::vec(0_u8..3, 0..3);
        prop_oneof![
            1 => Just(Bound::Unbounded),
            4 => key.clone().prop_map(Bound::Included),
            4 => key.prop_map(Bound::Excluded),
        ]
    }

    fn slice(bound: &Bound<Vec<u8>>) -> Bound<&[u8]> {
        bound.as_ref().map(Vec::as_slice)
    }

    /// All keys of up to three bytes of 0..3: closed under "right after" as far as the bounds above can tell.
    fn keys() -> Vec<Vec<u8>> {
        let mut all = vec![vec![]];
        let mut from = 0;
        for _ in 0..3 {
            let to = all.len();
            for at in from..to {
                for byte in 0..3 {
                    let mut key: Vec<u8> = all[at].clone();
                    key.push(byte);
                    all.push(key);
                }
            }
            from = to;
        }
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn a_set_of_spans_is_a_set_of_keys(
            adds in prop::collection::vec((bound(), bound()), 1..12),
            ask in (bound(), bound()),
            max in 1_usize..4,
        ) {
            use std::ops::RangeBounds;
            let all = keys();
            let mut set = Spans::default();
            let mut model = vec![false; all.len()];
            for (lo, hi) in &adds {
                let span = KeySpan::new(slice(lo), slice(hi));
                for (key, inside) in all.iter().zip(&mut model) {
                    let within = (lo.clone(), hi.clone()).contains(key);
                    prop_assert_eq!(Keys::One(key).meets(&span), within);
                    *inside |= within;
                }
                if !span.is_empty() {
                    set.add(&span);
                }
                for pair in set.0.windows(2) {
                    prop_assert!(pair[0].hi.as_ref().is_some_and(|hi| *hi < pair[1].lo));
                }
            }
            for (key, inside) in all.iter().zip(&model) {
                prop_assert_eq!(set.meets(Keys::One(key)), *inside);
                prop_assert_eq!(set.covers(Keys::One(key)), *inside);
            }
            let span = KeySpan::new(slice(&ask.0), slice(&ask.1));
            if !span.is_empty() {
                let mut within = all.iter().zip(&model).filter(|(key, _)| Keys::One(key).meets(&span)).map(|(_, inside)| *inside);
                // A span has more keys than the model knows: it may meet or miss the set between them.
                if within.clone().any(|inside| inside) {
                    prop_assert!(set.meets(Keys::Span(&span)));
                }
                if set.covers(Keys::Span(&span)) {
                    prop_assert!(within.all(|inside| inside));
                    prop_assert!(set.meets(Keys::Span(&span)));
                }
            }
            set.join_to(max);
            prop_assert!(set.len() <= max);
            for (key, inside) in all.iter().zip(&model) {
                prop_assert!(!inside || set.meets(Keys::One(key)), "joining uncovers nothing");
            }
        }
    }

    #[test]
    fn neighbours_that_look_alike_are_joined_first() {
        let mut set = Spans::default();
        for key in ["apple", "banana1", "banana2", "cherry"] {
            set.add(&KeySpan::key(key.as_bytes()));
        }
        assert!(set.join_to(3));
        assert!(set.meets(Keys::One(b"banana15")) && !set.meets(Keys::One(b"b")) && !set.meets(Keys::One(b"c")));
    }

    #[test]
    fn a_scan_that_goes_on_keeps_one_span() {
        let mut set = Spans::default();
        set.add(&KeySpan::new(Bound::Included(b"a"), Bound::Excluded(b"c")));
        set.add(&KeySpan::new(Bound::Included(b"c"), Bound::Included(b"e")));
        set.add(&KeySpan::new(Bound::Excluded(b"e"), Bound::Unbounded));
        assert_eq!(set.len(), 1);
        assert!(set.covers(Keys::Span(&KeySpan::new(Bound::Included(b"a"), Bound::Unbounded))));
    }
}
