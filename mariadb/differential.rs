//! A random sequence of statements on two engines of one server: both must answer the same.
//!
//! ```text
//! differential CLIENT SOCKET SEED STATEMENTS
//! ```
//!
//! Prints what differs, shortened to the statements that are needed for it, and ends with 1. A statement whose
//! answer the order of rows determines has an ORDER BY; text is compared by its weights where ties are allowed.

use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64;
use std::io::Write as _;
use std::process::{Command, ExitCode, Stdio};

/// Columns: the type, and values that meet often, with edges of the type and of the comparison.
const TYPES: &[(&str, &[&str])] = &[
    ("int", &["0", "1", "2", "3", "5", "7", "-1", "-2", "2147483647", "-2147483648"]),
    ("bigint unsigned", &["0", "1", "2", "3", "4", "9", "18446744073709551615"]),
    ("tinyint", &["0", "1", "2", "-1", "127", "-128"]),
    ("decimal(12,3)", &["0", "1.5", "-1.5", "1.499", "99999999.999", "-99999999.999", "0.001"]),
    ("double", &["0", "1e10", "-1e10", "0.5", "-0.5", "1e300", "-0.0"]),
    ("varchar(20) collate utf8mb4_general_ci", TEXTS),
    ("varchar(30) collate utf8mb4_bin", TEXTS),
    ("char(8) collate latin1_swedish_ci", &["''", "'a'", "'A'", "'a '", "'b'", "'ab'", "'aB'", "'zz'"]),
    ("varchar(20) collate utf8mb4_unicode_nopad_ci", TEXTS),
    ("varchar(40) collate utf8mb4_uca1400_as_cs", TEXTS),
    ("varchar(40) collate utf8mb4_uca1400_nopad_ai_cs", TEXTS),
    ("varchar(20) character set ucs2 collate ucs2_general_ci", TEXTS),
    ("text collate utf8mb4_general_ci", LONG),
    ("varbinary(20)", &["''", "'a'", "'a '", "x'00'", "x'0000'", "x'61ff'", "x'ff'", "'ab'", "'aaaaaaaaaa'"]),
    ("varbinary(1500)", LONG_KEYS),
    ("binary(4)", &["'a'", "'ab'", "x'00000001'", "x'ff'"]),
    ("blob", LONG),
    ("date", &["'2000-01-01'", "'2026-11-22'", "'1000-01-01'", "'9999-12-31'"]),
    ("datetime(3)", &["'2000-01-01 00:00:00'", "'2000-01-01 00:00:00.001'", "'2026-11-22 12:34:56.789'"]),
    ("time(2)", &["'00:00:00'", "'-01:00:00.5'", "'838:59:59'", "'12:00:00.01'"]),
    ("year", &["1901", "2000", "2155"]),
    ("enum('one','two','three')", &["'one'", "'two'", "'three'"]),
    ("set('a','b','c')", &["''", "'a'", "'a,c'", "'b'"]),
    ("bit(9)", &["0", "1", "b'100000000'", "255"]),
];
const TEXTS: &[&str] = &[
    "''",
    "'a'",
    "'A'",
    "'a '",
    "'b'",
    "'ab'",
    "'aB'",
    "'ab\\t'",
    "'ä'",
    "'ß'",
    "'ss'",
    "'日本'",
    "'zzzzzzzzzzzzzzzz'",
];
/// The entries of two of them in an index, and one in the primary key, are longer than a key of the engine.
const LONG_KEYS: &[&str] = &[
    "''",
    "repeat('a', 1400)",
    "concat(repeat('a', 1400), 'b')",
    "concat(repeat('a', 1400), 'c')",
    "repeat('a', 1500)",
    "repeat('b', 1499)",
];
const LONG: &[&str] = &[
    "''",
    "'a'",
    "'A'",
    "'a '",
    "repeat('x', 100)",
    "repeat('x', 4000)",
    "repeat('x', 4001)",
    "repeat('x', 9000)",
    "repeat('y', 70000)",
    "'short'",
];

struct Table {
    name: String,
    columns: Vec<(String, usize)>,
    primary: Vec<usize>,
    /// Name, columns.
    indexes: Vec<(String, Vec<usize>)>,
    made: usize,
    unique: bool,
}

struct Statements {
    rng: Pcg64,
    tables: Vec<Table>,
    savepoints: usize,
}

fn is_text(kind: usize) -> bool {
    let name = TYPES[kind].0;
    name.contains("collate") || name.contains("blob") || name.contains("binary")
}

