//! Judges a history of list-append transactions: which anomalies of Adya's and Elle's catalogue does it
//! contain?
//!
//! 1. Every key holds a list; every append adds an element that no other append adds. So the last list of a
//!    key *is* the order of its versions, and every list ever read identifies the version that was read (the
//!    idea of Elle, Kingsbury and Alvaro, VLDB 2021).
//! 2. Nothing is guessed: every edge of the graphs follows from lists and from time stamps of one shared counter.
//! 3. All reads of a transaction count, even if it was rolled back later: no transaction ever sees
//!    uncommitted data.
//!
//! | graph, over committed transactions | a cycle is |
//! |---|---|
//! | ww | G0, dirty write |
//! | ww, wr | G1c, circular information flow |
//! | D and D;rw, where D is ww, wr and real time | no snapshot: G-single with one rw (read skew, lost update), a long fork with more |
//! | ww, wr, rw and real time | G2 (write skew, phantoms, or against real time) |
//!
//! The third is the characterisation of snapshot isolation by Cerone and Gotsman (JACM 2018). Reads that
//! promise a snapshot of their own (a statement of read committed; the plain reads of a repeatable read whose
//! locking reads see the latest) are represented as separate read-only transactions.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    ReadCommitted,
    /// Snapshot reads; locking reads and writes see the latest.
    RepeatableLatest,
    /// Snapshot isolation.
    RepeatableFail,
    Serializable,
}

#[derive(Debug, Clone)]
pub(crate) enum What {
    Read { key: u64, list: Vec<u64>, locking: bool },
    Append { key: u64, element: u64 },
}

#[derive(Debug, Clone)]
pub(crate) struct Op {
    /// Stamp taken before the operation.
    pub(crate) at: u64,
    /// Plain reads of one statement share a snapshot.
    pub(crate) statement: u64,
    pub(crate) what: What,
}

#[derive(Debug, Clone)]
pub(crate) struct Txn {
    /// Stamp taken before it began.
    pub(crate) begin: u64,
    /// Stamp taken after its commit returned; `None`: rolled back.
    pub(crate) committed: Option<u64>,
    pub(crate) ops: Vec<Op>,
}

