//! A user's own `my.cnf` with the recommendations applied, as a unified diff. The file itself is only read.
//!
//! - Only recommended settings are touched: comments, order, spacing, line endings, other groups, `!include`
//!   lines stay.
//! - Names are compared as the server does: `-` and `_` are equal, `loose_` and `skip_` are understood. The
//!   last setting in a group that the server reads takes effect, and that one is changed.
//! - A value that means the same (`16K` and `16384`, `1` and `ON`) is left as the user wrote it.
//! - A default that is kept for lack of a measurement never overrides the user's choice, unless that choice
//!   risks data.

mod parse;
mod propose;

use crate::settings::{Server, Settings};
use parse::Line;
use std::path::Path;

/// A parsed option file.
///
/// ```
/// use seawall_lab::{mycnf::MyCnf, plan, sample, settings};
/// let advice = settings::recommend(&sample::of_plan(&plan::decisive()));
/// let server = settings::Server::MariaDb11;
/// let mine = MyCnf::parse("my.cnf", "# written at 3 am\n[mariadb]\nport=3307\n!include local.cnf\n")?;
/// let proposal = mine.propose(server, advice.server(server));
/// assert!(proposal.text.contains("# written at 3 am\n[mariadb]\nport=3307\n"), "what is the user's stays");
/// assert!(proposal.notes[0].contains("includes other files"));
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone)]
pub struct MyCnf {
    name: String,
    text: String,
    lines: Vec<Line>,
}

/// The file with the recommendations applied.
///
/// ```
/// use seawall_lab::{mycnf::MyCnf, plan, sample, settings};
/// # let advice = settings::recommend(&sample::of_plan(&plan::decisive()));
/// # let server = settings::Server::MySql84;
/// let first = MyCnf::parse("my.cnf", "[mysqld]\n")?.propose(server, advice.server(server));
/// // Once applied, there are no changes left.
/// let second = MyCnf::parse("my.cnf", &first.text)?.propose(server, advice.server(server));
/// assert!(second.diff.is_empty() && second.text == first.text);
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// The whole new text.
    pub text: String,
    /// Unified diff from the user's file; empty when there is nothing to change.
    pub diff: String,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Reads `path` and proposes the settings for `server`.
