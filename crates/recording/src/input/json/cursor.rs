//! Reads JSON from a slice that may be incomplete.
//!
//! Unused values are skipped by looking only at quotes and brackets. At the end of the slice, reading stops with
//! [`Stop::More`]: the caller reads more and starts the item again.

use std::borrow::Cow;

/// The maximum nesting depth of objects and arrays. PyTorch's is seven.
pub const MAX_DEPTH: usize = 256;

/// Why reading stopped.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// The slice ended.
    More,
    /// Something else was expected at this position of the slice.
    Bad(Box<(usize, String)>),
    /// A limit was reached at this position.
    Limit(Box<(usize, String)>),
}

pub type Parsed<T> = Result<T, Stop>;

/// The error for something expected that is not there.
pub fn missing<T>(at: usize, expected: &str) -> Parsed<T> {
    Err(Stop::Bad(Box::new((at, format!("expected {expected}")))))
}

#[derive(Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    /// A cursor at another position of the same slice.
    pub fn back_to(&self, at: usize) -> Self {
        Self { bytes: self.bytes, at }
    }

    /// The error for something unexpected at a position.
    pub fn bad<T>(&self, at: usize, expected: &str) -> Parsed<T> {
        let rest = &self.bytes[at.min(self.bytes.len())..];
        let length = rest.iter().position(|byte| b",]}\n".contains(byte)).unwrap_or(rest.len()).clamp(1, 24);
        let found = String::from_utf8_lossy(&rest[..length.min(rest.len())]).into_owned();
        Err(Stop::Bad(Box::new((at, format!("expected {expected}, found {}", found.trim())))))
    }

    /// The next byte that is not white space, without consuming it.
    #[inline]
    pub fn peek(&mut self) -> Parsed<u8> {
        while let Some(&byte) = self.bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Ok(byte);
            }
            self.at += 1;
        }
        Err(Stop::More)
    }

    #[inline]
    pub fn expect(&mut self, byte: u8, what: &str) -> Parsed<()> {
        if self.peek()? != byte {
            return self.bad(self.at, what);
        }
        self.at += 1;
        Ok(())
    }

    /// Moves to the next element and returns true, or consumes the `close` after the last one and returns false. `first` says
    /// whether this is the first element, which has no comma before it.
    #[inline]
    pub fn element(&mut self, first: bool, close: u8) -> Parsed<bool> {
        let next = self.peek()?;
        if next == close {
            self.at += 1;
            return Ok(false);
        }
        if !first {
            if next != b',' {
                return self.bad(self.at, if close == b']' { "\",\" or \"]\"" } else { "\",\" or \"}\"" });
            }
            self.at += 1;
        }
        Ok(true)
    }

    /// The next key of an object, with the cursor at its value; `None` after the last one.
    #[inline]
    pub fn key(&mut self, first: bool) -> Parsed<Option<Cow<'a, [u8]>>> {
        if !self.element(first, b'}')? {
            return Ok(None);
        }
        self.expect(b'"', "a key")?;
        let start = self.at;
        let (end, has_escapes) = string_end(self.bytes, start)?;
        let raw = &self.bytes[start..end - 1];
        self.at = end;
        self.expect(b':', "\":\"")?;
        Ok(Some(if has_escapes { Cow::Owned(unescape(raw).into_owned().into_bytes()) } else { Cow::Borrowed(raw) }))
    }

    /// The bytes between the quotes of a string, including escapes.
    #[inline]
    pub fn string(&mut self, what: &str) -> Parsed<&'a [u8]> {
        self.expect(b'"', what)?;
        let start = self.at;
        self.at = string_end(self.bytes, start)?.0;
        Ok(&self.bytes[start..self.at - 1])
    }

    #[inline]
    pub fn skip(&mut self) -> Parsed<()> {
        match self.peek()? {
            b'"' => self.at = string_end(self.bytes, self.at + 1)?.0,
            b'{' | b'[' => {
                self.at += 1;
                self.skip_to_end(1)?;
            }
            b',' | b':' | b'}' | b']' => return self.bad(self.at, "a value"),
            _ => {
                self.scalar("a value")?;
            }
        }
        Ok(())
    }

    /// Skips the rest of the surrounding `depth` objects and arrays.
    pub fn skip_to_end(&mut self, mut depth: usize) -> Parsed<()> {
        let mut at = self.at;
        loop {
            at = structure(self.bytes, at)?;
            match self.bytes[at] {
                b'"' => at = string_end(self.bytes, at + 1)?.0,
                b'{' | b'[' => {
                    depth += 1;
                    at += 1;
                    if depth > MAX_DEPTH {
                        let message = format!("objects and arrays are nested more than {MAX_DEPTH} deep");
                        return Err(Stop::Limit(Box::new((at, message))));
                    }
                }
                b'}' | b']' => {
                    let before = self.bytes[..at].iter().rfind(|byte| !byte.is_ascii_whitespace());
                    if before == Some(&b',') {
                        return self.bad(at, "a value after \",\"");
                    }
                    depth -= 1;
                    at += 1;
                    if depth == 0 {
                        self.at = at;
                        return Ok(());
                    }
                }
                // A slash, which starts a comment in other languages, or a control character.
                _ => return self.bad(at, "a value"),
            }
        }
    }

    #[inline]
    pub fn scalar(&mut self, what: &str) -> Parsed<&'a [u8]> {
        self.peek()?;
        let start = self.at;
        let rest = &self.bytes[start..];
        let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t' | b':' | b'"');
        let length = rest.iter().position(ends).ok_or(Stop::More)?;
        if length == 0 {
            return self.bad(start, what);
        }
        self.at += length;
        Ok(&rest[..length])
    }

    /// A 64-bit integer, signed or unsigned, as two's complement.
    #[inline]
    fn wide(&mut self, what: &str) -> Parsed<(bool, u64)> {
        self.peek()?;
        let start = self.at;
        let text = self.scalar(what)?;
        let (negative, digits) = text.strip_prefix(b"-").map_or((false, text), |digits| (true, digits));
        let mut value = 0u64;
        for &digit in digits {
            let next = digit.wrapping_sub(b'0');
            let sum = (next < 10).then(|| value.checked_mul(10)?.checked_add(u64::from(next))).flatten();
            match sum {
                Some(sum) => value = sum,
                None => return self.bad(start, what),
            }
        }
        if digits.is_empty() { self.bad(start, what) } else { Ok((negative, value)) }
    }

    pub fn integer(&mut self, what: &str) -> Parsed<i64> {
        self.peek()?;
        let start = self.at;
        let (negative, value) = self.wide(what)?;
        let signed = if negative { 0i64.checked_sub_unsigned(value) } else { i64::try_from(value).ok() };
        signed.map_or_else(|| self.bad(start, what), Ok)
    }

    /// An address: an integer, which may be written as a negative number.
    pub fn address(&mut self, what: &str) -> Parsed<u64> {
        let (negative, value) = self.wide(what)?;
        Ok(if negative { value.wrapping_neg() } else { value })
    }

    /// A time in microseconds, with or without a fraction, converted to nanoseconds.
    #[inline]
    pub fn microseconds(&mut self, what: &str) -> Parsed<i64> {
        self.peek()?;
        let start = self.at;
        let text = self.scalar(what)?;
        exact_nanoseconds(text).or_else(|| rounded_nanoseconds(text)).map_or_else(|| self.bad(start, what), Ok)
    }
}

