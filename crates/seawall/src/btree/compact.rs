//! Online compaction: brings leaves into key order in the file and fills them, a few at a time.
//!
//! ```text
//!   looking ──look: the window is in order and full──> looking, after it
//!      │ └──look: no leaf is left──> done
//!      └──look: otherwise──> moving ──step: some leaves──> moving ──the window's end──> looking
//! ```
//!
//! 1. A step is one mini-transaction: it writes some neighbouring leaves under one parent into fresh pages,
//!    points the parent to them, and frees the old pages. Before and after it the tree is whole and holds the
//!    same entries. So a crash between any two steps, an error, or dropping the [`Compaction`] leaves nothing
//!    to clean up except reserved pages, which are returned.
//! 2. A compaction has no redo record kind of its own: new leaves are built, the leaf written last takes more
//!    rows as in a merge, and the parent's slots are replaced, removed and inserted.
//! 3. A step latches as splits and merges do: the parent exclusively, then its children from left to right,
//!    then space pages. Every call that can stop ([`Stop`]) precedes the first change. At most
//!    [`GROUP_BYTES`] of leaves are latched at once, so the log per step is bounded.
//! 4. No reference to a leaf by number outlives its move: cursors continue by key, a hint becomes void when pages are
//!    freed by number (`hint.rs`, 1), and a prefetch by number only wastes a read (`read_ahead.rs`, 3). No thread
//!    reaches a freed page: its parent was latched exclusively when the page was removed from it.
//! 5. The root never moves, nor do branches and long values.
//! 6. Leaves are written one after the other into runs of pages ([`Space::reserve_run`]). Leaves that are in
//!    order and full stay: a second compaction of a tree moves little.
//! 7. The tree must not be dropped during a step: dropping it would free pages by their owner while the step takes
//!    some. So the caller holds a view that does not see a drop. Nor may a rollback of the tree's creation still be
//!    possible.

use super::edit::Packed;
use super::fragmentation::{apart, follows, spread};
use super::node::{Node, SLOT_BYTES, capacity, key_bytes_max};
use super::redo::{Append, Build, Insert, Remove, Replace};
use super::repack::{Piece, Rows};
use super::split::CHILD_BYTES;
use super::{Damaged, Tree};
use crate::buffer::{LatchedPage, Mtr, MtrSize, Pool, Prefetcher};
use crate::error::{Result, Stop};
use crate::format::{PageId, TxnId};
use crate::log::MTR_BYTES_MAX;
use crate::space::{Reserved, Space};
use std::ops::Bound;

/// Leaves that one step reads and writes, bytes.
const GROUP_BYTES: usize = 160 << 10;
/// The most leaves of one step.
const GROUP_MAX: usize = 16;
/// Pages that a step needs in memory besides leaves and their space maps.
const OTHERS_LATCHED: usize = 8;
/// A tree with at most this many leaves shares its extents with others.
const FEW: usize = 16;
/// The fewest leaves that are judged together. A window consists of all leaves of some branches.
const WINDOW: usize = 64;
/// A window counts as ordered if the leaves that do not follow the leaf before them are at most one in
/// [`APART_ONE_IN`], or one per [`APART_BYTES`] of leaves if that is more. [`APART_BYTES`] is half of the longest run.
const APART_ONE_IN: usize = 32;
const APART_BYTES: usize = 512 << 10;
/// If fewer leaves than this are in order at the beginning of a window, they are moved with the others.
const STAYS_MIN: usize = 8;
/// Leaves of a window whose fill is measured.
const SAMPLES: usize = 8;

/// Rule 3: a mini-transaction has room for a group, the leaf before it, and a key for each leaf in the
/// parent. A removed slot is logged by its number.
const _: () = {
    let mut page_bytes = crate::format::page::PAGE_BYTES_MIN;
    while page_bytes <= crate::format::page::PAGE_BYTES_MAX {
        let edits = group_max(page_bytes) * (key_bytes_max(page_bytes) + 64);
        assert!((group_max(page_bytes) + 1) * (page_bytes + 64) + edits + (4 << 10) <= MTR_BYTES_MAX);
        page_bytes *= 2;
    }
};

