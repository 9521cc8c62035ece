//! The kinds of option values: how each is parsed, printed, and checked against its range.
//!
//! 1. [`Kind::parse`] reads the output of [`Kind::print`] back as the same value.
//! 2. A value that does not fit its type is refused with a message, never rounded or truncated.

use crate::log::Durability;
use seawall_io::{Backend, FlushMethod};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How values of one kind are written.
pub(super) trait Kind {
    type Value: Clone + PartialEq;
    /// The syntax, as in "write ...".
    const SHAPE: &'static str;
    fn parse(text: &str) -> Option<Self::Value>;
    fn print(value: &Self::Value) -> String;
    /// The order of the value; only numbers have one.
    fn rank(_value: &Self::Value) -> u128 {
        0
    }
    /// All values, if they can be listed.
    fn words() -> Vec<&'static str> {
        Vec::new()
    }
}

/// Bytes: `4096`, `512K`, `1.5G`; powers of 1024.
pub(super) struct Size;
/// A length of time: `500ms`, `1s`, `5m`; a bare number is seconds.
pub(super) struct Time;
/// A plain number.
pub(super) struct Count;
/// A share: `90` or `90%`.
pub(super) struct Percent;
/// A path; empty for "the database's own directory".
pub(super) struct Directory;
/// One of a few words.
pub(super) struct Word<T>(std::marker::PhantomData<T>);