/// Converts `123.456` to 123456; `None` for anything but plain digits.
#[inline]
fn exact_nanoseconds(text: &[u8]) -> Option<i64> {
    let (negative, digits) = text.strip_prefix(b"-").map_or((false, text), |digits| (true, digits));
    let mut value = 0i64;
    let mut fraction = None;
    for &byte in digits {
        match (byte, fraction) {
            (b'.', None) if value != 0 || digits[0] == b'0' => fraction = Some(0),
            (b'0'..=b'9', Some(3)) => return None,
            (b'0'..=b'9', _) => {
                value = value.checked_mul(10)?.checked_add(i64::from(byte - b'0'))?;
                fraction = fraction.map(|count| count + 1);
            }
            _ => return None,
        }
    }
    let scale = [1000, 100, 10, 1][fraction.unwrap_or(0)];
    let value = value.checked_mul(scale)?;
    (!digits.is_empty()).then_some(if negative { -value } else { value })
}

/// Numbers with an exponent or with many digits: rounded.
fn rounded_nanoseconds(text: &[u8]) -> Option<i64> {
    let starts_like_a_number = matches!(text, [b'0'..=b'9', ..] | [b'-', b'0'..=b'9', ..]);
    let text = std::str::from_utf8(text).ok().filter(|_| starts_like_a_number)?;
    let nanoseconds = text.parse::<f64>().ok()? * 1000.0;
    (nanoseconds.abs() < 9e18).then(|| nanoseconds.round() as i64)
}

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// The high bit of every byte that equals `byte`. Bytes after the first match may be marked incorrectly.
#[inline]
fn marks(word: u64, byte: u8) -> u64 {
    let difference = word ^ (LOW * u64::from(byte));
    difference.wrapping_sub(LOW) & !difference & HIGH
}

