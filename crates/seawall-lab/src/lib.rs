//! The lab: measures a disk as six classic publications did, explains the results, and writes recommended
//! settings.
//!
//! - [`experiment`] holds a Rust file for each experiment (cells, verdicts, evidence) and a TOML file (publication,
//!   words).
//! - [`run`] measures cells ([`cell`], [`plan`]) and returns [`results::Results`], which is what
//!   `results.json` holds.
//! - Cells of the engine need an implementation of [`run::Engine`], passed to [`run::Lab::run_with`]:
//!   `seawall-bench`'s `lab`.
//! - Everything derived from a run is computed from its results alone: the [`table`], the [`verdict`]s, the
//!   [`settings`] for Seawall, MariaDB and MySQL (as a diff of a user's file in [`mycnf`]), the [`report`],
//!   [`compare`] and [`require`].
//! - [`sql`] runs E5 and E6 on a MariaDB server.
//!
//! A number is always shown with its uncertainty ([`stats`]): a difference inside the noise is called "cannot
//! tell".
//!
//! ```no_run
//! use seawall_lab::run::{Lab, LabOptions, Silent};
//! use std::sync::atomic::AtomicBool;
//! let lab = Lab::new(LabOptions::new("/srv/db".as_ref()))?;
//! let results = lab.run(&mut Silent, &AtomicBool::new(false))?;
//! print!("{}{}", seawall_lab::table::table(&results), seawall_lab::table::conclusions(&results));
//! std::fs::write("report.html", seawall_lab::report::html(&results))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod cell;
pub mod compare;
mod evidence;
pub mod experiment;
pub mod mycnf;
pub mod plan;
pub mod report;
pub mod require;
pub mod results;
pub mod run;
#[cfg(feature = "sample")]
#[doc(hidden)]
#[path = "../tests/sample/mod.rs"]
pub mod sample;
pub mod settings;
pub mod sql;
pub mod stats;
mod summary;
pub mod sustain;
pub mod table;
mod text;
pub mod verdict;
pub mod words;
