//! The part of TOML that `seawall.toml` needs: values and their paths. The crate `toml_parser` has the
//! grammar; this module builds the values, so that no other crate is needed for a few lines of options.
//!
//! 1. The whole file is parsed, including parts that are then refused or ignored: a file that is not TOML is
//!    never used in part.
//! 2. A value keeps its path: `[log]`, `log.dir = ` and `log = { dir = ` are the same.

use std::borrow::Cow;
use std::collections::HashSet;
use toml_parser::decoder::{Encoding, ScalarKind};
use toml_parser::parser::{Event, EventKind, RecursionGuard, ValidateWhitespace, parse_document};
use toml_parser::{ParseError, Source, Span};

/// Deeper nesting is refused.
const DEPTH_MAX: u32 = 80;

/// A value in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// A string without its quotes, or a number.
    Text(String),
    /// A value that no option can have, as written: a boolean, a date, an array.
    Other(String),
}

/// Parses a file. Returns all its values in order, each with its path.
///
/// # Errors
/// Why this is not TOML, and in which line.
pub(super) fn parse(text: &str) -> Result<Vec<(Vec<String>, Value)>, String> {
    let source = Source::new(text);
    let tokens = source.lex().into_vec();
    let mut events: Vec<Event> = Vec::with_capacity(tokens.len());
    let mut error: Option<ParseError> = None;
    let mut checked = ValidateWhitespace::new(&mut events, source);
    parse_document(&tokens, &mut RecursionGuard::new(&mut checked, DEPTH_MAX), &mut error);
    let mut document = Document::new(source, error);
    for event in &events {
        document.take(event);
        if document.error.is_some() {
            break;
        }
    }
    match document.error {
        None => Ok(document.values),
        Some(error) => Err(described(text, &error)),
    }
}

fn described(text: &str, error: &ParseError) -> String {
    let place = error.unexpected().or(error.context()).map_or(text.len(), |span| span.start());
    let before = text.get(..place).unwrap_or(text);
    let line = before.matches('\n').count();
    let shown = text.lines().nth(line).unwrap_or_default().trim();
    format!("line {}: {}: {shown:?}", line + 1, error.description())
}

struct Document<'a> {
    source: Source<'a>,
    error: Option<ParseError>,
    values: Vec<(Vec<String>, Value)>,
    /// The table headers read so far.
    headers: HashSet<Vec<String>>,
    /// The path of the current table header.
    table: Vec<String>,
    /// Keys since the last header, or in inline tables; the end of an inline table removes its keys.
    keys: Vec<String>,
    /// How many keys there were when each inline table began.
    inline: Vec<usize>,
    /// The number of open arrays, and where the outermost begins.
    arrays: usize,
    array_begin: usize,
}

impl<'a> Document<'a> {
    fn new(source: Source<'a>, error: Option<ParseError>) -> Self {
        Self {
            source,
            error,
            values: Vec::new(),
            headers: HashSet::new(),
            table: Vec::new(),
            keys: Vec::new(),
            inline: Vec::new(),
            arrays: 0,
            array_begin: 0,
        }
    }

    fn fail(&mut self, why: &'static str, at: Span) {
        self.error.get_or_insert(ParseError::new(why).with_unexpected(at));
    }

    fn take(&mut self, event: &Event) {
        let span = event.span();
        match event.kind() {
            EventKind::ArrayOpen => {
                if self.arrays == 0 {
                    self.array_begin = span.start();
                }
                self.arrays += 1;
            }
            EventKind::ArrayClose => {
                self.arrays = self.arrays.saturating_sub(1);
                if self.arrays == 0 {
                    let text = self.source.input().get(self.array_begin..span.end()).unwrap_or_default();
                    self.set(Value::Other(text.to_owned()), span);
                }
            }
            EventKind::Scalar => {
                let value = self.scalar(span, event.encoding());
                if self.arrays == 0 {
                    self.set(value, span);
                }
            }
            EventKind::SimpleKey => {
                let key = self.key(span, event.encoding());
                if self.arrays == 0 {
                    self.keys.push(key);
                }
            }
            _ if self.arrays > 0 => {}
            EventKind::StdTableOpen | EventKind::ArrayTableOpen => {
                self.keys.clear();
            }
            EventKind::StdTableClose | EventKind::ArrayTableClose => {
                self.table = std::mem::take(&mut self.keys);
                if event.kind() == EventKind::ArrayTableClose {
                    self.values.push((self.table.clone(), Value::Other("an array of tables".to_owned())));
                } else if !self.headers.insert(self.table.clone()) {
                    self.fail("this table is there twice", span);
                }
            }
            EventKind::InlineTableOpen => self.inline.push(self.keys.len()),
            EventKind::InlineTableClose => {
                let depth = self.inline.pop().unwrap_or_default();
                self.keys.truncate(depth);
                self.end_of_value();
            }
            EventKind::KeySep
            | EventKind::KeyValSep
            | EventKind::ValueSep
            | EventKind::Whitespace
            | EventKind::Comment
            | EventKind::Newline
            | EventKind::Error => {}
        }
    }