/// The first position from `at` on whose byte is `wanted`, eight bytes at a time; `mark` marks candidates in a word.
#[inline]
fn find(bytes: &[u8], mut at: usize, mark: impl Fn(u64) -> u64, wanted: impl Fn(u8) -> bool) -> Parsed<usize> {
    while let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let marked = mark(u64::from_le_bytes(*word));
        if marked != 0 {
            return Ok(at + (marked.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    let rest = bytes.get(at..).unwrap_or(&[]);
    rest.iter().position(|&byte| wanted(byte)).map(|found| at + found).ok_or(Stop::More)
}

/// The position after the closing quote of a string whose contents start at `at`, and whether it has escapes.
#[inline]
fn string_end(bytes: &[u8], mut at: usize) -> Parsed<(usize, bool)> {
    let mut has_escapes = false;
    loop {
        at = find(bytes, at, |word| marks(word, b'"') | marks(word, b'\\'), |byte| matches!(byte, b'"' | b'\\'))?;
        if bytes[at] == b'"' {
            return Ok((at + 1, has_escapes));
        }
        has_escapes = true;
        at += 2;
    }
}

/// The next quote, bracket or slash from `at` on; or byte 0x0f, which does not occur between them.
#[inline]
fn structure(bytes: &[u8], at: usize) -> Parsed<usize> {
    // Setting bit 0x20 turns [ and ] into { and }, and 0x0f into a slash.
    let mark = |word: u64| {
        let lower = word | (LOW * 0x20);
        marks(word, b'"') | marks(lower, b'{') | marks(lower, b'}') | marks(lower, b'/')
    };
    find(bytes, at, mark, |byte| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']' | b'/' | 0x0f))
}

/// The text of a string. Invalid UTF-8 and invalid escapes become U+FFFD.
pub fn unescape(raw: &[u8]) -> Cow<'_, str> {
    if !raw.contains(&b'\\') {
        return String::from_utf8_lossy(raw);
    }
    let text = String::from_utf8_lossy(raw);
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(next) = rest.next() {
        if next != '\\' {
            plain.push(next);
            continue;
        }
        plain.push(match rest.next() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('u') => unicode(&mut rest),
            Some(same @ ('"' | '\\' | '/')) => same,
            _ => char::REPLACEMENT_CHARACTER,
        });
    }
    Cow::Owned(plain)
}

