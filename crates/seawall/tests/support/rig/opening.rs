//! Opening the database after a crash or a close, and judging what it found.

use super::*;

impl Rig {
    /// Opens the database, with crashes during the opening. `None`: damage was reported.
    pub(super) fn open(&mut self, last: bool) -> Result<Option<Live>, String> {
        for attempt in 0.. {
            if self.sim.has_lost_names() {
                self.say(|| "  the file system has stopped, and is mounted anew".into());
                self.sim.power_cut();
                self.crashed(End::PowerCut);
            }
            let how = if self.dice.percent(60) { End::PowerCut } else { End::Killed };
            let dying = !last && attempt < 3 && self.dice.percent(85);
            let after = if !dying {
                None
            } else if self.dice.percent(25) {
                Some(self.dice.below(60))
            } else {
                Some(self.dice.log_uniform(4000))
            };
            let process = DyingProcess::tearing(&self.sim, how, after, !self.kept);
            let options = self.options()?;
            let env = Env {
                disk: process.clone(),
                clock: self.sim.clone(),
                seed: self.dice.next(),
                background: Background::Steps,
            };
            self.tally.openings += 1;
            self.opening.0 = self.operations();
            self.note_log_damage();
            self.drop_caches();
            let fault = self.fault_of_opening(attempt);
            let fault_given = fault.is_some();
            // A checkpoint or flush of the opening may have failed in the background.
            self.faulty = fault_given;
            if let Some(fault) = fault {
                self.say(|| format!("  during the opening: {fault:?}"));
                self.sim.inject(fault);
            }
            let opened = Database::open_in(env, DIR, options);
            self.sim.clear_faults();
            self.opening.1 = self.operations();
            match opened {
                Ok(db) => {
                    self.nothing_temporary_is_left()?;
                    return Ok(Some(Live {
                        process,
                        txs: Vec::new(),
                        in_place: Vec::new(),
                        rewritten: false,
                        told: Arc::default(),
                        copies: false,
                        cursors: Vec::new(),
                        temporaries: Vec::new(),
                        trees: BTreeMap::new(),
                        built: BTreeSet::new(),
                        losers: true,
                        db,
                    }));
                }
                Err(_) if process.is_dead() => {
                    self.say(|| format!("  {how:?} while it opened"));
                    self.tally.dead_openings += 1;
                    self.crashed(how);
                }
                // The user tries again, on the same machine: the page cache has what the failed opening wrote.
                Err(Error::Io(_) | Error::Poisoned { .. } | Error::OutcomeUnknown { .. }) if fault_given => {
                    self.say(|| "  it fails".into());
                    self.tally.failed_openings += 1;
                    self.powerless = true;
                }
                Err(error) if self.names_damage(&error) => {
                    self.say(|| format!("  damage is named: {error}"));
                    self.named();
                    return Ok(None);
                }
                // A full disk may have no space for a new database, but has it for an existing one.
                Err(Error::NoSpace { .. } | Error::Io(_)) if self.mode == Mode::Faults && self.model_is_empty() => {
                    return Ok(None);
                }
                Err(error) => {
                    let failed = Stop::Failed(format!("it does not open: {error}"));
                    let Some(Stop::Failed(why)) = self.excused(Some(failed)) else { return Ok(None) };
                    return Err(why);
                }
            }
        }
        unreachable!("an opening without a crash answers")
    }

    /// The kernel drops clean pages from the page cache when it likes.
    fn drop_caches(&mut self) {
        let (Some(dice), Ok(paths)) = (&mut self.openings_fail, self.sim.list(DIR.as_ref())) else { return };
        for path in paths {
            if dice.percent(20) {
                if let Ok(file) = self.sim.open(&path, OpenHow::default()) {
                    drop(self.sim.drop_cache(&file, 0, 0));
                }
            }
        }
    }

    fn fault_of_opening(&mut self, attempt: u32) -> Option<Fault> {
        let dice = self.openings_fail.as_mut().filter(|_| attempt < 4)?;
        if !dice.percent(40) {
            return None;
        }
        let op = dice.pick(&[Op::Sync, Op::Sync, Op::Write, Op::DurableWrite, Op::Read]);
        Some(Fault::eio().on(op).nth(dice.log_uniform(60)).once())
    }

    fn model_is_empty(&self) -> bool {
        self.model.names(self.model.seq()).is_empty() && self.model.prepared.is_empty()
    }

    pub(super) fn crashed(&mut self, how: End) {
        match how {
            End::PowerCut => self.tally.power_cuts += 1,
            End::Killed => self.tally.kills += 1,
        }
        self.powerless |= how == End::PowerCut;
    }

    /// Reads everything and compares it with the permitted contents; then the model takes over what was
    /// found.
    pub(super) fn judge_opening(&mut self, live: &mut Live) -> Step {
        let found = self.read_all(live)?;
        let least = self.model.least(self.powerless, self.window());
        let seq = match self.model.find(&found, least) {
            Ok(seq) => seq,
            Err(_) if self.log_ends_at_damage(&found, least) => return Err(Stop::Undetectable(Undetectable::EndOfLog)),
            Err(why) => return fail(format!("after the opening: {why}")),
        };
        let of = self.model.seq();
        self.tally.lost += (of - seq) as u64;
        self.say(|| format!("  opened: {seq} of {of} events are there, {least} had to be"));
        self.model.settle(seq);
        self.log_damage.clear();
        self.powerless = false;
        let names = self.model.names(0);
        for (name, uid) in names {
            let tree = live.db.open_tree(&name);
            let tree = self.answer(live, tree, May::default())?;
            live.trees.insert(uid, tree);
        }
        self.check(live)?;
        self.decide_again(live)?;
        self.restore_all(live)
    }
}
