//! The text formats of protocol 0: numbers and escaped strings on lines.

use crate::error::Error;

pub fn integer(line: &[u8]) -> Option<i128> {
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

/// A float as Python's `repr` writes it.
pub fn float(line: &[u8]) -> Option<f64> {
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

/// Text with invalid UTF-8 replaced.
pub fn lossy(line: &[u8]) -> String {
    String::from_utf8_lossy(line).into_owned()
}

/// The error for a line that does not match its opcode.
pub fn bad(at: u64, expected: &str, line: &[u8]) -> Error {
    let shown: String = String::from_utf8_lossy(line).chars().take(40).collect();
    Error::malformed(at, format!("expected {expected}, found {shown:?}"))
}

/// Decodes Python's `raw-unicode-escape`: `\uXXXX` and `\UXXXXXXXX`; everything else is Latin-1.
pub fn unescape_unicode(line: &[u8]) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((&byte, after)) = rest.split_first() {
        let digits = match (byte, after.first()) {
            (b'\\', Some(b'u')) => 4,
            (b'\\', Some(b'U')) => 8,
            _ => 0,
        };
        if digits > 0
            && let Some(code) = after.get(1..=digits).and_then(hexadecimal)
        {
            text.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            rest = &after[1 + digits..];
        } else {
            text.push(char::from(byte));
            rest = after;
        }
    }
    text
}

/// Decodes Python 2's `repr` of a byte string: quotes and backslash escapes.
pub fn unescape_repr(line: &[u8]) -> Option<String> {
    let quote = *line.first().filter(|&&byte| byte == b'\'' || byte == b'"')?;
    let inner = line.get(1..)?.strip_suffix(&[quote])?;
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        let (&escape, after) = rest.split_first()?;
        rest = after;
        match escape {
            b'n' => bytes.push(b'\n'),
            b'r' => bytes.push(b'\r'),
            b't' => bytes.push(b'\t'),
            b'x' => {
                bytes.push(hexadecimal(rest.get(..2)?)? as u8);
                rest = &rest[2..];
            }
            other => bytes.push(other),
        }
    }
    Some(lossy(&bytes))
}

fn hexadecimal(digits: &[u8]) -> Option<u32> {
    let digits =
        std::str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_undone() {
        assert_eq!(unescape_unicode(b"a\\u00e9\\U0001f600\\n\xe9"), "aé😀\\né");
        assert_eq!(unescape_unicode(b"\\u12"), "\\u12");
        assert_eq!(unescape_repr(b"'it\\'s \\x41\\n'").as_deref(), Some("it's A\n"));
        assert_eq!(unescape_repr(b"'open"), None);
        assert_eq!(unescape_repr(b"'\\x4'"), None);
    }
}