/// The character after `\u`; surrogate pairs are combined.
fn unicode(rest: &mut std::str::Chars<'_>) -> char {
    let unit = |rest: &mut std::str::Chars<'_>| u32::from_str_radix(rest.as_str().get(..4)?, 16).ok();
    let Some(first) = unit(rest) else { return char::REPLACEMENT_CHARACTER };
    rest.nth(3);
    if !(0xd800..0xdc00).contains(&first) {
        return char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER);
    }
    let mut ahead = rest.clone();
    let second = if (ahead.next(), ahead.next()) == (Some('\\'), Some('u')) { unit(&mut ahead) } else { None };
    match second {
        Some(second @ 0xdc00..0xe000) => {
            ahead.nth(3);
            *rest = ahead;
            char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00))
                .unwrap_or(char::REPLACEMENT_CHARACTER)
        }
        _ => char::REPLACEMENT_CHARACTER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(text: &str) -> Parsed<usize> {
        let mut cursor = Cursor::new(text.as_bytes());
        cursor.skip().map(|()| cursor.at())
    }

    #[test]
    fn values_are_skipped_to_their_end() {
        for value in [r#""a\"]}b""#, r#"{"a": [1, {"b": "]}\\"}], "c": null}"#, "[[], [[1]], \"x\"]", "-1.5e3", "true"]
        {
            let text = format!("{value}, 1");
            assert_eq!(skipped(&text), Ok(value.len()), "{value}");
            for cut in 1..value.len() {
                assert_eq!(skipped(&text[..cut]), Err(Stop::More), "{value} cut at {cut}");
            }
        }
        let deep = "[".repeat(MAX_DEPTH + 1);
        assert!(matches!(skipped(&deep), Err(Stop::Limit(_))));
        for bad in [", 1", "[1,]", "{\"a\": 1, }", "[/* no */ 1]", "{\"a\": // no\n 1}"] {
            assert!(matches!(skipped(bad), Err(Stop::Bad(_))), "{bad}");
        }
        assert_eq!(skipped("[\"a/b, \", 1]"), Ok(12), "within a string");
    }

    #[test]
    fn structure_is_found_wherever_it_lies() {
        for byte in 0u8..=255 {
            for at in 0..20 {
                let mut bytes = [b'0'; 21];
                bytes[at] = byte;
                let expected = if b"\"{}[]/\x0f".contains(&byte) { Ok(at) } else { Err(Stop::More) };
                assert_eq!(structure(&bytes, 0), expected, "{byte} at {at}");
            }
        }
    }

    #[test]
    fn times_are_exact() {
        let read = |text: &str| Cursor::new(format!("{text},").as_bytes()).microseconds("a time").ok();
        assert_eq!(read("4373655989342.809"), Some(4_373_655_989_342_809));
        assert_eq!(read("1795231228354611"), Some(1_795_231_228_354_611_000));
        assert_eq!(read("-3.5"), Some(-3_500));
        assert_eq!(read("0.001"), Some(1));
        assert_eq!(read("1.25e3"), Some(1_250_000));
        assert_eq!(read("1.23456"), Some(1_235));
        for bad in ["NaN", "Infinity", "-Infinity", "\"1\"", "null", "1e300", "-", "1-2", ".5"] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn integers_are_exact_or_refused() {
        let read = |text: &str| Cursor::new(format!("{text} ").as_bytes()).integer("an integer").ok();
        assert_eq!(read("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(read("9223372036854775807"), Some(i64::MAX));
        for bad in ["9223372036854775808", "1.0", "1e3", "NaN", "\"1\"", "true", "-", "{}"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(Cursor::new(b"-1 ").address("an address").ok(), Some(u64::MAX));
    }

    #[test]
    fn escapes_are_resolved() {
        assert_eq!(unescape(br#"a\"b\\c\u00e9\ud83d\ude00"#), "a\"b\\c\u{e9}\u{1f600}");
        assert_eq!(unescape(br"\ud83d \x \u12"), "\u{fffd} \u{fffd} \u{fffd}12");
        assert_eq!(unescape(b"caf\xe9"), "caf\u{fffd}");
    }
}