#[derive(Debug, Clone)]
pub(crate) struct History {
    pub(crate) level: Level,
    pub(crate) txns: Vec<Txn>,
    /// The contents of every key at the end.
    pub(crate) last: BTreeMap<u64, Vec<u64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Anomaly {
    /// An element that no transaction appended, or one that occurs twice.
    Garbage,
    /// A committed append is missing.
    LostWrite,
    /// The list read is no prefix of the order of versions.
    Fork,
    /// A transaction does not see its own appends.
    Internal,
    /// G1a: read from a transaction that was rolled back.
    AbortedRead,
    /// G1b: read a version that its writer overwrote.
    IntermediateRead,
    /// A change committed before the snapshot is missing in it.
    Stale,
    /// G0.
    DirtyWrite,
    /// G1c.
    Circular,
    /// G-single.
    ReadSkew,
    /// Two or more anti-dependencies, none adjacent to another.
    LongFork,
    /// G2.
    WriteSkew,
}

/// Every anomaly of the history at its level, with evidence. Empty: the level keeps its promise.
pub(crate) fn check(history: &History) -> Vec<(Anomaly, String)> {
    let mut wrong = Vec::new();
    let writers = writers(history, &mut wrong);
    if wrong.is_empty() {
        let reads = reads(history, &writers, &mut wrong);
        if wrong.is_empty() {
            cycles(history, &writers, &reads, &mut wrong);
        }
    }
    wrong
}

/// The writer of an element: the transaction, and whether it appended another to the same key later.
type Writers = BTreeMap<u64, (usize, bool)>;

fn writers(history: &History, wrong: &mut Vec<(Anomaly, String)>) -> Writers {
    let mut writers = Writers::new();
    for (index, txn) in history.txns.iter().enumerate() {
        let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
        for op in &txn.ops {
            if let What::Append { key, element } = op.what {
                if let Some(previous) = newest.insert(key, element) {
                    writers.insert(previous, (index, true));
                }
                if writers.insert(element, (index, false)).is_some() {
                    wrong.push((Anomaly::Garbage, format!("element {element} is appended twice by the test itself")));
                }
                let there = history.last.get(&key).is_some_and(|list| list.contains(&element));
                if txn.committed.is_some() && !there {
                    wrong.push((Anomaly::LostWrite, format!("T{index} appended {element} to {key}, and it is gone")));
                }
            }
        }
    }
    for (key, list) in &history.last {
        let mut seen = BTreeSet::new();
        for element in list {
            if !seen.insert(element) || !writers.contains_key(element) {
                wrong.push((Anomaly::Garbage, format!("{element} in the last list of {key}: {list:?}")));
            } else if history.txns[writers[element].0].committed.is_none() {
                let writer = writers[element].0;
                wrong.push((Anomaly::AbortedRead, format!("T{writer} was rolled back, and {element} is in {key}")));
            }
        }
    }
    writers
}

/// A read that matches the order of versions.
struct Seen {
    txn: usize,
    at: u64,
    statement: u64,
    key: u64,
    locking: bool,
    /// How many elements it saw, including its own.
    len: usize,
    /// Whether some were its own.
    own: bool,
}

fn reads(history: &History, writers: &Writers, wrong: &mut Vec<(Anomaly, String)>) -> Vec<Seen> {
    let mut seen = Vec::new();
    let none = Vec::new();
    for (index, txn) in history.txns.iter().enumerate() {
        let mut appended: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for op in &txn.ops {
            let (key, list, locking) = match &op.what {
                What::Append { key, element } => {
                    appended.entry(*key).or_default().push(*element);
                    continue;
                }
                What::Read { key, list, locking } => (*key, list, *locking),
            };
            let say = |what: &str| format!("T{index} read {list:?} from {key}: {what}");
            let own = appended.get(&key).unwrap_or(&none);
            let foreign = list.len() - own.len().min(list.len());
            if list[foreign..] != own[..] || list[..foreign].iter().any(|element| own.contains(element)) {
                wrong.push((Anomaly::Internal, say(&format!("its own appends are {own:?}"))));
                continue;
            }
            let mut good = true;
            for element in &list[..foreign] {
                match writers.get(element) {
                    None => wrong.push((Anomaly::Garbage, say(&format!("no transaction appended {element}")))),
                    Some((writer, _)) if history.txns[*writer].committed.is_none() => {
                        wrong.push((Anomaly::AbortedRead, say(&format!("T{writer} was rolled back"))));
                    }
                    Some(_) => continue,
                }
                good = false;
            }
            if !good {
                continue;
            }
            let last = history.last.get(&key).unwrap_or(&none);
            let expected = if txn.committed.is_some() { &list[..] } else { &list[..foreign] };
            if !last.starts_with(expected) {
                wrong.push((Anomaly::Fork, say(&format!("the last list is {last:?}"))));
                continue;
            }
            if let Some((writer, true)) = foreign.checked_sub(1).and_then(|at| writers.get(&list[at])) {
                wrong.push((Anomaly::IntermediateRead, say(&format!("T{writer} appended more"))));
                continue;
            }
            let of_begin = match history.level {
                Level::ReadCommitted => false,
                Level::RepeatableLatest => !locking,
                Level::RepeatableFail | Level::Serializable => true,
            };
            let since = if of_begin { txn.begin } else { op.at };
            let missing = last[foreign..].iter().find(|element| {
                let (writer, _) = writers[*element];
                writer != index && history.txns[writer].committed.is_some_and(|end| end < since)
            });
            if let Some(element) = missing {
                wrong.push((Anomaly::Stale, say(&format!("{element} was committed before"))));
                continue;
            }
            if txn.committed.is_some() || own.is_empty() {
                let (at, statement, len, own) = (op.at, op.statement, list.len(), !own.is_empty());
                seen.push(Seen { txn: index, at, statement, key, locking, len, own });
            }
        }
    }
    seen
}

/// Edges by their source.
#[derive(Default)]
struct Graph(BTreeMap<Node, BTreeSet<Node>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Node {
    /// A transaction.
    Txn(usize),
    /// Reads with a snapshot of their own.
    Reads(usize, u64),
    /// A point in time: transactions committed before it come before those that begin after it.
    Moment(u64),
}

impl Graph {
    fn add(&mut self, from: Node, to: Node) {
        if from != to {
            self.0.entry(from).or_default().insert(to);
        }
    }

    fn next(&self, node: Node) -> impl Iterator<Item = Node> {
        self.0.get(&node).into_iter().flatten().copied()
    }

    fn has(&self, from: Node, to: Node) -> bool {
        self.0.get(&from).is_some_and(|next| next.contains(&to))
    }

    /// Some cycle, in order.
    fn cycle(&self) -> Option<Vec<Node>> {
        let mut done: BTreeSet<Node> = BTreeSet::new();
        for start in self.0.keys() {
            if done.contains(start) {
                continue;
            }
            let mut path = vec![(*start, self.next(*start).collect::<Vec<_>>())];
            let mut on_path = BTreeSet::from([*start]);
            while let Some((node, left)) = path.last_mut() {
                let node = *node;
                match left.pop() {
                    Some(next) if on_path.contains(&next) => {
                        let begin = path.iter().position(|(known, _)| *known == next).expect("it is on the path");
                        return Some(path[begin..].iter().map(|(known, _)| *known).collect());
                    }
                    Some(next) if done.contains(&next) => {}
                    Some(next) => {
                        path.push((next, self.next(next).collect()));
                        on_path.insert(next);
                    }
                    None => {
                        path.pop();
                        on_path.remove(&node);
                        done.insert(node);
                    }
                }
            }
        }
        None
    }
}

fn cycles(history: &History, writers: &Writers, reads: &[Seen], wrong: &mut Vec<(Anomaly, String)>) {
    let (mut ww, mut flow) = (Graph::default(), Graph::default());
    for list in history.last.values() {
        for pair in list.windows(2) {
            let (from, to) = (Node::Txn(writers[&pair[0]].0), Node::Txn(writers[&pair[1]].0));
            ww.add(from, to);
            flow.add(from, to);
        }
    }
    if let Some(cycle) = ww.cycle() {
        wrong.push((Anomaly::DirtyWrite, format!("each overwrote the one before: {cycle:?}")));
        return;
    }
    // The basis of D and rw: dependencies into the node of a read, anti-dependencies out of it.
    let (mut depends, mut anti) = (Graph(ww.0.clone()), Graph::default());
    let one_snapshot = matches!(history.level, Level::RepeatableFail | Level::Serializable);
    let all = history.txns.iter().enumerate().filter(|_| one_snapshot);
    let mut starts: BTreeSet<(u64, Node)> = all.map(|(index, txn)| (txn.begin, Node::Txn(index))).collect();
    for read in reads {
        let list = history.last.get(&read.key).map_or(&[][..], |list| &list[..]);
        let writer = |at: usize| list.get(at).map(|element| Node::Txn(writers[element].0));
        let foreign = list[..read.len].iter().rposition(|element| writers[element].0 != read.txn).and_then(writer);
        let own_node = match history.level {
            Level::ReadCommitted if !read.locking => Node::Reads(read.txn, read.statement),
            Level::RepeatableLatest if !read.locking => Node::Reads(read.txn, 0),
            _ => Node::Txn(read.txn),
        };
        if let Some(from) = foreign.filter(|_| history.txns[read.txn].committed.is_some()) {
            flow.add(from, Node::Txn(read.txn));
        }
        if matches!(own_node, Node::Reads(..)) && read.own {
            continue;
        }
        let begin = if history.level == Level::ReadCommitted { read.at } else { history.txns[read.txn].begin };
        if matches!(own_node, Node::Reads(..)) {
            starts.insert((begin, own_node));
        }
        if let Some(from) = foreign {
            depends.add(from, own_node);
        }
        // A rolled back reader saw a snapshot too; in the graph it is a transaction that wrote nothing.
        if let Some(to) = writer(read.len).filter(|to| *to != Node::Txn(read.txn)) {
            anti.add(own_node, to);
        }
    }
    if let Some(cycle) = flow.cycle() {
        wrong.push((Anomaly::Circular, format!("each read from or overwrote the one before: {cycle:?}")));
        return;
    }
    real_time(history, &starts, &mut depends);

    let mut snapshot = Graph(depends.0.clone());
    for (from, all) in &depends.0 {
        for middle in all {
            for to in anti.next(*middle) {
                snapshot.add(*from, to);
                if *from == to {
                    wrong.push((Anomaly::ReadSkew, format!("{middle:?} saw a part of {from:?} and missed another")));
                    return;
                }
            }
        }
    }
    if let Some(cycle) = snapshot.cycle() {
        let missed = |at: usize| !depends.has(cycle[at], cycle[(at + 1) % cycle.len()]);
        let count = (0..cycle.len()).filter(|at| missed(*at)).count();
        let anomaly = if count <= 1 { Anomaly::ReadSkew } else { Anomaly::LongFork };
        wrong.push((anomaly, format!("no order of snapshots explains {cycle:?}, with {count} anti-dependencies")));
        return;
    }
    if history.level == Level::Serializable {
        let mut all = depends;
        for (from, next) in anti.0 {
            for to in next {
                all.add(from, to);
            }
        }
        if let Some(cycle) = all.cycle() {
            wrong.push((Anomaly::WriteSkew, format!("no serial order explains {cycle:?}")));
        }
    }
}

/// Transactions committed before a snapshot was taken come before it. Moments in a chain replace the
/// quadratic number of pairs.
fn real_time(history: &History, starts: &BTreeSet<(u64, Node)>, into: &mut Graph) {
    let mut moments: BTreeSet<u64> = BTreeSet::new();
    for (index, txn) in history.txns.iter().enumerate() {
        if let Some(end) = txn.committed {
            into.add(Node::Txn(index), Node::Moment(end));
            moments.insert(end);
        }
    }
    for (earlier, later) in moments.iter().zip(moments.iter().skip(1)) {
        into.add(Node::Moment(*earlier), Node::Moment(*later));
    }
    for (begin, node) in starts {
        if let Some(moment) = moments.range(..begin).next_back() {
            into.add(Node::Moment(*moment), *node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appends and reads of one transaction, as text: `a x 1` appends, `r x 1 2` reads, `l x 1` reads with a lock. `!`
    /// at the end: rolled back. All transactions overlap unless `sequential`.
    fn history(level: Level, sequential: bool, txns: &[&str], last: &[&[u64]]) -> History {
        let key = |name: &str| u64::from(name.as_bytes()[0] - b'x');
        let txns = txns.iter().enumerate().map(|(index, text)| {
            let begin = if sequential { 10 * index as u64 + 1 } else { 0 };
            let end = if sequential { 10 * index as u64 + 9 } else { 1000 };
            let ops = text.trim_end_matches('!').split(';').filter(|op| !op.trim().is_empty()).enumerate();
            let ops = ops.map(|(statement, op)| {
                let words: Vec<&str> = op.split_whitespace().collect();
                let numbers: Vec<u64> = words[2..].iter().map(|word| word.parse().unwrap()).collect();
                let what = match words[0] {
                    "a" => What::Append { key: key(words[1]), element: numbers[0] },
                    kind => What::Read { key: key(words[1]), list: numbers, locking: kind == "l" },
                };
                Op { at: begin, statement: statement as u64, what }
            });
            Txn { begin, committed: (!text.ends_with('!')).then_some(end), ops: ops.collect() }
        });
        let last = last.iter().enumerate().map(|(key, list)| (key as u64, list.to_vec())).collect();
        History { level, txns: txns.collect(), last }
    }

    const LEVELS: [Level; 4] =
        [Level::ReadCommitted, Level::RepeatableLatest, Level::RepeatableFail, Level::Serializable];

    fn found(level: Level, sequential: bool, txns: &[&str], last: &[&[u64]]) -> Option<Anomaly> {
        check(&history(level, sequential, txns, last)).first().map(|(anomaly, _)| *anomaly)
    }

    /// Found at every level.
    fn always(anomaly: Anomaly, txns: &[&str], last: &[&[u64]]) {
        for level in LEVELS {
            assert_eq!(found(level, false, txns, last), Some(anomaly), "{level:?}");
        }
    }

    /// Found at the levels from `level` on, and not below.
    fn from(level: Level, anomaly: Anomaly, txns: &[&str], last: &[&[u64]]) {
        let least = LEVELS.iter().position(|known| *known == level).unwrap();
        for (index, level) in LEVELS.into_iter().enumerate() {
            assert_eq!(found(level, false, txns, last), (index >= least).then_some(anomaly), "{level:?}");
        }
    }

    #[test]
    fn good_histories_pass() {
        for level in LEVELS {
            assert_eq!(
                found(level, true, &["r x; a x 1", "r x 1; a x 2; r x 1 2", "r x 1 2; a y 3!"], &[&[1, 2]]),
                None
            );
            assert_eq!(found(level, false, &["a x 1; a y 2", "r x; r y", "r x 1; r y 2"], &[&[1], &[2]]), None);
            assert_eq!(found(level, false, &[], &[]), None);
        }
    }

    #[test]
    fn broken_lists_are_found() {
        always(Anomaly::Garbage, &["r x 7"], &[&[]]);
        always(Anomaly::Garbage, &["a x 1"], &[&[1, 9]]);
        always(Anomaly::Garbage, &["a x 1"], &[&[1, 1]]);
        always(Anomaly::LostWrite, &["a x 1", "a x 2"], &[&[2]]);
        always(Anomaly::Fork, &["a x 1", "a x 2", "r x 2"], &[&[1, 2]]);
        always(Anomaly::Internal, &["a x 1; r x"], &[&[1]]);
        always(Anomaly::Internal, &["a x 1; r x 1; a x 2; r x 1"], &[&[1, 2]]);
    }

    #[test]
    fn g1a_and_g1b_are_found() {
        always(Anomaly::AbortedRead, &["a x 1!", "r x 1"], &[&[]]);
        always(Anomaly::AbortedRead, &["a x 1!", "r x 1!"], &[&[]]);
        always(Anomaly::AbortedRead, &["a x 1!"], &[&[1]]);
        always(Anomaly::IntermediateRead, &["a x 1; a x 2", "r x 1"], &[&[1, 2]]);
    }

    #[test]
    fn g0_and_g1c_are_found() {
        always(Anomaly::DirtyWrite, &["a x 1; a y 2", "a x 3; a y 4"], &[&[1, 3], &[4, 2]]);
        always(Anomaly::Circular, &["a x 1; r y 2", "a y 2; r x 1"], &[&[1], &[2]]);
    }

    #[test]
    fn read_skew_is_found_where_a_snapshot_is_promised() {
        from(Level::RepeatableLatest, Anomaly::ReadSkew, &["r x; r y 2", "a x 1; a y 2"], &[&[1], &[2]]);
        from(Level::RepeatableLatest, Anomaly::ReadSkew, &["r x; r x 1", "a x 1"], &[&[1]]);
        // One statement is one snapshot at every level.
        for level in LEVELS {
            let mut one = history(level, false, &["r x; r y 2", "a x 1; a y 2"], &[&[1], &[2]]);
            one.txns[0].ops[1].statement = 0;
            assert_eq!(check(&one)[0].0, Anomaly::ReadSkew, "{level:?}");
        }
        // A reader that was rolled back still saw it.
        from(Level::RepeatableLatest, Anomaly::ReadSkew, &["r x; r y 2!", "a x 1; a y 2"], &[&[1], &[2]]);
    }

    #[test]
    fn a_locking_read_may_see_what_the_snapshot_does_not() {
        let txns = ["r x; l x 1; a x 2; r x 1 2", "a x 1"];
        assert_eq!(found(Level::RepeatableLatest, false, &txns, &[&[1, 2]]), None);
        assert_eq!(found(Level::RepeatableFail, false, &txns, &[&[1, 2]]), Some(Anomaly::ReadSkew));
    }

    #[test]
    fn lost_updates_are_found() {
        from(Level::RepeatableFail, Anomaly::ReadSkew, &["r x; a x 1", "r x; a x 2"], &[&[1, 2]]);
        always(Anomaly::ReadSkew, &["l x; a x 1", "l x; a x 2"], &[&[1, 2]]);
    }

    #[test]
    fn long_forks_are_found() {
        let txns = ["a x 1", "a y 2", "r x 1; r y", "r x; r y 2"];
        from(Level::RepeatableLatest, Anomaly::LongFork, &txns, &[&[1], &[2]]);
    }

    #[test]
    fn write_skew_is_found_only_where_it_is_forbidden() {
        from(Level::Serializable, Anomaly::WriteSkew, &["r x; r y; a x 1", "r x; r y; a y 2"], &[&[1], &[2]]);
        // The read-only transaction anomaly of Fekete, O'Neil and O'Neil (2004).
        let txns = ["r x; r y; a x 1", "r y; a y 2", "r x; r y 2"];
        from(Level::Serializable, Anomaly::WriteSkew, &txns, &[&[1], &[2]]);
    }

    #[test]
    fn what_came_late_is_found() {
        for level in LEVELS {
            assert_eq!(found(level, true, &["a x 1", "r x"], &[&[1]]), Some(Anomaly::Stale), "{level:?}");
        }
        // Against real time only through another transaction: T2 ended before T1 began, so a transaction that
        // has seen T1 must have seen T2.
        let mut late = history(Level::RepeatableFail, false, &["r y; r x 1", "a x 1", "a y 2"], &[&[1], &[2]]);
        assert_eq!(check(&late), []);
        late.txns[2].committed = Some(10);
        late.txns[1].begin = 20;
        assert_eq!(check(&late)[0].0, Anomaly::ReadSkew);
    }
}