    /// Drops the keys of the finished value, so that the next key begins where it began.
    fn end_of_value(&mut self) {
        self.keys.truncate(self.inline.last().copied().unwrap_or_default());
    }

    fn set(&mut self, value: Value, at: Span) {
        let path: Vec<String> = self.table.iter().chain(&self.keys).cloned().collect();
        if self.values.iter().any(|(known, _)| *known == path) {
            self.fail("this key is there twice", at);
        }
        self.values.push((path, value));
        self.end_of_value();
    }

    fn key(&mut self, span: Span, encoding: Option<Encoding>) -> String {
        let mut out = Cow::Borrowed("");
        if let Some(raw) = self.source.get(span) {
            toml_parser::Raw::new_unchecked(raw.as_str(), encoding, span).decode_key(&mut out, &mut self.error);
        }
        out.into_owned()
    }

    fn scalar(&mut self, span: Span, encoding: Option<Encoding>) -> Value {
        let Some(raw) = self.source.get(span) else { return Value::Other(String::new()) };
        let mut out = Cow::Borrowed("");
        let kind =
            toml_parser::Raw::new_unchecked(raw.as_str(), encoding, span).decode_scalar(&mut out, &mut self.error);
        match kind {
            ScalarKind::String => Value::Text(out.into_owned()),
            ScalarKind::Integer(radix) => match i64::from_str_radix(&out, radix.value()) {
                Ok(number) => Value::Text(number.to_string()),
                Err(_) => {
                    self.fail("this number does not fit into 64 bits", span);
                    Value::Other(out.into_owned())
                }
            },
            ScalarKind::Float => match out.parse::<f64>() {
                Ok(number) => Value::Text(number.to_string()),
                Err(_) => {
                    self.fail("invalid float", span);
                    Value::Other(out.into_owned())
                }
            },
            ScalarKind::Boolean(_) | ScalarKind::DateTime => Value::Other(out.into_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<(String, Value)> {
        parse(text).unwrap().into_iter().map(|(path, value)| (path.join("/"), value)).collect()
    }

    #[test]
    fn a_value_has_one_path_however_it_is_written() {
        let wanted =
            [("log/dir".to_owned(), Value::Text("x".to_owned())), ("log/n".to_owned(), Value::Text("1000".to_owned()))];
        for text in [
            "[log]\ndir = 'x'\nn = 1_000\n",
            "log.dir = \"x\" # so\nlog.n = 0x3e8",
            "log = { dir = \"\\u0078\", n = +1000 }",
            "\"log\".'dir' = \"\"\"\nx\"\"\"\r\n[log]\nn = 0b1111101000\n",
        ] {
            assert_eq!(paths(text), wanted, "{text}");
        }
        assert_eq!(
            paths("a = { b = { c = 1 }, d = 2 }\ne = 3").iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(),
            ["a/b/c", "a/d", "e"]
        );
    }

    #[test]
    fn what_no_option_can_be_keeps_its_text() {
        for text in ["true", "1979-05-27", "[ 1, [ 2, { a = 1 } ] ]", "[]"] {
            assert_eq!(
                paths(&format!("a = {text}\nb = 1.5")),
                [("a".to_owned(), Value::Other(text.to_owned())), ("b".to_owned(), Value::Text("1.5".to_owned()))]
            );
        }
        assert!(matches!(&paths("[[log]]\ndir = 1")[0], (path, Value::Other(_)) if path == "log"));
    }

    #[test]
    fn what_is_no_toml_is_refused_with_its_line() {
        for (text, wants) in [
            ("a = 1\nb = ", "line 2: "),
            ("a = 1\n\nb = 'x\nc = 2", "line 3: "),
            ("a = 1\na = 2", "line 2: this key is there twice"),
            ("[a]\nb = 1\n[c]\n[a]\n", "line 4: this table is there twice"),
            ("a = 99999999999999999999", "line 1: this number does not fit"),
            ("a = \"\\q\"", "line 1: "),
            ("a 1", "line 1: "),
            ("[a", "line 1: "),
            ("a = 1 b = 2", "line 1: "),
            ("a = tru", "line 1: "),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.starts_with(wants), "{text:?}: {why}");
        }
        let deep = format!("a = {}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(parse(&deep).is_err());
    }
}