const fn group_max(page_bytes: usize) -> usize {
    if GROUP_BYTES / page_bytes < GROUP_MAX { GROUP_BYTES / page_bytes } else { GROUP_MAX }
}

/// Counts of a compaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    /// Leaves that were examined, whether they stayed or were moved.
    pub looked: u64,
    /// Leaves that were written.
    pub written: u64,
    /// Pages that were freed: those of moved leaves, and of leaves whose rows went to others.
    pub freed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Looking,
    /// Moving about `left` leaves, up to the fence `end`; `None` is the tree's end.
    Moving {
        end: Option<Vec<u8>>,
        left: usize,
    },
    Done,
}

/// A compaction in progress.
#[derive(Debug)]
pub struct Compaction<'s> {
    tree: Tree,
    space: &'s Space,
    /// Bytes up to which a leaf is filled.
    limit: usize,
    state: State,
    /// The lower fence of the next leaf.
    at: Vec<u8>,
    /// The lower fence of the leaf that was last at the first step. It does not follow those who append.
    until: Option<Vec<u8>>,
    /// The current page of the leaf before that one.
    last: PageId,
    /// Whether that leaf may take more rows, and the next new leaves follow it in the file.
    tail: bool,
    /// The pages for the next leaves.
    run: Option<Reserved<'s>>,
    run_end: PageId,
    ahead: Prefetcher,
    moved: Moved,
}

/// The input of a step.
struct Ask<'a> {
    at: &'a [u8],
    end: Option<&'a [u8]>,
    tail: PageId,
    leaves_max: usize,
    limit: usize,
    horizon: TxnId,
}

/// The result of a step.
struct Step {
    freed: Vec<PageId>,
    written: usize,
    /// The last leaf, and whether it may take more rows.
    last: PageId,
    tail: bool,
    /// Where to continue.
    next: Option<Vec<u8>>,
}

/// New leaves, and rows for the leaf before them.
struct Layout {
    tail: Option<(Piece, Packed)>,
    leaves: Vec<(Piece, Packed)>,
    /// Each new leaf equals an old one: the parent's keys stay.
    same: bool,
}

impl<'s> Compaction<'s> {
    /// Prepares a compaction of the whole tree. Leaves are filled up to `fill_percent`, 50 to 100.
    #[must_use]
    pub fn new(tree: Tree, space: &'s Space, fill_percent: u32) -> Self {
        let limit = capacity(space.pool().page_bytes()) * fill_percent.clamp(50, 100) as usize / 100;
        Self {
            tree,
            space,
            limit,
            state: State::Looking,
            at: Vec::new(),
            until: None,
            last: PageId::NONE,
            tail: false,
            run: None,
            run_end: PageId::NONE,
            ahead: Prefetcher::default(),
            moved: Moved::default(),
        }
    }

    /// The counts so far.
    #[must_use]
    pub fn moved(&self) -> Moved {
        self.moved
    }

    /// Runs one mini-transaction, or examines some leaves. Returns `false` when the tree's end is reached.
    /// Leaves out headers that no view needs: those of entries that are not deleted and whose writer is below
    /// `horizon`. No latch may be held; rule 7 says when the tree may be dropped.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`], [`crate::Error::TreeDropped`], those of reading,
    /// [`crate::Error::Poisoned`]. The tree is then whole, and the step may be called again.
    pub fn step(&mut self, horizon: TxnId) -> Result<bool> {
        match self.state.clone() {
            State::Looking => self.look(horizon)?,
            State::Moving { end, left } => self.move_some(horizon, end, left)?,
            State::Done => {}
        }
        Ok(self.state != State::Done)
    }