const SIZES: [(&str, u128); 5] = [("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10), ("", 1)];

impl Kind for Size {
    type Value = u64;
    const SHAPE: &'static str = "a number of bytes, or one with K, M, G or T, such as 512M";

    fn parse(text: &str) -> Option<u64> {
        let upper = text.trim().to_ascii_uppercase();
        let upper = upper.strip_suffix("IB").or_else(|| upper.strip_suffix('B')).unwrap_or(&upper);
        u64::try_from(quantity(upper, &SIZES)?).ok()
    }

    fn print(value: &u64) -> String {
        unit_of(u128::from(*value), &SIZES)
    }

    fn rank(value: &u64) -> u128 {
        u128::from(*value)
    }
}

const TIMES: [(&str, u128); 6] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

impl Kind for Time {
    type Value = Duration;
    const SHAPE: &'static str = "a number with ms, s, m or h, such as 500ms";

    fn parse(text: &str) -> Option<Duration> {
        let lower = text.trim().to_ascii_lowercase();
        let seconds = if lower.ends_with(|c: char| c.is_ascii_digit()) { lower + "s" } else { lower };
        let ns = u64::try_from(quantity(&seconds, &TIMES)?).ok()?;
        Some(Duration::from_nanos(ns))
    }

    fn print(value: &Duration) -> String {
        if value.is_zero() { "0s".to_owned() } else { unit_of(value.as_nanos(), &TIMES) }
    }

    fn rank(value: &Duration) -> u128 {
        value.as_nanos()
    }
}

impl Kind for Count {
    type Value = u32;
    const SHAPE: &'static str = "a whole number";

    fn parse(text: &str) -> Option<u32> {
        text.trim().parse().ok()
    }

    fn print(value: &u32) -> String {
        value.to_string()
    }

    fn rank(value: &u32) -> u128 {
        u128::from(*value)
    }
}

impl Kind for Percent {
    type Value = u32;
    const SHAPE: &'static str = "a whole number of percent, such as 90%";

    fn parse(text: &str) -> Option<u32> {
        let text = text.trim();
        text.strip_suffix('%').unwrap_or(text).trim_end().parse().ok()
    }

    fn print(value: &u32) -> String {
        format!("{value}%")
    }

    fn rank(value: &u32) -> u128 {
        u128::from(*value)
    }
}

impl Kind for Directory {
    type Value = PathBuf;
    const SHAPE: &'static str = "a path in UTF-8";

    fn parse(text: &str) -> Option<PathBuf> {
        (!text.contains('\0')).then(|| PathBuf::from(text))
    }

    fn print(value: &PathBuf) -> String {
        value.display().to_string()
    }
}

impl<T: Choice> Kind for Word<T> {
    type Value = T;
    const SHAPE: &'static str = "one of the words";

    fn parse(text: &str) -> Option<T> {
        T::read(&text.trim().to_ascii_lowercase().replace('-', "_"))
    }

    fn print(value: &T) -> String {
        value.word().to_owned()
    }

    fn words() -> Vec<&'static str> {
        T::ALL.iter().map(|value| value.word()).collect()
    }
}

/// Parses a number with one of these units; returns `None` unless it is an integer in the smallest unit.
fn quantity(text: &str, units: &[(&str, u128)]) -> Option<u128> {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = units.iter().find(|(name, _)| *name == unit)?.1;
    let (whole, fraction) = number.trim().split_once('.').unwrap_or((number.trim(), ""));
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    // More than twenty digits do not fit a u64; for fewer, the products here fit a u128.
    if whole.is_empty() || whole.len() > 20 || fraction.len() > 15 || !digits(whole) || !digits(fraction) {
        return None;
    }
    let whole = whole.parse::<u128>().ok()?.checked_mul(scale)?;
    let ten = 10u128.pow(u32::try_from(fraction.len()).ok()?);
    let part = if fraction.is_empty() { 0 } else { fraction.parse::<u128>().ok()?.checked_mul(scale)? };
    (part % ten == 0).then(|| whole.checked_add(part / ten))?
}

/// Prints a number in the largest unit that divides it.
fn unit_of(value: u128, units: &[(&str, u128)]) -> String {
    let (name, scale) = units.iter().find(|(_, scale)| value >= *scale && value % scale == 0).unwrap_or(&("", 1));
    format!("{}{name}", value / scale)
}

/// The values an option may have.
pub(super) enum Limits<V> {
    /// Every value of the kind.
    Any,
    /// From the first to the second, both allowed.
    Between(V, V),
    /// Powers of two among those.
    PowerOfTwo(V, V),
    /// Zero, or from the first to the second.
    ZeroOr(V, V),
}

impl<V> Limits<V> {
    pub(super) fn allows<K: Kind<Value = V>>(&self, value: &V) -> bool {
        let rank = K::rank(value);
        let within = |low: &V, high: &V| (K::rank(low)..=K::rank(high)).contains(&rank);
        match self {
            Self::Any => true,
            Self::Between(low, high) => within(low, high),
            Self::PowerOfTwo(low, high) => within(low, high) && rank.is_power_of_two(),
            Self::ZeroOr(low, high) => rank == 0 || within(low, high),
        }
    }

    /// Returns the limits in words, for the docs and for error messages.
    pub(super) fn say<K: Kind<Value = V>>(&self) -> String {
        match self {
            Self::Any if K::words().is_empty() => K::SHAPE.to_owned(),
            Self::Any => K::words().join(", "),
            Self::Between(low, high) => format!("{} to {}", K::print(low), K::print(high)),
            Self::PowerOfTwo(low, high) => format!("{} to {}, a power of two", K::print(low), K::print(high)),
            Self::ZeroOr(low, high) => format!("0, or {} to {}", K::print(low), K::print(high)),
        }
    }
}

/// A type with a name for each value.
pub(super) trait Choice: Copy + PartialEq + 'static {
    const ALL: &'static [Self];
    fn word(self) -> &'static str;
    /// `text` is lower-case, with underscores.
    fn read(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|value| value.word() == text)
    }
}

/// How a class of files is flushed: by a given method, or by the one that suits the directory.
///
/// ```
/// use seawall::options::FlushChoice;
/// use seawall_io::FlushMethod;
/// let choice = FlushChoice::Method(FlushMethod::ODirect);
/// assert_eq!((choice.to_string(), choice.method()), ("o_direct".into(), Some(FlushMethod::ODirect)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FlushChoice {
    /// The method measured for this directory, otherwise `o_direct` if direct I/O works, otherwise `fsync`.
    #[default]
    Auto,
    /// This method; if another one is in effect, that is reported.
    Method(FlushMethod),
}

