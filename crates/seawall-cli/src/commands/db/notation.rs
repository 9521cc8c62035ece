//! How keys and values are written: text with escapes, or hexadecimal digits.

/// How keys and values are written.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct Notation {
    /// Read and print keys and values as hexadecimal digits
    #[arg(long)]
    pub(crate) hex: bool,
}

impl Notation {
    /// Parses bytes from text.
    pub(crate) fn read(self, text: &str) -> Result<Vec<u8>, String> {
        if self.hex { from_hex(text) } else { unescape(text) }
    }

    /// Formats bytes for people, and for [`Notation::read`].
    pub(crate) fn show(self, bytes: &[u8]) -> String {
        if self.hex { bytes.iter().map(|byte| format!("{byte:02x}")).collect() } else { escape(bytes) }
    }
}

fn from_hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    let byte = |pair: &[char]| Some((pair[0].to_digit(16)? << 4 | pair.get(1)?.to_digit(16)?) as u8);
    let bytes = digits.chunks(2).map(byte).collect::<Option<_>>();
    bytes.ok_or_else(|| {
        format!("{text:?} is not a sequence of bytes: write two hexadecimal digits for each, such as 00ff7a")
    })
}

/// Formats bytes as text. Printable characters stay, so that text in any script is readable; the rest
/// is escaped byte by byte.
pub(super) fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' | '\n' | '\t' | '\r' => out.extend(c.escape_default()),
                c if c.is_control() => c.to_string().bytes().for_each(|byte| out += &format!("\\x{byte:02x}")),
                c => out.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| out += &format!("\\x{byte:02x}"));
    }
    out
}

fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let escaped = &rest[at + 1..];
        let found = match escaped.bytes().next() {
            Some(b'n') => Some((b'\n', 1)),
            Some(b't') => Some((b'\t', 1)),
            Some(b'r') => Some((b'\r', 1)),
            Some(b'0') => Some((0, 1)),
            // The engine's messages escape the quotation marks too.
            Some(same @ (b'\\' | b'"' | b'\'')) => Some((same, 1)),
            Some(b'x') => escaped.get(1..3).and_then(|digits| Some((*from_hex(digits).ok()?.first()?, 3))),
            _ => None,
        };
        let Some((byte, len)) = found else {
            return Err(format!(
                "{text:?} has a backslash that means nothing: write \\\\ for one, or \\n, \\t, \\r, \\0, \\x7f, \
                 or use --hex"
            ));
        };
        out.push(byte);
        rest = &escaped[len..];
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_read() {
        let every: Vec<u8> = (0..=255).collect();
        for bytes in [&every[..], b"", b"plain", b"a\\x41", "grüße\u{7}".as_bytes(), b"\xc3", b"\xe2\x82"] {
            for hex in [false, true] {
                let notation = Notation { hex };
                assert_eq!(notation.read(&notation.show(bytes)).as_deref(), Ok(bytes), "{}", notation.show(bytes));
            }
            assert_eq!(unescape(&bytes.escape_ascii().to_string()).as_deref(), Ok(bytes), "from a message");
        }
        assert_eq!(escape("grüße\n".as_bytes()), "grüße\\n");
        assert_eq!(unescape("\\x41\\0"), Ok(b"A\0".to_vec()));
    }

    #[test]
    fn what_means_nothing_is_refused() {
        for text in ["\\", "\\q", "\\x", "\\x4", "\\xg0", "a\\x\u{e9}", "\\x+1"] {
            assert!(unescape(text).unwrap_err().contains("backslash"), "{text}");
        }
        for text in ["0", "0g", "é0"] {
            assert!(from_hex(text).unwrap_err().contains("hexadecimal"), "{text}");
        }
        assert_eq!(from_hex("00 FF 7a"), Ok(vec![0, 255, 0x7a]));
    }
}