    /// Decides whether to move the leaves of the next branches.
    fn look(&mut self, horizon: TxnId) -> Result<()> {
        let pool = self.space.pool();
        if self.until.is_none() {
            self.until = Some(self.tree.last_fence(pool)?);
        }
        let (mut leaves, mut low) = (Vec::new(), self.at.clone());
        let end = loop {
            let mut level1 = self.tree.level1_children(pool, &low, Bound::Unbounded, false)?;
            leaves.append(&mut level1.children);
            match level1.beyond {
                Some(beyond) if leaves.len() < WINDOW => low = beyond,
                beyond => break beyond,
            }
        };
        let Some(&last) = leaves.last() else {
            // The root is the only leaf.
            self.moved.looked += 1;
            self.finish();
            return Ok(());
        };
        if self.is_worth_moving(&leaves, end.is_some(), horizon)? {
            let stays = self.stays(&leaves, horizon)?;
            self.moved.looked += stays as u64;
            let left = leaves.len() - stays;
            self.ahead = Prefetcher::of(leaves.drain(..).skip(stays));
            self.state = State::Moving { end, left };
            return Ok(());
        }
        self.moved.looked += leaves.len() as u64;
        (self.last, self.tail) = (last, false);
        self.go_on(end);
        Ok(())
    }

    fn is_worth_moving(&self, leaves: &[PageId], goes_on: bool, horizon: TxnId) -> Result<bool> {
        let entered = self.last != PageId::NONE;
        let found = apart(leaves) + usize::from(entered && !follows(self.last, leaves[0]));
        // At both ends of a moved range, neighbours may be apart.
        let made = usize::from(entered && !self.tail) + usize::from(goes_on);
        let tolerated = leaves.len() / APART_ONE_IN.min(APART_BYTES / self.space.pool().page_bytes());
        if found > made + tolerated {
            return Ok(true);
        }
        Ok(leaves.len() > 1 && !self.are_full(leaves, horizon)?)
    }

    fn are_full(&self, leaves: &[PageId], horizon: TxnId) -> Result<bool> {
        let fill = self.tree.fill_of(self.space.pool(), &spread(leaves, SAMPLES), horizon)?;
        // A full leaf has room for less than one entry more.
        let room = self.limit.saturating_sub(fill.used_bytes.checked_div(fill.entries).unwrap_or(0));
        Ok(fill.used_bytes >= fill.leaves * room / 8 * 7)
    }

    /// Returns how many of the first leaves stay because they are in order and full: an interrupted
    /// compaction has moved them. This one continues after them.
    fn stays(&mut self, leaves: &[PageId], horizon: TxnId) -> Result<usize> {
        let in_order = 1 + leaves.windows(2).take_while(|pair| follows(pair[0], pair[1])).count();
        if in_order < STAYS_MIN || in_order == leaves.len() || !self.are_full(&leaves[..in_order], horizon)? {
            return Ok(0);
        }
        let (tree, pool, last) = (self.tree, self.space.pool(), leaves[in_order - 1]);
        let fence = pool.retry(|| {
            let page = pool.shared(last)?;
            // The page may be another tree's by now: then nothing is known.
            Ok(tree.open_child(&page, last, 0).ok().and_then(|node| node.upper().map(<[u8]>::to_vec)))
        })?;
        let Some(fence) = fence.filter(|fence| *fence > self.at) else { return Ok(0) };
        (self.at, self.last, self.tail, self.run) = (fence, last, true, None);
        self.run_end = last;
        Ok(in_order)
    }

    /// Continues after the examined leaves.
    fn go_on(&mut self, next: Option<Vec<u8>>) {
        match next {
            Some(next) if self.is_meant(&next) => (self.at, self.state) = (next, State::Looking),
            _ => self.finish(),
        }
    }