impl FlushChoice {
    /// Returns the method, if the choice names one.
    #[must_use]
    pub fn method(self) -> Option<FlushMethod> {
        match self {
            Self::Auto => None,
            Self::Method(method) => Some(method),
        }
    }
}

impl Choice for FlushChoice {
    const ALL: &'static [Self] = &[
        Self::Auto,
        Self::Method(FlushMethod::Fsync),
        Self::Method(FlushMethod::ODsync),
        Self::Method(FlushMethod::ODirect),
        Self::Method(FlushMethod::ODirectNoFsync),
        Self::Method(FlushMethod::ODirectDsync),
    ];
    fn word(self) -> &'static str {
        self.method().map_or("auto", FlushMethod::name)
    }
    fn read(text: &str) -> Option<Self> {
        if text == "auto" { Some(Self::Auto) } else { text.parse().ok().map(Self::Method) }
    }
}

/// The protection of pages against writes torn by a power loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum TornPages {
    /// Pages are written twice: first to the doublewrite area, then to the data file.
    #[default]
    Doublewrite,
    /// No protection is needed: a page lies in one physical sector of the device, or is one atomic write
    /// (`RWF_ATOMIC`), so it is written whole. Refused unless that is proven.
    Atomic,
    /// No protection. Only for data that may be lost.
    Off,
    /// `atomic` if that is proven for the file, otherwise `doublewrite`.
    Auto,
}

impl Choice for TornPages {
    const ALL: &'static [Self] = &[Self::Doublewrite, Self::Atomic, Self::Off, Self::Auto];
    fn word(self) -> &'static str {
        match self {
            Self::Doublewrite => "doublewrite",
            Self::Atomic => "atomic",
            Self::Off => "off",
            Self::Auto => "auto",
        }
    }
}

/// What an opening does when the log has changes of a page that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum DamagedPages {
    /// The opening fails.
    #[default]
    Refuse,
    /// A page of a tree is given up: its rows are lost, and reading it fails from then on.
    Abandon,
}

impl Choice for DamagedPages {
    const ALL: &'static [Self] = &[Self::Refuse, Self::Abandon];
    fn word(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Abandon => "abandon",
        }
    }
}

/// How new files of the log are prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Preallocate {
    /// Filled with zeroes: a commit changes no file system metadata.
    #[default]
    Written,
    /// Only allocated: for copy-on-write file systems, which release written blocks at the first overwrite.
    Off,
}

impl Choice for Preallocate {
    const ALL: &'static [Self] = &[Self::Written, Self::Off];
    fn word(self) -> &'static str {
        match self {
            Self::Written => "written",
            Self::Off => "off",
        }
    }
}

/// Whether other processes can ask for backups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum ControlSocketChoice {
    /// They can, through a socket in the database's directory, with the owner's rights.
    #[default]
    On,
    /// They cannot: there is no socket.
    Off,
}

impl Choice for ControlSocketChoice {
    const ALL: &'static [Self] = &[Self::On, Self::Off];
    fn word(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

impl Choice for Durability {
    const ALL: &'static [Self] = &[Self::Flushed, Self::Written, Self::Deferred];
    fn word(self) -> &'static str {
        match self {
            Self::Flushed => "flushed",
            Self::Written => "written",
            Self::Deferred => "deferred",
        }
    }
    fn read(text: &str) -> Option<Self> {
        match text {
            "1" | "flushed" => Some(Self::Flushed),
            "2" | "written" => Some(Self::Written),
            "0" | "deferred" => Some(Self::Deferred),
            _ => None,
        }
    }
}

impl Choice for Backend {
    const ALL: &'static [Self] = &[Self::Auto, Self::IoUring, Self::Threads, Self::Sync];
    fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::IoUring => "io_uring",
            Self::Threads => "threads",
            Self::Sync => "sync",
        }
    }
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

