//! Temporary trees during all other work: each equals a plain map, whatever crashes, fails and fills up around it, and
//! the next opening finds no trace of it.
//!
//! 1. They are drawn from a separate generator, on a third of the seeds: all other seeds stay the same runs.
//! 2. An operation that failed has changed nothing. A rollback that failed has undone a part: the tree's contents are
//!    unknown, and it is dropped.

use super::*;
use crate::api::{TemporarySavepoint, TemporaryTree};

/// A tree and what it holds, now and at its savepoint.
pub(crate) struct Temporary {
    tree: TemporaryTree,
    map: BTreeMap<Key, Vec<u8>>,
    savepoint: Option<(TemporarySavepoint, BTreeMap<Key, Vec<u8>>)>,
}

/// Temporary trees at one time.
const TEMPORARIES_MAX: usize = 2;

impl Rig {
    pub(super) fn temporary(&mut self, live: &mut Live) -> Step {
        self.tally.temporary += 1;
        if live.temporaries.is_empty() || (live.temporaries.len() < TEMPORARIES_MAX && self.beside.percent(5)) {
            self.say(|| "make a temporary tree".into());
            let made = crate::api::temporary_tree(&live.db, 32 * self.page_bytes);
            let tree = self.answer(live, made, May::default())?;
            live.temporaries.push(Temporary { tree, map: BTreeMap::new(), savepoint: None });
            return Ok(());
        }
        let at = self.beside.index(live.temporaries.len());
        let mut one = live.temporaries.swap_remove(at);
        let (answer, stays) = self.temporary_step(&mut one)?;
        // A tree that is not kept is dropped before the next step, and releases its file.
        if stays && !self.beside.percent(2) {
            live.temporaries.push(one);
        }
        self.explained(live, answer.err(), May::default())
    }

    /// One operation; its answer, and whether it is known what the tree holds.
    fn temporary_step(&mut self, one: &mut Temporary) -> Step<(Result<(), Error>, bool)> {
        let Temporary { tree, map, savepoint } = one;
        match self.beside.below(10) {
            0..=4 => {
                let rows = 1 + self.beside.log_uniform(200);
                self.say(|| format!("put {rows} rows into a temporary tree"));
                for _ in 0..rows {
                    let key = self.temporary_key();
                    let len = if self.beside.percent(3) { 3 * self.page_bytes } else { 400 };
                    let value = vec![self.beside.below(256) as u8; self.beside.below(len) as usize];
                    match tree.put(&key, &value) {
                        Ok(was_there) if was_there == map.contains_key(&key) => drop(map.insert(key, value)),
                        Ok(_) => return fail("a temporary tree does not know what it had"),
                        Err(error) => return Ok((Err(error), true)),
                    }
                }
            }
            5 => {
                self.say(|| "delete some rows of a temporary tree".into());
                let from = self.temporary_key();
                let keys: Vec<Key> = map.range(from..).take(100).map(|(key, _)| key.clone()).collect();
                for key in keys {
                    match tree.delete(&key) {
                        Ok(true) => drop(map.remove(&key)),
                        Ok(false) => return fail("a row of a temporary tree is not there"),
                        Err(error) => return Ok((Err(error), true)),
                    }
                }
            }
            6 => {
                let key = self.temporary_key();
                match tree.get(&key) {
                    Ok(found) if found.as_ref() == map.get(&key) => {}
                    Ok(_) => return fail("a temporary tree has another value"),
                    Err(error) => return Ok((Err(error), true)),
                }
            }
            7 => match tree.savepoint() {
                Ok(taken) => *savepoint = Some((taken, map.clone())),
                Err(error) => return Ok((Err(error), true)),
            },
            8 => {
                let Some((taken, then)) = savepoint else { return Ok((Ok(()), true)) };
                self.say(|| "roll a temporary tree back".into());
                match tree.rollback_to(taken) {
                    Ok(()) => map.clone_from(then),
                    Err(error) => return Ok((Err(error), false)),
                }
            }
            _ => {
                self.say(|| "compare a temporary tree".into());
                match crate::api::temporary_rows(tree) {
                    Ok(rows) if rows.iter().map(|(key, value)| (key, value)).eq(&*map) => {}
                    Ok(_) => return fail("a temporary tree has other rows"),
                    Err(error) => return Ok((Err(error), true)),
                }
            }
        }
        Ok((Ok(()), true))
    }

    fn temporary_key(&mut self) -> Key {
        self.beside.below(2000).to_be_bytes().to_vec()
    }
}