    /// Returns whether the leaf with this lower fence was there, or is part of one that was there, at the first step.
    fn is_meant(&self, fence: &[u8]) -> bool {
        self.until.as_ref().is_none_or(|until| fence <= &until[..])
    }

    fn finish(&mut self) {
        self.state = State::Done;
        self.run = None;
        self.ahead.clear();
    }

    /// Moves some of the window's leaves.
    fn move_some(&mut self, horizon: TxnId, end: Option<Vec<u8>>, left: usize) -> Result<()> {
        let (space, pool) = (self.space, self.space.pool());
        let mut run = match self.run.take().filter(|run| !run.is_empty()) {
            Some(run) => run,
            // A whole extent, whose unused pages are returned; or a few pages for a tree with few leaves.
            None => {
                let pages = if end.is_none() && left <= FEW { left.max(FEW / 4) } else { usize::MAX };
                space.reserve_run(self.tree.id, self.run_end, pages)?
            }
        };
        let frames = pool.frames() as usize;
        // As many leaves as fit in memory at once, each with a space map, beside the path and the other
        // latched pages.
        let gathered = (frames / 4).saturating_sub(OTHERS_LATCHED) / 2;
        let leaves_max = group_max(pool.page_bytes()).min(gathered).clamp(1, run.len());
        let ask = Ask {
            at: &self.at,
            end: end.as_deref(),
            tail: if self.tail { self.last } else { PageId::NONE },
            leaves_max,
            limit: self.limit,
            horizon,
        };
        self.ahead.next_is_due(pool, usize::MAX);
        let stepped = pool.retry(|| self.tree.try_move(space, &mut run, &ask))?;
        self.run = Some(run);
        let Some(step) = stepped else {
            // The tree has shrunk to one leaf.
            self.finish();
            return Ok(());
        };
        for &leaf in &step.freed {
            self.ahead.came_to(leaf);
        }
        self.moved.looked += step.freed.len() as u64;
        self.moved.written += step.written as u64;
        self.moved.freed += step.freed.len() as u64;
        (self.last, self.tail) = (step.last, step.tail);
        if step.written > 0 {
            self.run_end = step.last;
        }
        let passed = std::mem::take(&mut self.at);
        match step.next {
            Some(next) if end.as_ref().is_none_or(|end| next < *end) && self.is_meant(&next) => {
                self.at = next;
                self.state = State::Moving { end, left: left.saturating_sub(step.freed.len()) };
            }
            next => {
                self.go_on(next);
                // Some branches may have lost children.
                self.tree.tidy_branches(space, &passed)?;
            }
        }
        Ok(())
    }
}

/// Returns whether `leaf` is an empty first or last leaf, whose fence lets its neighbour's keys share a
/// prefix (split.rs, 4).
fn is_ahead(leaf: &Node<'_>) -> bool {
    leaf.count() == 0 && (leaf.lower().is_empty() || !leaf.has_upper())
}

