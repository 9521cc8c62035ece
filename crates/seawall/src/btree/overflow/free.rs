//! Frees long values, page by page.

use super::{Head, List, ListCut, PAGES_AT_ONCE_MAX, SetNext, latch_list};
use crate::buffer::{Mtr, MtrSize};
use crate::error::{Error, Result, Stop};
use crate::format::{PageId, TreeId};
use crate::space::Space;

/// Mini-transactions that free long values in one step of purge, rollback or dismantling.
pub const VALUE_MTRS_A_STEP: usize = 64;

/// Frees the pages of a long value of `tree` except its head, in at most `budget` mini-transactions of its own, which
/// it subtracts from `budget`. Returns whether only the head is left. May be called again, also after a crash: it frees
/// what is left. No latch may be held.
///
/// # Errors
/// Those of reading.
pub fn free_overflow_some(space: &Space, tree: TreeId, head: PageId, budget: &mut usize) -> Result<bool> {
    while *budget > 0 {
        if space.pool().retry(|| free_step(space, tree, head))? {
            return Ok(true);
        }
        *budget -= 1;
    }
    Ok(false)
}

/// Frees the head of a long value whose body is freed, in a mini-transaction of the caller (`overflow.rs`,
/// 4). Call it after all other latches are taken.
///
/// # Errors
/// [`Stop::Load`]; [`Error::Corrupt`] when the body is not freed. Nothing is changed then.
pub fn free_overflow_head(space: &Space, mtr: &mut Mtr<'_>, tree: TreeId, head: PageId) -> Result<(), Stop> {
    let held = mtr.latch(head)?;
    let is_body_freed = match Head::of(mtr.page(held), head, tree)? {
        Head::Page(_) => true,
        Head::List(list) => list.count == 0 && list.next().is_none(),
    };
    if !is_body_freed {
        return Err(Error::bad_page(head, "the head of a long value is freed before its body").into());
    }
    space.free(mtr, held)
}

/// Frees some pages. Returns whether only the head is left: an empty list, or the only page.
fn free_step(space: &Space, tree: TreeId, head: PageId) -> Result<bool, Stop> {
    let mut mtr = Mtr::begin(space.pool(), MtrSize::Small)?;
    let head_held = mtr.latch(head)?;
    let next = match Head::of(mtr.page(head_held), head, tree)? {
        Head::Page(_) => return Ok(true),
        Head::List(list) => list.next(),
    };
    let (id, held) = match next {
        Some(next) => (next, latch_list(&mut mtr, tree, next)?),
        None => (head, head_held),
    };
    let list = List::of(mtr.page(held), id, tree)?;
    let (pages, behind) = (list.pages(), list.next());
    if pages.is_empty() {
        if next.is_none() {
            return Ok(true);
        }
        space.ready_to_free(&mut mtr, tree, &[id])?;
        mtr.run(head_held, &SetNext { next: behind.unwrap_or(PageId::NONE) });
        space.free(&mut mtr, held)?;
    } else {
        let keep = pages.len() - pages.len().min(PAGES_AT_ONCE_MAX);
        space.free_many(&mut mtr, tree, &pages[keep..])?;
        mtr.run(held, &ListCut { keep: keep as u16 });
    }
    mtr.commit();
    Ok(false)
}