macro_rules! shown {
    ($($type:ty),+) => {
        $(impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.word())
            }
        })+
    };
}
shown!(FlushChoice, TornPages, DamagedPages, Preallocate, ControlSocketChoice);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn people_write_quantities_in_many_ways() {
        assert_eq!(Size::parse("128M"), Some(128 << 20));
        assert_eq!(Size::parse(" 1.5 GiB "), Some(3 << 29));
        assert_eq!(Size::parse("4096"), Some(4096));
        assert_eq!(Size::parse("16kb"), Some(16384));
        assert_eq!(Size::parse("18446744073709551615"), Some(u64::MAX));
        for bad in ["", "ten", "-1", "5X", "0.3K", "1e3", ".5K", "18446744073709551616", "99999999T", "1 2"] {
            assert_eq!(Size::parse(bad), None, "{bad:?}");
        }
        assert_eq!(Time::parse("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(Time::parse("1"), Some(Duration::from_secs(1)));
        assert_eq!(Time::parse("0.5"), Some(Duration::from_millis(500)));
        assert_eq!(Time::parse("1.5h"), Some(Duration::from_secs(5400)));
        assert!(Time::parse("soon").is_none() && Time::parse("5 parsecs").is_none() && Time::parse("-1s").is_none());
        assert_eq!(Percent::parse("90 %"), Some(90));
        assert_eq!(Percent::parse("90"), Some(90));
        assert!(Percent::parse("9.5").is_none());
    }

    #[test]
    fn quantities_are_written_short() {
        assert_eq!(Size::print(&(128 << 20)), "128M");
        assert_eq!(Size::print(&1000), "1000");
        assert_eq!(Size::print(&0), "0");
        assert_eq!(Time::print(&Duration::from_millis(1500)), "1500ms");
        assert_eq!(Time::print(&Duration::from_secs(60)), "1m");
        assert_eq!(Time::print(&Duration::ZERO), "0s");
    }

    #[test]
    fn levels_have_their_old_numbers() {
        type Level = Word<Durability>;
        assert_eq!(Level::parse("1"), Some(Durability::Flushed));
        assert_eq!(Level::parse("2"), Some(Durability::Written));
        assert_eq!(Level::parse("0"), Some(Durability::Deferred));
        assert_eq!(Level::parse("Flushed"), Some(Durability::Flushed));
        assert_eq!(Level::parse("3"), None);
        assert_eq!(Word::<FlushChoice>::parse("O_DIRECT_NO_FSYNC").unwrap().to_string(), "o_direct_no_fsync");
        assert_eq!(Word::<FlushChoice>::words().len(), FlushMethod::ALL.len() + 1);
    }

    fn comes_back<K: Kind>()
    where
        K::Value: std::fmt::Debug,
    {
        for word in K::words() {
            assert_eq!(K::print(&K::parse(word).unwrap()), word);
        }
    }

    #[test]
    fn every_word_comes_back() {
        comes_back::<Word<FlushChoice>>();
        comes_back::<Word<TornPages>>();
        comes_back::<Word<DamagedPages>>();
        comes_back::<Word<Preallocate>>();
        comes_back::<Word<ControlSocketChoice>>();
        comes_back::<Word<Durability>>();
        comes_back::<Word<Backend>>();
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read(bytes in any::<u64>(), shift in 0u32..64, ns in any::<u64>(), unit in 0usize..6) {
            let size = bytes << shift;
            prop_assert_eq!(Size::parse(&Size::print(&size)), Some(size));
            let scale = TIMES[unit].1 as u64;
            let time = Duration::from_nanos(ns / scale * scale);
            prop_assert_eq!(Time::parse(&Time::print(&time)), Some(time));
        }

        #[test]
        fn garbage_is_refused_quietly(text in ".{0,24}") {
            let _ = (Size::parse(&text), Time::parse(&text), Percent::parse(&text), Count::parse(&text));
        }
    }
}