///
/// # Errors
/// The file cannot be read, is not UTF-8, or has a line without a valid form.
///
/// ```
/// use seawall_lab::{mycnf::propose, plan, sample, settings};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("my.cnf");
/// std::fs::write(&path, "[mysqld]\ninnodb_doublewrite = OFF\n")?;
/// let advice = settings::recommend(&sample::of_plan(&plan::decisive()));
/// let proposal = propose(&path, settings::Server::MySql80, &advice)?;
/// assert!(proposal.text.contains("innodb_doublewrite = ON\n"));
/// assert!(std::fs::read_to_string(&path)?.contains("OFF"), "the file itself is only read");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn propose(path: &Path, server: Server, settings: &Settings) -> Result<Proposal, String> {
    let file = MyCnf::read(path)?;
    let mut proposal = file.propose(server, settings.server(server));
    proposal.notes.extend(file.commit_risk(server, settings));
    Ok(proposal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Confidence, Recommendation};
    use crate::{plan, sample, settings};

    fn rec(key: &str, value: &str, default: &str, confidence: Confidence) -> Recommendation {
        Recommendation {
            key: key.into(),
            value: value.into(),
            because: format!("{key} was measured"),
            confidence,
            default: default.into(),
            loose: false,
        }
    }

    fn apply(text: &str, server: Server, list: &[Recommendation]) -> Proposal {
        let proposal = MyCnf::parse("my.cnf", text).unwrap().propose(server, list);
        // Applying the diff gives the text.
        if !proposal.diff.is_empty() {
            let patch = diffy::Patch::from_str(&proposal.diff).unwrap();
            assert_eq!(diffy::apply(text, &patch).unwrap(), proposal.text);
        }
        proposal
    }

    const MEASURED: Confidence = Confidence::Measured;

    #[test]
    fn changes_in_place_and_leaves_the_rest() {
        let text = "# mine\n[client]\nport=3306\n\n[mysqld]\n  innodb-io-capacity=200   # old \
            disk\nskip-name-resolve\n!includedir /etc/x\n\n[mysqldump]\nquick\n";
        let p = apply(
            text,
            Server::MySql80,
            &[
                rec("innodb_io_capacity", "5000", "200", MEASURED),
                rec("innodb_flush_method", "O_DIRECT", "fsync", MEASURED),
            ],
        );
        assert!(p.text.contains(
            "  # seawall lab, measured: innodb_io_capacity was measured\n  innodb-io-capacity=5000   # old disk\n"
        ));
        assert!(
            p.text.contains(
                "skip-name-resolve\n# seawall lab, measured: innodb_flush_method was \
                 measured\ninnodb_flush_method = O_DIRECT\n"
            ),
            "{}",
            p.text
        );
        assert!(p.diff.contains("\n-  innodb-io-capacity=200   # old disk\n"), "{}", p.diff);
        assert_eq!(p.diff.matches("\n-").count(), 1, "one line is changed, the other is added: {}", p.diff);
        assert_eq!(p.notes.len(), 1);
        // Removing the additions restores the user's file.
        let back: String = p
            .text
            .split_inclusive('\n')
            .filter(|l| !l.contains("seawall lab") && !l.starts_with("innodb_flush_method"))
            .collect();
        assert_eq!(back.replace("5000", "200"), text);
    }

    #[test]
    fn the_last_setting_in_a_group_the_server_reads_is_the_one() {
        let text = "[mysqld]\ninnodb_io_capacity=1\n[mariadb-10.6]\ninnodb_io_capacity=2\n[mariadb-10.11]\ninnodb_io_capacity=3\n[mysqld_safe]\ninnodb_io_capacity=4\n";
        let list = [rec("innodb_io_capacity", "9000", "200", MEASURED)];
        assert!(apply(text, Server::MariaDb10, &list).diff.contains("-innodb_io_capacity=3\n"));
        assert!(apply(text, Server::MySql80, &list).diff.contains("-innodb_io_capacity=1\n"));
    }

    #[test]
    fn equal_meanings_and_kept_defaults_are_left_alone() {
        let text = "[mysqld]\ninnodb_log_write_ahead_size=16K\ninnodb_doublewrite\nloose-innodb_use_fdatasync=1\ninnodb_flush_method=4\ninnodb_io_capacity = 777\n";
        let p = apply(
            text,
            Server::MySql80,
            &[
                rec("innodb_log_write_ahead_size", "16384", "8192", MEASURED),
                rec("innodb_doublewrite", "ON", "ON", Confidence::Safety),
                rec("innodb_use_fdatasync", "ON", "OFF", MEASURED),
                rec("innodb_flush_method", "O_DIRECT", "fsync", MEASURED),
                rec("innodb_io_capacity", "200", "200", Confidence::DefaultKept),
            ],
        );
        assert_eq!(p.diff, "");
        assert_eq!(p.text, text);
    }

    #[test]
    fn danger_is_undone_however_it_is_spelled() {
        let list = [rec("innodb_doublewrite", "ON", "ON", Confidence::Safety)];
        for (line, now) in [
            ("skip-innodb-doublewrite", "innodb_doublewrite = ON"),
            ("skip_innodb_doublewrite # fast!", "innodb_doublewrite = ON # fast!"),
            ("innodb_doublewrite=0", "innodb_doublewrite=ON"),
            ("innodb_doublewrite = \"OFF\"", "innodb_doublewrite = ON"),
        ] {
            let p = apply(&format!("[server]\n{line}\n"), Server::MariaDb11, &list);
            assert!(p.text.ends_with(&format!("\n{now}\n")), "{line}: {}", p.text);
        }
        // A missing variable means the default, which is safe.
        assert_eq!(apply("[server]\n", Server::MariaDb11, &list).diff, "");
    }

    #[test]
    fn flushes_skipped_without_proof_come_back_even_unmeasured() {
        let list = [rec("innodb_flush_method", "fsync", "fsync", Confidence::DefaultKept)];
        for value in ["O_DIRECT_NO_FSYNC", "nosync", "5"] {
            let p = apply(&format!("[mysqld]\ninnodb_flush_method={value}\n"), Server::MySql80, &list);
            assert!(p.text.contains("seawall lab, safety: ") && p.text.ends_with("=fsync\n"), "{}", p.text);
        }
        assert_eq!(apply("[mysqld]\ninnodb_flush_method=O_DIRECT\n", Server::MySql80, &list).diff, "");
        let proven = [rec("innodb_flush_method", "O_DIRECT_NO_FSYNC", "fsync", MEASURED)];
        assert_eq!(apply("[mysqld]\ninnodb_flush_method=O_DIRECT_NO_FSYNC\n", Server::MySql80, &proven).diff, "");
    }

    #[test]
    fn a_missing_group_or_final_newline_is_made() {
        let list = [rec("innodb_io_capacity", "5000", "200", MEASURED)];
        let p = apply("[client]\nport=1", Server::MariaDb10, &list);
        assert!(p.text.starts_with("[client]\nport=1\n\n[mariadb]\n# seawall"), "{}", p.text);
        let p = apply("", Server::MySql84, &list);
        assert!(p.text.starts_with("[mysqld]\n"), "{}", p.text);
        let p = apply("[mysqld]\r\nport=1\r\n", Server::MySql84, &list);
        assert!(p.text.ends_with("measured\r\ninnodb_io_capacity = 5000\r\n"), "{:?}", p.text);
        let p = apply("[mariadb]\n[mysqld]\ninnodb_strict_mode=1\n[mariadb]\n", Server::MariaDb10, &list);
        assert!(p.text.contains("innodb_strict_mode=1\n# seawall"), "{}", p.text);
    }

    #[test]
    fn lines_that_are_not_my_cnf_are_named() {
        for (text, line, problem) in [
            ("innodb_io_capacity=1\n", 1, "before any group"),
            ("[mysqld]\n\nport 3306\n", 3, "write `name = value`"),
            ("[mysqld\n", 1, "closing bracket"),
            ("[]\n", 1, "without a name"),
            ("[mysqld]\n= 3\n", 2, "a value without a name"),
            ("[mysqld]\n!import x\n", 2, "!include"),
            ("{\"json\": 1}\n", 1, "write `name = value`"),
        ] {
            let error = MyCnf::parse("my.cnf", text).unwrap_err();
            assert!(error.starts_with(&format!("my.cnf, line {line}: ")) && error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn unreadable_files_say_so() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("none.cnf");
        let advice = settings::recommend(&sample::of_plan(&plan::decisive()));
        let error = propose(&missing, Server::MySql80, &advice).unwrap_err();
        assert!(error.contains("give a readable option file with --my-cnf"), "{error}");
        let binary = dir.path().join("binary.cnf");
        std::fs::write(&binary, b"[mysqld]\nx=\xff\n").unwrap();
        let error = propose(&binary, Server::MySql80, &advice).unwrap_err();
        assert!(error.contains("line 2: not UTF-8"), "{error}");
        let good = dir.path().join("good.cnf");
        std::fs::write(&good, "\u{feff}[mysqld]\ninnodb_io_capacity = 200\n").unwrap();
        let proposal = propose(&good, Server::MySql80, &advice).unwrap();
        assert!(proposal.diff.contains("-innodb_io_capacity = 200\n"), "{}", proposal.diff);
        // A second application changes nothing.
        let again =
            MyCnf::parse("again", &proposal.text).unwrap().propose(Server::MySql80, advice.server(Server::MySql80));
        assert_eq!(again.diff, "");
    }

    #[test]
    fn a_commit_level_that_is_left_is_noted_with_its_risk_and_its_measured_gain() {
        let advice = settings::recommend(&sample::of_plan(&plan::decisive()));
        let notes = |text: &str| MyCnf::parse("my.cnf", text).unwrap().commit_risk(Server::MariaDb11, &advice);
        let note = &notes("[mysqld]\ninnodb-flush-log-at-trx-commit = 2\n")[0];
        assert!(note.contains("power") && note.contains("made 1.80x the transactions of level 1"), "{note}");
        assert!(notes("[mysqld]\ninnodb_flush_log_at_trx_commit=0\n")[0].contains("process dies"));
        assert!(notes("[mysqld]\nsync_binlog = 0\n")[0].contains("sync_binlog = 0"));
        assert!(notes("[mysqld]\ninnodb_flush_log_at_trx_commit=1\nsync_binlog=1\n").is_empty());
        let unmeasured = settings::recommend(&sample::results(vec![]));
        let file = MyCnf::parse("my.cnf", "[mysqld]\ninnodb_flush_log_at_trx_commit=2\n").unwrap();
        assert!(file.commit_risk(Server::MySql84, &unmeasured)[0].contains("was not measured"));
    }

    proptest::proptest! {
        #[test]
        fn any_text_parses_or_errs_and_proposals_settle(text in "(\\[mysqld\\]\n)?[ -~\n\u{e9}]{0,200}") {
            let list = [rec("innodb_io_capacity", "5000", "200", MEASURED)];
            if let Ok(file) = MyCnf::parse("x", &text) {
                let p = file.propose(Server::MySql80, &list);
                let again = MyCnf::parse("x", &p.text).unwrap().propose(Server::MySql80, &list);
                proptest::prop_assert_eq!(again.diff, "");
            }
        }
    }
}
