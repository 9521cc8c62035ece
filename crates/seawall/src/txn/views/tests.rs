use super::*;
use proptest::prelude::*;
use seawall_io::SystemClock;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicUsize;

/// A clock that stands still until it is moved.
#[derive(Debug, Default)]
struct Hand(AtomicU64);

impl Clock for Hand {
    fn now(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
    fn sleep(&self, duration: Duration) {
        self.0.fetch_add(duration.as_micros() as u64, Ordering::Relaxed);
    }
}

fn set() -> ActiveSet {
    ActiveSet::new(Arc::new(SystemClock::default()))
}

#[test]
fn a_view_sees_what_ended_before_it_and_nothing_else() {
    let set = set();
    let (a, b) = (set.begin(), set.begin());
    assert_eq!((a, b, set.next_id()), (TxnId(1), TxnId(2), TxnId(3)));
    let before = set.view();
    set.end(b);
    let between = set.view();
    set.end(a);
    let after = set.view();
    let seen = |view: &View| (view.sees(a), view.sees(b), view.sees(TxnId(3)), view.sees(TxnId::NONE));
    assert_eq!(seen(&before), (false, false, false, true));
    assert_eq!(seen(&between), (false, true, false, true));
    assert_eq!(seen(&after), (true, true, false, true));
    assert!(!set.is_active(a) && !set.is_active(TxnId::NONE) && !set.is_active(TxnId(99)));
}

#[test]
fn after_a_restart_all_but_the_losers_and_the_prepared_are_seen() {
    let set = set();
    set.restore(TxnId(100), &[TxnId(70), TxnId(40)]);
    let view = set.view();
    assert!(view.sees(TxnId(39)) && view.sees(TxnId(69)) && view.sees(TxnId(99)), "committed above a prepared one");
    assert!(!view.sees(TxnId(40)) && !view.sees(TxnId(70)) && !view.sees(TxnId(100)));
    assert_eq!((set.horizon(), set.begin()), (TxnId(40), TxnId(100)));
    set.end(TxnId(40));
    assert_eq!(set.horizon(), TxnId(40), "the view still needs what 40 changed");
    drop(view);
    assert_eq!(set.horizon(), TxnId(70));
}

#[test]
fn views_of_one_moment_share_their_list() {
    let set = set();
    let id = set.begin();
    let (one, two) = (set.view(), set.view());
    let later = set.begin();
    let three = set.view();
    assert!(Arc::ptr_eq(&one.snapshot, &two.snapshot) && Arc::ptr_eq(&one.snapshot, &three.snapshot));
    set.end(later);
    let four = set.view();
    assert!(!Arc::ptr_eq(&one.snapshot, &four.snapshot));
    assert_eq!(set.views(), 4);
    drop((one, two, three, four));
    assert_eq!(set.views(), 0);
    set.end(id);
    assert_eq!(set.horizon(), set.next_id());
}

#[test]
fn a_long_view_does_not_make_the_list_of_snapshots_grow() {
    let set = set();
    let _held = set.view();
    for _ in 0..10_000 {
        let id = set.begin();
        drop(set.view());
        set.end(id);
        drop(set.view());
    }
    assert!(set.shared.state.read().live.len() <= 64);
}

#[test]
fn the_age_of_the_oldest_view() {
    let clock = Arc::new(Hand::default());
    let set = ActiveSet::new(clock.clone());
    assert_eq!(set.oldest_view_age(), None);
    drop(set.view());
    clock.sleep(Duration::from_secs(60));
    let old = set.view();
    assert_eq!(set.oldest_view_age(), Some(Duration::ZERO), "no view for a minute");
    clock.sleep(Duration::from_secs(2));
    let id = set.begin();
    set.end(id);
    let new = set.view();
    clock.sleep(Duration::from_secs(3));
    assert_eq!(set.oldest_view_age(), Some(Duration::from_secs(5)));
    drop(old);
    assert_eq!(set.oldest_view_age(), Some(Duration::from_secs(3)));
    drop(new);
    assert_eq!(set.oldest_view_age(), None);
}

#[derive(Debug, Clone)]
enum Step {
    Begin,
    End(usize),
    Open,
    Share(usize),
    Close(usize),
    Purge,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Begin),
        3 => (0..64_usize).prop_map(Step::End),
        3 => Just(Step::Open),
        1 => (0..64_usize).prop_map(Step::Share),
        3 => (0..64_usize).prop_map(Step::Close),
        1 => Just(Step::Purge),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn sees_what_a_naive_model_sees(steps in prop::collection::vec(step(), 1..120)) {
        let set = set();
        let mut active = BTreeSet::new();
        let mut ended = BTreeSet::new();
        let mut views: Vec<(View, BTreeSet<u64>)> = Vec::new();
        let mut purges: Vec<OldestView> = Vec::new();
        for step in steps {
            match step {
                Step::Begin => { active.insert(set.begin().0); }
                Step::End(pick) => if let Some(&id) = active.iter().nth(pick % active.len().max(1)) {
                    set.end(TxnId(id));
                    active.remove(&id);
                    ended.insert(id);
                },
                Step::Open => views.push((set.view(), ended.clone())),
                Step::Share(pick) => if !views.is_empty() {
                    let copy = views[pick % views.len()].clone();
                    views.push(copy);
                },
                Step::Close(pick) => if !views.is_empty() {
                    views.swap_remove(pick % views.len());
                },
                Step::Purge => {
                    let oldest = set.oldest_view();
                    let seen_by_all = |id| ended.contains(&id) && views.iter().all(|(_, seen)| seen.contains(&id));
                    for id in 1..set.next_id().0 + 1 {
                        prop_assert!(!oldest.sees(TxnId(id)) || seen_by_all(id));
                        // Ended before the oldest view: exactly what purge may remove.
                        let first = views.iter().map(|(_, seen)| seen).min_by_key(|seen| seen.len()).unwrap_or(&ended);
                        prop_assert_eq!(oldest.sees(TxnId(id)), first.contains(&id));
                    }
                    let lowest = views.iter().map(|(view, _)| view.low().0).min().unwrap_or(u64::MAX);
                    let now = active.first().copied().unwrap_or(set.next_id().0);
                    prop_assert_eq!(set.horizon().0, lowest.min(now));
                    purges.push(oldest);
                }
            }
            let next = set.next_id().0;
            prop_assert_eq!(set.views(), views.len());
            let horizon = set.horizon().0;
            for id in 1..=next {
                prop_assert_eq!(set.is_active(TxnId(id)), active.contains(&id));
                for (view, seen) in &views {
                    prop_assert_eq!(view.sees(TxnId(id)), seen.contains(&id));
                    prop_assert!(id >= horizon || view.sees(TxnId(id)));
                    prop_assert!(purges.iter().all(|purge| !purge.sees(TxnId(id)) || view.sees(TxnId(id))));
                }
                prop_assert!(id >= horizon || ended.contains(&id));
            }
        }
    }
}

