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

/// Plain text without Markdown markup, in which GitHub finds no mentions and no links: after `@`, and inside anything that
/// looks like an address, there is a zero-width space.
pub(crate) fn escape(text: &str) -> String {
    let text = safe(text);
    let mut escaped = String::with_capacity(text.len());
    for (at, next) in text.char_indices() {
        if matches!(next, '\\' | '`' | '*' | '_' | '<' | '>' | '|' | '[' | ']' | '#') {
            escaped.push('\\');
        }
        escaped.push(next);
        let (before, behind) = text.split_at(at + next.len_utf8());
        let begins_address = (next == ':' && behind.starts_with("//"))
            || (matches!(next, 'w' | 'W') && behind.starts_with('.') && ends_www(before));
        if begins_address || (next == '@' && behind.starts_with(|name: char| name.is_alphanumeric())) {
            escaped.push_str("&#8203;");
        }
    }
    escaped
}

pub(crate) fn ends_www(text: &str) -> bool {
    text.len().checked_sub(3).and_then(|from| text.get(from..)).is_some_and(|end| end.eq_ignore_ascii_case("www"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_break_the_table() {
        assert_eq!(cell("a|b"), "`a\\|b`");
        assert_eq!(code("a`b"), "``a`b``");
        assert_eq!(code("`a"), "`` `a ``");
        assert_eq!(escape("<b> *x*"), "\\<b\\> \\*x\\*");
    }

    #[test]
    fn nobody_is_mentioned_and_nothing_linked() {
        assert_eq!(escape("@octocat"), "@&#8203;octocat");
        assert_eq!(escape("see https://a.example"), "see https:&#8203;//a.example");
        assert_eq!(escape("WWW.a.example"), "WWW&#8203;.a.example");
        assert_eq!(escape("step: 4 @ 7"), "step: 4 @ 7");
    }
}