impl Tree {
    /// Moves leaves from `ask.at` on. Returns `None` if the root is the only leaf.
    fn try_move(&self, space: &Space, run: &mut Reserved<'_>, ask: &Ask<'_>) -> Result<Option<Step>, Stop> {
        let pool: &Pool = space.pool();
        let mut mtr = Mtr::begin(pool, MtrSize::Large)?;
        let Some(parent) = self.latch_on_path(pool, &mut mtr, ask.at, 1)? else { return Ok(None) };
        let above = Node::open(mtr.page(parent))?;
        let (first, mut olds) = (above.child_slot(ask.at)?, Vec::new());
        for slot in first..above.count().min(first + ask.leaves_max) {
            if slot > first && ask.end.is_some_and(|end| above.key(slot).is_ok_and(|key| &key[..] >= end)) {
                break;
            }
            olds.push(above.child(slot)?);
        }
        let before = match first.checked_sub(1) {
            Some(slot) if above.child(slot)? == ask.tail => Some(ask.tail),
            _ => None,
        };
        let before = before.map(|leaf| mtr.latch(leaf).map(|held| (leaf, held))).transpose()?;
        let mut held = Vec::with_capacity(olds.len());
        for &leaf in &olds {
            held.push(mtr.latch(leaf)?);
        }
        let taken = self.whole_group(&mtr, &olds, &held)?;
        olds.truncate(taken);
        held.truncate(taken);
        let layout = self.lay_out(&mtr, parent, first, before, &olds, &held, ask)?;
        let (lasts, count) = (self.open_child(mtr.page(held[taken - 1]), olds[taken - 1], 0)?, layout.leaves.len());
        let (next, ahead) = (lasts.upper_above(ask.at)?.map(<[u8]>::to_vec), is_ahead(&lasts));
        let above_prefix = {
            let above = Node::open(mtr.page(parent))?;
            above.check_heap()?;
            above.prefix_len()
        };

        space.ready_to_free(&mut mtr, self.id, &olds)?;
        let news = if count > 0 { run.take_many(&mut mtr, count)? } else { Vec::new() };
        if let (Some((piece, packed)), Some((_, held))) = (&layout.tail, before) {
            mtr.run(held, &Append { upper: piece.upper.as_deref(), count: packed.count, entries: &packed.bytes });
        }
        for ((piece, packed), &(id, held)) in layout.leaves.iter().zip(&news) {
            let (lower, upper) = (&piece.lower[..], piece.upper.as_deref());
            let (count, entries) = (packed.count, &packed.bytes[..]);
            mtr.run(held, &Build { id, tree: self.id, level: 0, lower, upper, count, entries });
        }
        if layout.same {
            for (slot, (id, _)) in (first..).zip(&news) {
                mtr.run(parent, &Replace::new(slot, &id.0.to_le_bytes()));
            }
        } else {
            // The first new leaf begins where the first old one began, unless the leaf before has taken that
            // range.
            let kept = usize::from(layout.tail.is_none());
            for slot in (first + kept..first + taken).rev() {
                mtr.run(parent, &Remove::new(slot));
            }
            for (at, ((piece, _), (id, _))) in layout.leaves.iter().zip(&news).enumerate() {
                let (slot, child) = (first + at, id.0.to_le_bytes());
                if at < kept {
                    mtr.run(parent, &Replace::new(slot, &child));
                } else {
                    mtr.run(parent, &Insert::new(slot, above_prefix, &piece.lower, &child));
                }
            }
        }
        space.free_many(&mut mtr, self.id, &olds)?;
        mtr.commit();
        let last = news.last().map(|&(id, _)| id).or(before.map(|(leaf, _)| leaf)).unwrap_or(PageId::NONE);
        Ok(Some(Step { freed: olds, written: count, last, tail: !ahead, next }))
    }

    /// Checks these latched leaves. Returns how many of them can be moved together, at least one.
    fn whole_group(&self, mtr: &Mtr<'_>, ids: &[PageId], held: &[LatchedPage]) -> Result<usize, Stop> {
        let mut fence: Option<&[u8]> = None;
        for (at, (&id, &leaf)) in ids.iter().zip(held).enumerate() {
            let node = self.open_child(mtr.page(leaf), id, 0)?;
            if at > 0 && Some(node.lower()) != fence {
                return Err(node.damaged("its lower fence is not its left sibling's upper").into());
            }
            node.validate()?;
            if is_ahead(&node) {
                return Ok(at.max(1));
            }
            fence = node.upper();
        }
        Ok(held.len())
    }

