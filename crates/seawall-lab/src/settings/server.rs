//! The same advice in InnoDB's words, for the series of MariaDB and MySQL in use today.
//!
//! - A variable is named only for series that have it; if early releases of a series lack it, it is `loose`.
//! - MariaDB 10.11 has innodb_flush_method (default O_DIRECT since 10.6) and innodb_log_file_buffering
//!   (10.8.4); 11.0 deprecates innodb_flush_method in favour of
//!   innodb_{data,log}_file_{buffering,write_through}; innodb_log_write_ahead_size came back in 10.11.9 and
//!   11.4.3 (MDEV-33894), 512 to 4096, never below the physical block. innodb_flush_neighbors is 1 in
//!   MariaDB, 0 in MySQL 8.
//! - MySQL 8.0: innodb_flush_method fsync, innodb_io_capacity 200, innodb_use_fdatasync from 8.0.26 (off);
//!   8.4: O_DIRECT, 10000, on.
//! - O_DIRECT_NO_FSYNC syncs after growth from MySQL 8.0.14, yet not after a write into a hole, fallocated
//!   space or a reflinked extent: never advised.

use super::seawall::{direct_works, dsync_against_fdatasync, dsync_words, flush_may_be_skipped};
use super::{Recommendation, advise, finding, physical_block, round_down, write_capacity};
use crate::cell::{Access, Preparation};
use crate::experiment::append_overwrite::overwrite_against;
use crate::experiment::baseline::{random_read, rotates, too_fast_to_rotate};
use crate::experiment::log_memory::{THREADS, direct_and_buffered, log};
use crate::results::Results;
use crate::text::{self, Var, vars};
use crate::verdict::{Answer, pair};
use crate::words;

/// InnoDB writes at this pace even without pressure; a higher rate flushes dirty pages that would be changed
/// again soon.
const IO_CAPACITY_MAX: f64 = 10_000.0;

words! {
    /// A series of servers with the same variables and defaults. Its word is its name on a command line, its words are
    /// its title.
    ///
    /// ```
    /// use seawall_lab::settings::Server;
    /// assert!(Server::ALL.iter().all(|&server| Server::parse(server.word()) == Some(server)));
    /// assert_eq!(Server::MySql84.group(), "mysqld");
    /// ```
    #[derive(PartialOrd, Ord)]
    pub enum Server {
        /// MariaDB 10.11.
        #[serde(rename = "mariadb-10")]
        MariaDb10 = "mariadb-10" | "MariaDB 10.11",
        /// MariaDB 11.0 and later.
        #[serde(rename = "mariadb-11")]
        MariaDb11 = "mariadb-11" | "MariaDB 11 and later",
        /// MySQL 8.0.
        #[serde(rename = "mysql-8.0")]
        MySql80 = "mysql-8.0" | "MySQL 8.0",
        /// MySQL 8.4 and 9.
        #[serde(rename = "mysql-8.4")]
        MySql84 = "mysql-8.4" | "MySQL 8.4 and later",
    }
}

impl Server {
    /// Parses a name or a version, in any case: `mariadb-10.11`, `mariadb 11.8`, `mysql-8.0.36`, `mariadb`
    /// (11).
    ///
    /// ```
    /// use seawall_lab::settings::Server;
    /// assert_eq!(Server::parse("MariaDB-10.11"), Some(Server::MariaDb10));
    /// assert_eq!(Server::parse("mariadb"), Some(Server::MariaDb11));
    /// assert_eq!(Server::parse("mysql 8.0.36"), Some(Server::MySql80));
    /// assert_eq!(Server::parse("mysql-9.2"), Some(Server::MySql84));
    /// assert_eq!(Server::parse("postgres"), None);
    /// assert_eq!(Server::parse("mysql-5.7"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        let (name, version) = text.split_once(['-', ' ']).unwrap_or((&text, ""));
        let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
        let major = numbers.next().flatten();
        if major.is_none() && !version.is_empty() {
            return None;
        }
        match (name, major, numbers.next().flatten()) {
            ("mariadb", None | Some(11..), _) => Some(Self::MariaDb11),
            ("mariadb", Some(10), None | Some(11)) => Some(Self::MariaDb10),
            ("mysql", Some(8), Some(0)) => Some(Self::MySql80),
            ("mysql", None | Some(8..), _) => Some(Self::MySql84),
            _ => None,
        }
    }

    /// The option group to write to: `mariadb` or `mysqld`.
    pub fn group(self) -> &'static str {
        if self.is_mariadb() { "mariadb" } else { "mysqld" }
    }

    /// Whether the series is MariaDB's.
    pub fn is_mariadb(self) -> bool {
        matches!(self, Self::MariaDb10 | Self::MariaDb11)
    }
}