fn is_long(kind: usize) -> bool {
    TYPES[kind].0.starts_with("text") || TYPES[kind].0 == "blob"
}

/// With several levels, 'ab' > 'ä' > 'a': a range of a prefix index lacks rows, in each engine.
fn has_levels(kind: usize) -> bool {
    TYPES[kind].0.contains("uca1400")
}

/// What values that compare as equal have in common.
fn weights(column: &str, kind: usize) -> String {
    let name = TYPES[kind].0;
    match () {
        () if is_long(kind) => format!("length({column})"),
        // Their weights differ at the end.
        () if name.contains("nopad_ai_cs") => format!("{column} is null"),
        () if name.contains("char") && !name.contains("nopad") => format!("hex(weight_string(rtrim({column})))"),
        () if is_text(kind) => format!("hex(weight_string({column}))"),
        () => column.to_owned(),
    }
}

impl Statements {
    fn pick<'a, T: ?Sized>(&mut self, from: &'a [&'a T]) -> &'a T {
        from[self.rng.random_range(0..from.len())]
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.rng.random_range(0..n) == 0
    }

    fn value(&mut self, kind: usize) -> String {
        if self.one_in(8) { "null".into() } else { self.pick(TYPES[kind].1).into() }
    }

    fn create(&mut self) -> String {
        let name = format!("t{}", self.tables.len());
        let columns: Vec<(String, usize)> = (0..self.rng.random_range(2..7))
            .map(|at| (format!("c{at}"), if at == 0 { 0 } else { self.rng.random_range(0..TYPES.len()) }))
            .collect();
        let mut parts: Vec<String> = columns.iter().map(|(name, kind)| format!("{name} {}", TYPES[*kind].0)).collect();
        let primary = match self.rng.random_range(0..4) {
            0 => vec![],
            1 => (0..columns.len()).filter(|&at| !is_long(columns[at].1)).take(2).collect(),
            _ => vec![0],
        };
        if !primary.is_empty() {
            let names: Vec<&str> = primary.iter().map(|&at| columns[at].0.as_str()).collect();
            parts.push(format!("primary key ({})", names.join(", ")));
        }
        let mut table = Table { name, columns, primary, indexes: vec![], made: 0, unique: false };
        for _ in 0..self.rng.random_range(0..4) {
            parts.push(self.index(&mut table));
        }
        let sql = format!("create table {} ({}) default charset utf8mb4", table.name, parts.join(", "));
        self.tables.push(table);
        sql
    }

    fn index(&mut self, table: &mut Table) -> String {
        let name = format!("k{}", table.made);
        table.made += 1;
        let mut columns: Vec<usize> = vec![];
        for _ in 0..self.rng.random_range(1..4) {
            let at = self.rng.random_range(0..table.columns.len());
            if !columns.contains(&at) {
                columns.push(at);
            }
        }
        let parts: Vec<String> = columns
            .iter()
            .map(|&at| {
                let (column, kind) = &table.columns[at];
                let prefix = is_long(*kind) || (is_text(*kind) && !has_levels(*kind) && self.one_in(4));
                let length = if prefix { format!("({})", self.rng.random_range(1..4)) } else { String::new() };
                format!("{column}{length}{}", if self.one_in(5) { " desc" } else { "" })
            })
            .collect();
        // One besides the primary key: which of two is found first depends on how they were made.
        let unique = if !table.unique && self.one_in(4) { "unique " } else { "" };
        table.unique |= !unique.is_empty();
        table.indexes.push((name.clone(), columns));
        format!("{unique}key {name} ({})", parts.join(", "))
    }

    fn condition(&mut self, table: usize) -> String {
        let mut parts = vec![];
        for _ in 0..self.rng.random_range(1..3) {
            let (column, kind) = self.column(table);
            let value = self.pick(TYPES[kind].1).to_owned();
            let other = self.pick(TYPES[kind].1).to_owned();
            parts.push(match self.rng.random_range(0..9) {
                0 => format!("{column} is null"),
                1 => format!("{column} between {value} and {other}"),
                2 => format!("{column} in ({value}, {other})"),
                3 => format!("{column} < {value}"),
                4 => format!("{column} >= {value}"),
                5 if is_text(kind) => format!("{column} like 'a%'"),
                6 => format!("{column} <> {value}"),
                _ => format!("{column} = {value}"),
            });
        }
        parts.join(if self.one_in(4) { " or " } else { " and " })
    }

    /// Values of an index's columns, and bounds of the primary key's, with which its entries end.
    fn condition_on_entries(&mut self, table: usize, columns: &[usize]) -> String {
        let primary = self.tables[table].primary.clone();
        let mut parts = vec![];
        for &at in columns.iter().chain(primary.iter().filter(|at| !columns.contains(at))) {
            let (column, kind) = self.tables[table].columns[at].clone();
            let equal = columns.contains(&at) || self.one_in(3);
            let compared = if equal { "=" } else { self.pick(&["<", "<=", ">", ">="]) };
            parts.push(format!("{column} {compared} {}", self.pick(TYPES[kind].1)));
        }
        parts.join(" and ")
    }

    fn column(&mut self, table: usize) -> (String, usize) {
        let columns = &self.tables[table].columns;
        columns[self.rng.random_range(0..columns.len())].clone()
    }

    /// An order in which no two different rows tie.
    fn total_order(&self, table: usize) -> String {
        let columns = &self.tables[table].columns;
        // The server compares only the first max_sort_length bytes of a long value.
        let by = |kind: usize| match TYPES[kind].0 {
            "double" | "decimal(12,3)" => "concat",
            _ if is_long(kind) || TYPES[kind].1 == LONG_KEYS => "md5",
            _ => "hex",
        };
        columns.iter().map(|(name, kind)| format!("{}({name})", by(*kind))).collect::<Vec<_>>().join(", ")
    }

    fn assignments(&mut self, table: usize) -> String {
        let mut parts: Vec<String> = vec![];
        for _ in 0..self.rng.random_range(1..3) {
            let (column, kind) = self.column(table);
            if parts.iter().all(|part| !part.starts_with(&format!("{column} "))) {
                let value = if kind == 0 && self.one_in(2) { format!("{column} + 1") } else { self.value(kind) };
                parts.push(format!("{column} = {value}"));
            }
        }
        parts.join(", ")
    }

    fn select(&mut self, table: usize) -> String {
        let name = self.tables[table].name.clone();
        let condition = self.condition(table);
        let indexes = self.tables[table].indexes.clone();
        if let Some((index, columns)) = indexes.get(self.rng.random_range(0..indexes.len() + 1)) {
            let condition = if self.one_in(3) { self.condition_on_entries(table, columns) } else { condition };
            // By the index, of its columns: equal ones print the same.
            let columns: Vec<(String, usize)> =
                columns.iter().map(|&at| self.tables[table].columns[at].clone()).collect();
            let long = columns.iter().any(|column| is_long(column.1));
            let print = columns.iter().map(|(column, kind)| weights(column, *kind)).collect::<Vec<_>>().join(", ");
            let order: Vec<String> = columns.iter().map(|column| column.0.clone()).collect();
            let order = if long { print.clone() } else { order.join(", ") };
            let down = if !long && self.one_in(3) { order.replace(", ", " desc, ") + " desc" } else { order };
            return match self.rng.random_range(0..4) {
                0 => format!(
                    "select count(*), min({0}), max({0}) from {name} force index ({index}) where {condition}",
                    match is_text(columns[0].1) {
                        true => "null".into(),
                        false => columns[0].0.clone(),
                    }
                ),
                1 if !long => format!(
                    "select {print}, count(*) from {name} force index ({index}) group by {print} order by {print}"
                ),
                _ => format!("select {print} from {name} force index ({index}) where {condition} order by {down}"),
            };
        }
        let order = self.total_order(table);
        match self.rng.random_range(0..5) {
            0 => format!("select count(*) from {name}"),
            1 if self.tables.len() > 1 => {
                let other = self.rng.random_range(0..self.tables.len());
                format!(
                    "select count(*), sum(a.c0), sum(b.c0) from {name} a join {} b on a.c0 = b.c0",
                    self.tables[other].name
                )
            }
            2 => format!(
                "select md5(group_concat(concat_ws('|', {order}) order by {order} separator ';')) from {name} where {condition} for update"
            ),
            _ => {
                let shown: Vec<String> = self.tables[table]
                    .columns
                    .iter()
                    .map(|(column, kind)| match is_text(*kind) {
                        true => format!("left(hex({column}), 40) {column}, length({column}) l{column}"),
                        false => format!("{column} + 0 {column}"),
                    })
                    .collect();
                format!("select {} from {name} where {condition} order by {order} limit 20", shown.join(", "))
            }
        }
    }

    fn next(&mut self) -> String {
        if self.tables.len() < 3 && (self.tables.is_empty() || self.one_in(10)) {
            return self.create();
        }
        let table = self.rng.random_range(0..self.tables.len());
        let name = self.tables[table].name.clone();
        match self.rng.random_range(0..100) {
            0..35 => {
                let rows: Vec<String> = (0..self.rng.random_range(1..5))
                    .map(|_| {
                        let kinds: Vec<usize> = self.tables[table].columns.iter().map(|column| column.1).collect();
                        let values: Vec<String> = kinds.into_iter().map(|kind| self.value(kind)).collect();
                        format!("({})", values.join(", "))
                    })
                    .collect();
                let (verb, rest) = match self.rng.random_range(0..6) {
                    0 => ("insert ignore into", String::new()),
                    1 => ("replace into", String::new()),
                    2 => ("insert into", format!(" on duplicate key update {}", self.assignments(table))),
                    _ => ("insert into", String::new()),
                };
                format!("{verb} {name} values {}{rest}", rows.join(", "))
            }
            35..50 => {
                let (set, condition, order) = (self.assignments(table), self.condition(table), self.total_order(table));
                let limit = if self.one_in(4) { " limit 2" } else { "" };
                format!("update {name} set {set} where {condition} order by {order}{limit}")
            }
            50..57 => {
                let (condition, order) = (self.condition(table), self.total_order(table));
                let limit = if self.one_in(3) { format!(" order by {order} limit 2") } else { String::new() };
                format!("delete from {name} where {condition}{limit}")
            }
            57..84 => self.select(table),
            84..87 => "begin".into(),
            87..89 => "commit".into(),
            89..91 => "rollback".into(),
            91 => {
                self.savepoints += 1;
                format!("savepoint s{}", self.savepoints % 3)
            }
            92 => format!("rollback to s{}", self.savepoints % 3),
            93 => {
                let mut it = std::mem::replace(
                    &mut self.tables[table],
                    Table {
                        name: String::new(),
                        columns: vec![],
                        primary: vec![],
                        indexes: vec![],
                        made: 0,
                        unique: false,
                    },
                );
                let index = self.index(&mut it);
                self.tables[table] = it;
                format!("alter table {name} add {index}")
            }
            94 if !self.tables[table].indexes.is_empty() => {
                let at = self.rng.random_range(0..self.tables[table].indexes.len());
                let (index, _) = self.tables[table].indexes.remove(at);
                format!("alter table {name} drop index {index}")
            }
            95 if self.tables[table].columns.len() < 9 => {
                let kind = self.rng.random_range(0..TYPES.len());
                let column = format!("c{}", self.tables[table].columns.len());
                self.tables[table].columns.push((column.clone(), kind));
                let value = self.pick(TYPES[kind].1).to_owned();
                let default = if is_long(kind) || self.one_in(2) { String::new() } else { format!(" default {value}") };
                format!("alter table {name} add column {column} {}{default}", TYPES[kind].0)
            }
            96 if self.one_in(5) => format!("truncate table {name}"),
            97 => format!("check table {name}"),
            98 => format!("analyze table {name}"),
            _ => format!("select count(*) from {name} where {}", self.condition(table)),
        }
    }
}

/// The answers to the statements, one text for each.
fn answers(client: &str, socket: &str, engine: &str, statements: &[String]) -> Vec<String> {
    let mut child = Command::new(client)
        .args(["--no-defaults", "-uroot", "-S", socket, "--force", "--batch", "-vv", "--show-warnings", "--unbuffered"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the client starts");
    let database = format!("differential_{}", engine.to_lowercase());
    let mut sql = format!(
        "drop database if exists {database};\ncreate database {database};\nuse {database};\nset default_storage_engine={engine}, \
         innodb_lock_wait_timeout=2, group_concat_max_len=10000000, max_sort_length=8192;\nselect '#{}' answer;\n",
        usize::MAX
    );
    for (at, statement) in statements.iter().enumerate() {
        // The errors say the line, which is lost from stdout: a row with the number before each statement joins them.
        sql += &format!(
            "{statement};\nget diagnostics @n = number;\nget diagnostics condition 1 @e = mysql_errno, @m = message_text;\nselect '#{at}' answer, @n, if(@n, @e, ''), if(@n, @m, '');\n"
        );
    }
    sql += &format!("rollback;\ndrop database {database};\n");
    let mut input = child.stdin.take().expect("it is piped");
    let writer = std::thread::spawn(move || input.write_all(sql.as_bytes()));
    let output = child.wait_with_output().expect("the client ends");
    writer.join().expect("no panic").unwrap_or_default();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut all = vec![String::new(); statements.len()];
    let mut now = String::new();
    for line in text.lines() {
        if line.starts_with("--------------")
            || line.starts_with("get diagnostics")
            || line.starts_with("select '#")
            || line.trim().is_empty()
        {
            continue;
        }
        if let Some(number) = line.strip_prefix('#').and_then(|rest| rest.split('\t').next()?.parse::<usize>().ok()) {
            now.push_str(&line.replace(&database, "d"));
            if let Some(slot) = all.get_mut(number) {
                *slot = std::mem::take(&mut now);
            }
            now.clear();
            continue;
        }
        // The server says these or not, by what it knew before it looked for rows.
        if line.starts_with("Rows matched: 0 ") {
            continue;
        }
        now.push_str(&line.replace(&database, "d"));
        now.push('\n');
    }
    for (statement, answer) in statements.iter().zip(&mut all) {
        if statement.starts_with("alter") {
            // Rows that were copied: the engines change different things in place.
            *answer =
                answer.lines().filter(|line| !line.starts_with("Query OK") && !line.starts_with("Records: ")).collect();
        }
        // Which of several duplicates a new index names; a statement that has no diagnostics repeats it.
        if !["insert", "replace", "update"].iter().any(|verb| statement.starts_with(verb)) {
            if let (Some(from), Some(to)) = (answer.find("Duplicate entry '"), answer.find("' for key")) {
                answer.replace_range(from..to, "a duplicate");
            }
        }
    }
    let answered = all.iter().filter(|answer| !answer.is_empty()).count();
    let said = String::from_utf8_lossy(&output.stderr);
    let lost = said.lines().find(|line| line.contains("ERROR 2013") || line.contains("ERROR 2006"));
    assert!(answered == all.len() || lost.is_some(), "{answered} of {} answers: {said}", all.len());
    all
}

/// The first statement whose answers differ, and both answers.
fn difference(client: &str, socket: &str, statements: &[String]) -> Option<(usize, String, String)> {
    let (ours, theirs) = std::thread::scope(|scope| {
        let ours = scope.spawn(|| answers(client, socket, "SEAWALL", statements));
        let theirs = answers(client, socket, "InnoDB", statements);
        (ours.join().expect("no panic"), theirs)
    });
    let at = ours.iter().zip(&theirs).position(|(ours, theirs)| ours != theirs)?;
    Some((at, ours[at].clone(), theirs[at].clone()))
}

/// Leaves out statements as long as there is a difference.
fn shorten(client: &str, socket: &str, statements: Vec<String>) -> Vec<String> {
    let mut statements = statements;
    let mut step = statements.len() / 2;
    while step > 0 {
        let mut at = 0;
        while at < statements.len() {
            let mut fewer = statements.clone();
            fewer.drain(at..(at + step).min(fewer.len()));
            match difference(client, socket, &fewer) {
                Some((last, ..)) => {
                    fewer.truncate(last + 1);
                    statements = fewer;
                }
                None => at += step,
            }
        }
        step /= 2;
    }
    statements
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [client, socket, seed, count] = &args[..] else {
        eprintln!("differential CLIENT SOCKET SEED STATEMENTS");
        return ExitCode::from(2);
    };
    let (Ok(seed), Ok(count)) = (seed.parse::<u64>(), count.parse::<usize>()) else {
        eprintln!("differential: SEED and STATEMENTS are numbers");
        return ExitCode::from(2);
    };
    let mut source = Statements { rng: Pcg64::seed_from_u64(seed), tables: vec![], savepoints: 0 };
    let statements: Vec<String> = (0..count).map(|_| source.next()).collect();
    let Some((at, ..)) = difference(client, socket, &statements) else {
        println!("seed {seed}: {count} statements, the same answers");
        return ExitCode::SUCCESS;
    };
    let short = shorten(client, socket, statements[..=at].to_vec());
    println!("-- seed {seed}, statement {at}: the engines differ");
    short.iter().for_each(|statement| println!("{statement};"));
    if let Some((_, ours, theirs)) = difference(client, socket, &short) {
        println!("-- Seawall:\n{ours}\n-- InnoDB:\n{theirs}");
    }
    ExitCode::FAILURE
}