    /// Lays out new leaves: fewer than before, or as many if the parent has more children after them,
    /// provided the parent has room for their fences. Otherwise each leaf keeps its rows and fences.
    #[expect(clippy::too_many_arguments, reason = "what is latched, and what is asked")]
    fn lay_out(
        &self,
        mtr: &Mtr<'_>,
        parent: LatchedPage,
        first: usize,
        before: Option<(PageId, LatchedPage)>,
        ids: &[PageId],
        held: &[LatchedPage],
        ask: &Ask<'_>,
    ) -> Result<Layout, Stop> {
        let nodes: Vec<Node<'_>> = ids
            .iter()
            .zip(held)
            .map(|(&id, &leaf)| self.open_child(mtr.page(leaf), id, 0))
            .collect::<Result<_, _>>()?;
        let (from, to) = (nodes[0].lower(), nodes[nodes.len() - 1].upper());
        let whole = !is_ahead(&nodes[0]);
        let most = nodes.len() - usize::from(first + nodes.len() >= Node::open(mtr.page(parent))?.count());
        if let (Some((id, leaf)), true) = (before, whole) {
            let node = self.open_child(mtr.page(leaf), id, 0)?;
            if node.upper() != Some(from) {
                return Err(nodes[0].damaged("its lower fence is not its left sibling's upper").into());
            }
            node.validate()?;
            // The rows of this leaf stay as they are.
            let mut rows = Rows::default();
            let own = rows.add(&node, TxnId::NONE)?.len();
            add_all(&mut rows, &nodes, ask.horizon)?;
            let least = if rows.len() > own { own + 1 } else { own };
            if let Some(piece) = rows.piece(0, least, node.lower(), to, ask.limit) {
                let rest = (piece.rows.end < rows.len()).then(|| piece.upper.clone()).flatten();
                let leaves = rest.map_or_else(Vec::new, |fence| rows.pieces(piece.rows.end, &fence, to, ask.limit));
                if leaves.len() <= most && fits(mtr, parent, first, nodes.len(), &leaves)? {
                    let packed = rows.pack(&piece, own..piece.rows.end);
                    let leaves = packed_each(&rows, leaves);
                    return Ok(Layout { tail: Some((piece, packed)), leaves, same: false });
                }
            }
        }
        let mut rows = Rows::default();
        let owns = add_all(&mut rows, &nodes, ask.horizon)?;
        if whole {
            let leaves = rows.pieces(0, from, to, ask.limit);
            if leaves.len() <= most && fits(mtr, parent, first + 1, nodes.len() - 1, &leaves[1..])? {
                return Ok(Layout { tail: None, leaves: packed_each(&rows, leaves), same: false });
            }
        }
        let same = nodes.iter().zip(owns).map(|(node, rows)| Piece {
            rows,
            lower: node.lower().to_vec(),
            upper: node.upper().map(<[u8]>::to_vec),
        });
        let same = same.collect();
        Ok(Layout { tail: None, leaves: packed_each(&rows, same), same: true })
    }
}

fn add_all<'p>(
    rows: &mut Rows<'p>,
    nodes: &[Node<'p>],
    horizon: TxnId,
) -> Result<Vec<std::ops::Range<usize>>, Damaged> {
    nodes.iter().map(|node| rows.add(node, horizon)).collect()
}

fn packed_each(rows: &Rows<'_>, pieces: Vec<Piece>) -> Vec<(Piece, Packed)> {
    let pack = |piece: Piece| {
        let packed = rows.pack(&piece, piece.rows.clone());
        (piece, packed)
    };
    pieces.into_iter().map(pack).collect()
}

/// Returns whether the fences of the new leaves fit into the parent once `count` slots from `first` on are
/// removed.
fn fits(mtr: &Mtr<'_>, parent: LatchedPage, first: usize, count: usize, leaves: &[Piece]) -> Result<bool, Damaged> {
    let above = Node::open(mtr.page(parent))?;
    let mut room = above.free_bytes();
    for slot in first..first + count {
        room += SLOT_BYTES + above.slot(slot)?.heap_bytes();
    }
    let each = |leaf: &Piece| SLOT_BYTES + CHILD_BYTES + leaf.lower.len().saturating_sub(above.prefix_len());
    Ok(leaves.iter().map(each).sum::<usize>() <= room)
}
