//! Names and sentences as Markdown for issues and pull requests, with all markup in names escaped.

use super::notes::safe;

/// A code span in a table cell, where bars must be escaped even inside code.
pub(crate) fn cell(text: &str) -> String {
    code(&text.replace('|', "\\|"))
}

/// A code span: the fence is longer than any run of backticks inside.
pub(crate) fn code(text: &str) -> String {
    let text = safe(text);
    let longest = text.split(|next| next != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

/// Plain text without Markdown markup, in which GitHub finds no mentions, references or links: after `@`, and inside anything that
/// looks like an address, an issue or a commit, there is a zero-width space.
pub(crate) fn escape(text: &str) -> String {
    let text = safe(text);
    let mut escaped = String::with_capacity(text.len());
    for (at, next) in text.char_indices() {
        if matches!(next, '\\' | '`' | '*' | '_' | '~' | '<' | '>' | '|' | '[' | ']' | '#') {
            escaped.push('\\');
        }
        escaped.push(next);
        let (before, behind) = text.split_at(at + next.len_utf8());
        let begins_address = (next == ':' && behind.starts_with("//"))
            || (matches!(next, 'w' | 'W') && behind.starts_with('.') && ends_www(before));
        let is_followed_by = |wanted: fn(char) -> bool| behind.starts_with(wanted);
        let begins_reference = match next {
            '@' => is_followed_by(char::is_alphanumeric),
            '#' => is_followed_by(|digit| digit.is_ascii_digit()),
            '-' => is_followed_by(|digit| digit.is_ascii_digit()) && ends_with_letters(&before[..at], "gh"),
            _ => begins_commit(&text, at),
        };
        if begins_address || begins_reference {
            escaped.push_str("&#8203;");
        }
    }
    escaped
}

pub(crate) fn ends_www(text: &str) -> bool {
    ends_with_letters(text, "www")
}

fn ends_with_letters(text: &str, letters: &str) -> bool {
    let from = text.len().checked_sub(letters.len());
    from.and_then(|from| text.get(from..)).is_some_and(|end| end.eq_ignore_ascii_case(letters))
}

/// Whether a word that may be the hash of a commit begins at a byte of a text.
fn begins_commit(text: &str, at: usize) -> bool {
    let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric();
    let (before, word) = text.as_bytes().split_at(at);
    let word = &word[..word.iter().position(|byte| !is_of_word(byte)).unwrap_or(word.len())];
    (7..=40).contains(&word.len())
        && !before.last().is_some_and(is_of_word)
        && word.iter().all(u8::is_ascii_hexdigit)
        && word.iter().any(u8::is_ascii_alphabetic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_break_the_table() {
        assert_eq!(cell("a|b"), "`a\\|b`");
        assert_eq!(code("a`b"), "``a`b``");
        assert_eq!(code("`a"), "`` `a ``");
        assert_eq!(escape("<b> *x* ~~y~~"), "\\<b\\> \\*x\\* \\~\\~y\\~\\~");
    }

    #[test]
    fn nobody_is_mentioned_and_nothing_linked() {
        assert_eq!(escape("@octocat"), "@&#8203;octocat");
        assert_eq!(escape("see https://a.example"), "see https:&#8203;//a.example");
        assert_eq!(escape("WWW.a.example"), "WWW&#8203;.a.example");
        assert_eq!(escape("step: 4 @ 7"), "step: 4 @ 7");
        assert_eq!(escape("org/repo#1 and GH-12"), "org/repo\\#&#8203;1 and GH-&#8203;12");
        assert_eq!(escape("a1b2c3d, 12345678, decade"), "a&#8203;1b2c3d, 12345678, decade");
    }
}