/// Writers end one after another while readers open views. A view sees every id that was known to have ended
/// before the view was made, and no id that is known to be still active after the view was made. Neither views
/// nor the horizon go back.
#[test]
fn views_of_many_threads_never_go_back() {
    const ENDS: u64 = 4000;
    let set = set();
    // One slot per id: 0 not ended, 1 about to end, 2 ended.
    let ends: Arc<Vec<AtomicUsize>> = Arc::new((0..2 * ENDS + 2).map(|_| AtomicUsize::new(0)).collect());
    let running = AtomicUsize::new(2);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..ENDS {
                    let id = set.begin();
                    ends[id.0 as usize].store(1, Ordering::SeqCst);
                    set.end(id);
                    ends[id.0 as usize].store(2, Ordering::SeqCst);
                }
                running.fetch_sub(1, Ordering::SeqCst);
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                let mut horizon = TxnId::NONE;
                let mut held: VecDeque<(View, u64)> = VecDeque::new();
                while running.load(Ordering::SeqCst) > 0 {
                    let top = set.next_id().0;
                    let ended_before: Vec<u64> = (top.saturating_sub(20).max(1)..top)
                        .filter(|&id| ends[id as usize].load(Ordering::SeqCst) == 2)
                        .collect();
                    let view = set.view();
                    let unended: Vec<u64> = (top..top + 4)
                        .filter(|&id| (id as usize) < ends.len() && ends[id as usize].load(Ordering::SeqCst) == 0)
                        .collect();
                    assert!(ended_before.iter().all(|&id| view.sees(TxnId(id))), "ended before the view");
                    assert!(unended.iter().all(|&id| !view.sees(TxnId(id))), "not ended after the view");
                    let next_horizon = set.horizon();
                    assert!(next_horizon >= horizon && next_horizon <= view.low());
                    horizon = next_horizon;
                    if let Some((last, _)) = held.back() {
                        assert!(last.low() <= view.low() && last.next() <= view.next());
                        assert!((last.low().0..last.next().0).all(|id| !last.sees(TxnId(id)) || view.sees(TxnId(id))));
                    }
                    let seen = (view.low().0..view.next().0).filter(|&id| view.sees(TxnId(id))).count() as u64;
                    held.push_back((view, seen));
                    if held.len() > 8 {
                        let (old, seen) = held.pop_front().expect("just counted");
                        assert!(set.horizon() <= old.low(), "a held view holds the horizon");
                        assert_eq!((old.low().0..old.next().0).filter(|&id| old.sees(TxnId(id))).count() as u64, seen);
                    }
                }
            });
        }
    });
    assert_eq!(set.oldest_view().low(), set.next_id());
    assert_eq!(set.horizon(), set.next_id());
}