pub(super) fn recommend(results: &Results, server: Server) -> Vec<Recommendation> {
    let a = Advice { results, server };
    let mut list = match server {
        Server::MariaDb10 => vec![a.mariadb_flush_method(), a.log_buffering()],
        Server::MariaDb11 => {
            let write_through = a.advise("innodb_data_file_write_through", "kept", &[]);
            vec![a.data_buffering(), a.log_write_through(), write_through, a.log_buffering()]
        }
        Server::MySql80 | Server::MySql84 => {
            let use_fdatasync = a.advise("innodb_use_fdatasync", "found", &[]);
            vec![a.mysql_flush_method(), use_fdatasync, a.extend_and_initialize()]
        }
    };
    list.push(if server.is_mariadb() { a.mariadb_write_ahead_size() } else { a.mysql_write_ahead_size() });
    list.extend(a.io_capacity());
    list.push(a.flush_neighbors());
    list.extend(a.io_threads());
    list.push(a.advise("innodb_doublewrite", "safe", &[]));
    list
}

struct Advice<'a> {
    results: &'a Results,
    server: Server,
}

impl Advice<'_> {
    fn advise(&self, key: &str, finding: &str, vars: &[Var<'_>]) -> Recommendation {
        advise(Some(self.server), key, finding, vars)
    }

    /// Why direct I/O cannot be used, if the probe proved that.
    fn direct_refused(&self) -> Option<String> {
        let known = self.results.probe.direct_io.known().is_some();
        direct_works(self.results).err().filter(|_| known)
    }

    /// What is known of direct I/O.
    fn direct_words(&self) -> String {
        direct_works(self.results)
            .err()
            .unwrap_or_else(|| "direct I/O works and leaves nothing in the page cache".into())
    }

    fn mariadb_flush_method(&self) -> Recommendation {
        const KEY: &str = "innodb_flush_method";
        if let Some(why) = self.direct_refused() {
            return self.advise(KEY, "buffered", vars![why]);
        }
        let p = dsync_against_fdatasync(self.results, Access::Direct);
        let finding = finding(p.as_ref(), ["dsync-faster", "dsync-slower", "direct", "direct"]);
        let [faster, slower] = p.map_or_else(Default::default, |p| [p.times(), p.times_slower()]);
        self.advise(KEY, finding, vars![direct = self.direct_words(), faster, slower])
    }

    fn data_buffering(&self) -> Recommendation {
        let value = if self.direct_refused().is_some() { "ON" } else { "OFF" };
        self.advise("innodb_data_file_buffering", "found", vars![value, direct = self.direct_words()])
    }

    fn log_write_through(&self) -> Recommendation {
        let access = if self.direct_refused().is_some() { Access::Buffered } else { Access::Direct };
        let p = dsync_against_fdatasync(self.results, access);
        let finding = finding(p.as_ref(), ["faster", "slower", "alike", "unmeasured"]);
        let words = p.as_ref().map(dsync_words).unwrap_or_default();
        self.advise("innodb_log_file_write_through", finding, vars![words])
    }

    fn mysql_flush_method(&self) -> Recommendation {
        const KEY: &str = "innodb_flush_method";
        if let Err(why) = direct_works(self.results) {
            let finding = if self.direct_refused().is_some() { "buffered" } else { "unknown" };
            return self.advise(KEY, finding, vars![why]);
        }
        match flush_may_be_skipped(self.results) {
            Some(p) => self.advise(KEY, "mysql-through", vars![times = p.times()]),
            None => self.advise(KEY, "mysql", &[]),
        }
    }

    fn log_buffering(&self) -> Recommendation {
        const KEY: &str = "innodb_log_file_buffering";
        if let Some(why) = self.direct_refused() {
            return self.advise(KEY, "refused", vars![why]);
        }
        let pair_of = |threads| Some((threads, pair(self.results, direct_and_buffered(threads))?));
        let pairs: Vec<_> = THREADS.into_iter().filter_map(pair_of).collect();
        let seen = pairs.iter().map(|(threads, p)| {
            let word = finding(Some(p), ["direct faster", "direct slower", "cannot tell", "cannot tell"]);
            format!("{} {} ({word})", text::many(*threads, "thread", "threads"), p.times())
        });
        let seen = seen.collect::<Vec<_>>().join(", ");
        // Buffering justifies its memory only if it wins clearly, at every measured thread count.
        let finding = if pairs.is_empty() {
            "unmeasured"
        } else if pairs.iter().all(|(_, p)| p.answer == Answer::Less && p.ratio.median < 0.9) {
            "slower"
        } else if pairs.iter().all(|(_, p)| matches!(p.answer, Answer::Same | Answer::Unclear)) {
            "alike"
        } else {
            "direct"
        };
        self.advise(KEY, finding, vars![seen])
    }

    fn extend_and_initialize(&self) -> Recommendation {
        const KEY: &str = "innodb_extend_and_initialize";
        let p = overwrite_against(self.results, Preparation::Unwritten);
        let Some(p) = p else { return self.advise(KEY, "unmeasured", &[]) };
        let (times, words) = (p.times(), p.in_words("overwriting", "writing into fallocated blocks"));
        self.advise(KEY, if p.answer == Answer::More { "measured" } else { "alike" }, vars![times, words])
    }

    /// The server itself uses at least the physical block; only a device that understates it needs a setting.
    fn mariadb_write_ahead_size(&self) -> Recommendation {
        const KEY: &str = "innodb_log_write_ahead_size";
        let better = pair(self.results, [4096, 512].map(|block| log(16, Access::Direct, block, true)));
        match (physical_block(self.results), better.filter(|p| p.answer == Answer::More)) {
            (Some(512) | None, Some(p)) => self.advise(KEY, "faster", vars![times = p.times()]),
            (Some(bytes), _) => {
                let default = bytes.clamp(512, 4096).to_string();
                let computed = self.advise(KEY, "computed", vars![bytes]);
                Recommendation { value: default.clone(), default, ..computed }
            }
            (None, None) => self.advise(KEY, "uncompared", &[]),
        }
    }

    fn mysql_write_ahead_size(&self) -> Recommendation {
        let block = physical_block(self.results);
        let finding = match block {
            Some(8193..) => "large",
            Some(_) => "covered",
            None => "unknown",
        };
        self.advise("innodb_log_write_ahead_size", finding, vars![bytes = block.unwrap_or_default()])
    }

    /// Pages, not writes: doublewrite writes every page twice. A quarter of the writes for steady flushing,
    /// half under pressure.
    fn io_capacity(&self) -> [Recommendation; 2] {
        const KEYS: [&str; 2] = ["innodb_io_capacity", "innodb_io_capacity_max"];
        let (low, why) = match write_capacity(self.results) {
            Ok(measured) => measured,
            Err(why) => return KEYS.map(|key| self.advise(key, "unknown", vars![why])),
        };
        let quarter = round_down((low * 0.25).clamp(100.0, IO_CAPACITY_MAX));
        let half = round_down((low * 0.5).clamp(200.0, 4.0 * IO_CAPACITY_MAX)).max(quarter);
        let (low, most) = (text::count(low), text::count(IO_CAPACITY_MAX));
        KEYS.map(|key| self.advise(key, "measured", vars![quarter, half, most, low, why]))
    }

    fn flush_neighbors(&self) -> Recommendation {
        let fast = too_fast_to_rotate(self.results);
        let finding = match rotates(self.results) {
            Some(true) => "rotates",
            Some(false) if fast.is_some() => "fast",
            Some(false) => "solid",
            None => "unknown",
        };
        self.advise("innodb_flush_neighbors", finding, vars![rate = text::or_missing(fast, text::count)])
    }

    fn io_threads(&self) -> [Recommendation; 2] {
        let deep = |d| Some((d, self.results.cell(&random_read(d))?.median()?));
        let (depth, rate) = [64, 32, 16].into_iter().find_map(deep).unwrap_or_default();
        let (finding, rate) = (if depth > 0 { "deep" } else { "unmeasured" }, text::count(rate));
        // MySQL 8.4 sets read threads to half the processors, at least 4.
        let half = (self.results.machine.cpus / 2).clamp(4, 64);
        ["innodb_read_io_threads", "innodb_write_io_threads"]
            .map(|key| self.advise(key, finding, vars![half, depth, rate]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::{Beside, Sync};
    use crate::plan;
    use crate::sample::{self, cell};
    use crate::settings::Confidence;
    use seawall_io::probe::{BlockDevice, DirectIo, Finding, WriteCache};

    fn device(results: &mut Results) -> &mut BlockDevice {
        match &mut results.probe.device {
            Finding::Known(device) => device,
            Finding::Unknown(_) => panic!("sample knows its device"),
        }
    }

    fn get(results: &Results, server: Server, key: &str) -> Option<Recommendation> {
        recommend(results, server).into_iter().find(|r| r.key == key)
    }

    fn value(results: &Results, server: Server, key: &str) -> String {
        get(results, server, key).unwrap_or_else(|| panic!("{server:?} has no {key}")).value
    }

    #[test]
    fn each_series_gets_only_its_own_variables() {
        let r = sample::of_plan(&plan::full());
        for (key, servers) in [
            ("innodb_flush_method", vec![Server::MariaDb10, Server::MySql80, Server::MySql84]),
            ("innodb_data_file_buffering", vec![Server::MariaDb11]),
            ("innodb_log_file_write_through", vec![Server::MariaDb11]),
            ("innodb_log_file_buffering", vec![Server::MariaDb10, Server::MariaDb11]),
            ("innodb_use_fdatasync", vec![Server::MySql80, Server::MySql84]),
            ("innodb_doublewrite", Server::ALL.to_vec()),
        ] {
            for server in Server::ALL {
                assert_eq!(get(&r, server, key).is_some(), servers.contains(&server), "{key} for {server:?}");
            }
        }
        assert!(get(&r, Server::MySql80, "innodb_use_fdatasync").unwrap().loose);
        assert!(get(&r, Server::MariaDb10, "innodb_log_write_ahead_size").unwrap().loose);
    }

    #[test]
    fn skipping_flushes_is_never_advised_and_refused_direct_io_is_heeded() {
        let mut r = sample::results(vec![
            cell(plan::direct_sync(1, 4096, Sync::None), 2e4),
            cell(plan::direct_sync(1, 4096, Sync::Fdatasync), 1e4),
        ]);
        for server in [Server::MySql80, Server::MySql84] {
            assert_eq!(value(&r, server, "innodb_flush_method"), "O_DIRECT");
        }
        device(&mut r).write_cache = Finding::unknown("?");
        assert_eq!(value(&r, Server::MySql80, "innodb_flush_method"), "O_DIRECT");
        device(&mut r).write_cache = Finding::Known(WriteCache::Through);
        // Not even then: a checkpoint would pass pages whose blocks the file system has not committed yet.
        let advice = get(&r, Server::MySql80, "innodb_flush_method").unwrap();
        assert_eq!(advice.value, "O_DIRECT");
        assert!(advice.because.contains("O_DIRECT_NO_FSYNC is not advised"), "{}", advice.because);
        assert_eq!(value(&r, Server::MariaDb10, "innodb_flush_method"), "O_DIRECT");
        r.probe.direct_io = Finding::Known(DirectIo::Refused);
        assert_eq!(value(&r, Server::MySql84, "innodb_flush_method"), "fsync");
        assert_eq!(value(&r, Server::MariaDb11, "innodb_data_file_buffering"), "ON");
        r.probe.direct_io = Finding::unknown("?");
        assert!(!get(&r, Server::MySql80, "innodb_flush_method").unwrap().changes_default());
    }

    #[test]
    fn log_write_through_and_buffering_follow_the_measurement() {
        let dsync = |rate| {
            let cells = vec![
                cell(plan::direct_sync(1, 4096, Sync::RwfDsync), rate),
                cell(plan::direct_sync(1, 4096, Sync::Fdatasync), 1e4),
            ];
            value(&sample::results(cells), Server::MariaDb11, "innodb_log_file_write_through")
        };
        assert_eq!(dsync(2e4), "ON");
        assert_eq!(dsync(1e4), "OFF");
        assert_eq!(dsync(5e3), "OFF");
        let buffering = |direct| {
            let [d, b] = direct_and_buffered(16);
            get(&sample::results(vec![cell(d, direct), cell(b, 1e4)]), Server::MariaDb10, "innodb_log_file_buffering")
                .unwrap()
        };
        assert_eq!(buffering(5e3).value, "ON");
        assert_eq!(buffering(2e4).value, "OFF");
        assert_eq!(buffering(1e4).confidence, Confidence::DefaultKept);
    }

    #[test]
    fn neighbours_follow_the_medium_and_not_a_virtual_label() {
        let mut r = sample::results(vec![]);
        assert_eq!(value(&r, Server::MariaDb10, "innodb_flush_neighbors"), "0");
        device(&mut r).rotational = Finding::Known(true);
        assert_eq!(value(&r, Server::MySql80, "innodb_flush_neighbors"), "1");
        r.cells.push(cell(plan::random_read(1), 15_000.0));
        assert_eq!(value(&r, Server::MySql80, "innodb_flush_neighbors"), "0");
        r.probe.device = Finding::unknown("overlay");
        assert!(!get(&r, Server::MariaDb10, "innodb_flush_neighbors").unwrap().changes_default());
    }

    #[test]
    fn capacity_is_capped_and_in_order() {
        for rate in [120.0, 3_000.0, 44_000.0, 900_000.0] {
            let r = sample::results(vec![cell(plan::parallel(8, Beside::Nothing), rate)]);
            let steady: f64 = value(&r, Server::MySql84, "innodb_io_capacity").parse().unwrap();
            let most: f64 = value(&r, Server::MySql84, "innodb_io_capacity_max").parse().unwrap();
            assert!((100.0..=IO_CAPACITY_MAX).contains(&steady) && most >= steady, "{rate}: {steady} {most}");
        }
        let none = sample::results(vec![]);
        assert_eq!(value(&none, Server::MySql84, "innodb_io_capacity"), "10000");
        assert_eq!(value(&none, Server::MariaDb10, "innodb_io_capacity"), "200");
    }

    #[test]
    fn write_ahead_size_stays_within_each_series_range() {
        let mut r = sample::results(vec![]);
        device(&mut r).physical_block_bytes = Finding::Known(16384);
        assert_eq!(value(&r, Server::MySql80, "innodb_log_write_ahead_size"), "16384");
        device(&mut r).physical_block_bytes = Finding::Known(65536);
        assert_eq!(value(&r, Server::MySql80, "innodb_log_write_ahead_size"), "16384");
        assert!(!get(&r, Server::MariaDb11, "innodb_log_write_ahead_size").unwrap().changes_default());
        device(&mut r).physical_block_bytes = Finding::Known(512);
        r.cells.push(cell(log(16, Access::Direct, 4096, true), 2e4));
        r.cells.push(cell(log(16, Access::Direct, 512, true), 1e4));
        assert_eq!(value(&r, Server::MariaDb11, "innodb_log_write_ahead_size"), "4096");
        assert_eq!(value(&r, Server::MySql80, "innodb_log_write_ahead_size"), "8192");
    }
}
