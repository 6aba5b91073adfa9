//! Just enough of Python's syntax to edit a statement: strings, comments, brackets, and indentation.

use std::ops::Range;

/// A file as statements.
pub(super) struct Code<'t> {
    pub text: &'t str,
    /// The text with each byte of a string replaced by `'`, and each byte of a comment by a space.
    pub mask: String,
    statements: Vec<Statement>,
}

/// A statement on a line of its own, or the first line of a compound statement: everything up to the end of a line outside of brackets.
#[derive(Clone, Debug)]
struct Statement {
    /// Bytes from its first character to the end of its last line, which it excludes.
    range: Range<usize>,
    /// Bytes of whitespace before it.
    indent: usize,
    /// Its lines, counted from 1.
    lines: Range<u64>,
}

/// Words that start a statement with a block of its own, or that belong to the statement below.
const COMPOUND: [&str; 14] = [
    "async", "class", "def", "elif", "else", "except", "finally", "for", "if", "match", "case", "try", "while", "with",
];

impl<'t> Code<'t> {
    /// # Errors
    /// If a string or a bracket does not end, or if lines are indented by a mixture of tabs and spaces.
    pub fn of(text: &'t str) -> Result<Self, String> {
        let bytes = text.as_bytes();
        let mut mask = bytes.to_vec();
        let mut closing: Vec<u8> = Vec::new();
        let mut statements: Vec<Statement> = Vec::new();
        let (mut at, mut line) = (0, 1);
        // The first byte of the current statement, and its line.
        let mut first: Option<(usize, u64)> = None;
        while at <= bytes.len() {
            let byte = bytes.get(at).copied();
            match byte {
                None | Some(b'\n') => {
                    let is_continued = text[..at].trim_end_matches('\r').ends_with('\\') && mask[at - 1] != b' ';
                    if closing.is_empty()
                        && !is_continued
                        && let Some((start, begins)) = first.take()
                    {
                        let indent = text[..start].bytes().rev().take_while(|byte| b" \t".contains(byte)).count();
                        let end = start + text[start..at].trim_end_matches('\r').len();
                        statements.push(Statement { range: start..end, indent, lines: begins..line + 1 });
                    }
                    line += 1;
                }
                Some(b'#') => {
                    let end = text[at..].find(['\r', '\n']).map_or(bytes.len(), |length| at + length);
                    mask[at..end].fill(b' ');
                    at = end;
                    continue;
                }
                Some(quote @ (b'"' | b'\'')) => {
                    first.get_or_insert((at, line));
                    let end = string_end(bytes, at, quote)
                        .ok_or_else(|| format!("line {line}: expected the end of a string"))?;
                    mask[at..end].fill(b'\'');
                    line += text[at..end].matches('\n').count() as u64;
                    at = end;
                    continue;
                }
                Some(byte) => {
                    match byte {
                        b'(' => closing.push(b')'),
                        b'[' => closing.push(b']'),
                        b'{' => closing.push(b'}'),
                        b')' | b']' | b'}' if closing.pop() != Some(byte) => {
                            return Err(format!("line {line}: expected matching brackets, found {}", char::from(byte)));
                        }
                        _ => {}
                    }
                    if !byte.is_ascii_whitespace() {
                        first.get_or_insert((at, line));
                    }
                }
            }
            at += 1;
        }
        if !closing.is_empty() || first.is_some() {
            return Err("expected the end of the last statement, found the end of the file".to_owned());
        }
        // Whole strings and comments are replaced, so that this stays UTF-8.
        let mask = String::from_utf8(mask).map_err(|error| error.to_string())?;
        let code = Self { text, mask, statements };
        let is_alike = |pair: &[Statement]| {
            let [one, other] = [&pair[0], &pair[1]].map(|statement| code.indent_of(statement));
            one.starts_with(other) || other.starts_with(one)
        };
        if let Some(pair) = code.statements.windows(2).find(|pair| !is_alike(pair)) {
            return Err(format!("line {}: expected the same whitespace as in the line above", pair[1].lines.start));
        }
        Ok(code)
    }

    pub fn len(&self) -> usize {
        self.statements.len()
    }

    /// The statement with a line.
    pub fn at_line(&self, line: u64) -> Option<usize> {
        self.statements.iter().position(|statement| statement.lines.contains(&line))
    }

    /// The statement with a byte.
    pub fn at_byte(&self, byte: usize) -> Option<usize> {
        self.statements.iter().position(|statement| statement.range.contains(&byte))
    }

    /// The lines of a statement, counted from 1.
    pub fn lines(&self, statement: usize) -> Range<u64> {
        self.statements[statement].lines.clone()
    }

    /// The bytes of a statement.
    pub fn range(&self, statement: usize) -> Range<usize> {
        self.statements[statement].range.clone()
    }

    /// The bytes of the lines of a statement, with the end of the last one.
    pub fn whole_lines(&self, statement: usize) -> Range<usize> {
        let Statement { range, indent, .. } = &self.statements[statement];
        let end = self.text[range.end..].find('\n').map_or(self.text.len(), |length| range.end + length + 1);
        range.start - indent..end
    }

    /// A statement without the contents of strings and comments.
    pub fn mask(&self, statement: usize) -> &str {
        self.mask[self.range(statement)].trim_end()
    }

    pub fn indent(&self, statement: usize) -> &str {
        self.indent_of(&self.statements[statement])
    }

    fn indent_of(&self, statement: &Statement) -> &str {
        &self.text[statement.range.start - statement.indent..statement.range.start]
    }

    /// A statement for a message.
    pub fn shown(&self, statement: usize) -> String {
        first_line(&self.text[self.range(statement)])
    }

    /// The whitespace that this file adds for a block inside another one.
    pub fn unit(&self) -> &str {
        (0..self.len()).map(|statement| self.indent(statement)).find(|indent| !indent.is_empty()).unwrap_or("    ")
    }

    /// How the lines of a statement end; where the file ends without a newline, how its first line does.
    pub fn line_end(&self, statement: usize) -> &'static str {
        let lines = &self.text[self.whole_lines(statement)];
        let line = lines.find('\n').map_or(self.text, |end| &lines[..=end]);
        let end = line.find('\n').unwrap_or(0);
        if line[..end].ends_with('\r') { "\r\n" } else { "\n" }
    }

    /// The compound statement whose block contains a statement; `None` at the level of the module.
    pub fn parent(&self, statement: usize) -> Option<usize> {
        let indent = self.statements[statement].indent;
        self.statements[..statement].iter().rposition(|before| before.indent < indent)
    }

    /// The function or class whose body contains a statement.
    pub fn scope(&self, statement: usize) -> Option<usize> {
        std::iter::successors(self.parent(statement), |&at| self.parent(at)).find(|&at| self.defined(at).is_some())
    }

    /// The name of that function, as in a stack.
    pub fn function(&self, statement: usize) -> &str {
        self.scope(statement).and_then(|scope| self.defined(scope)).unwrap_or("<module>")
    }

    fn defined(&self, statement: usize) -> Option<&str> {
        let head = self.mask(statement);
        let head = head.strip_prefix("async").map_or(head, str::trim_start);
        let name = head.strip_prefix("def ").or_else(|| head.strip_prefix("class "))?.trim_start();
        Some(&name[..name.find(|next| !is_word(next)).unwrap_or(name.len())])
    }

    /// The statements below a compound statement that belong to it; all statements if there is none.
    pub fn body(&self, compound: Option<usize>) -> Range<usize> {
        let Some(compound) = compound else { return 0..self.len() };
        let indent = self.statements[compound].indent;
        let is_inside = |statement: &&Statement| statement.indent > indent;
        compound + 1..compound + 1 + self.statements[compound + 1..].iter().take_while(is_inside).count()
    }

    /// # Errors
    /// If a statement has a block, shares its line with another one, or has a string of several lines.
    pub fn require_simple(&self, statement: usize) -> Result<(), String> {
        let mask = self.mask(statement);
        let first = &mask[..mask.find(|next| !is_word(next)).unwrap_or(mask.len())];
        let text = self.text[self.range(statement)].trim_end();
        let is_simple =
            !COMPOUND.contains(&first) && !mask.contains(';') && !mask.ends_with(':') && !mask.starts_with('@');
        if is_simple && mask.matches('\n').count() == text.matches('\n').count() {
            return Ok(());
        }
        Err(format!("expected a single simple statement, found {}", self.shown(statement)))
    }

    /// Whether a statement at the level of the module imports `torch` by this name.
    pub fn imports_torch(&self) -> bool {
        (0..self.len()).filter(|&at| self.indent(at).is_empty()).any(|at| {
            let names = self.mask(at).strip_prefix("import ").unwrap_or_default();
            names.split(',').any(|name| {
                let name = name.trim();
                !name.contains(' ') && (name == "torch" || name.starts_with("torch."))
            })
        })
    }

    /// Where a name occurs in some statements, except in comments: as an f-string may contain it, strings count.
    pub fn uses(&self, name: &str, statements: Range<usize>) -> Vec<usize> {
        let occurs = |range: Range<usize>| {
            let mut found = self.text[range.clone()].match_indices(name).map(|(at, _)| range.start + at);
            found.any(|at| self.mask.as_bytes()[at] != b' ' && is_whole(self.text, at..at + name.len()))
        };
        statements.filter(|&at| occurs(self.range(at))).collect()
    }
}

/// Where a string that starts at a byte ends; `None` if it does not.
fn string_end(bytes: &[u8], start: usize, quote: u8) -> Option<usize> {
    let is_triple = bytes.get(start..start + 3).is_some_and(|quotes| quotes.iter().all(|&byte| byte == quote));
    let mut at = start + if is_triple { 3 } else { 1 };
    loop {
        match *bytes.get(at)? {
            b'\\' => at += if bytes.get(at + 1..at + 3) == Some(b"\r\n") { 3 } else { 2 },
            b'\n' if !is_triple => return None,
            byte if byte == quote && !is_triple => return Some(at + 1),
            byte if byte == quote && bytes.get(at..at + 3)?.iter().all(|&byte| byte == quote) => return Some(at + 3),
            _ => at += 1,
        }
    }
}

/// Whether a character may be part of a name.
pub(super) fn is_word(next: char) -> bool {
    next == '_' || next.is_alphanumeric()
}

/// Whether a name is not part of a longer one.
pub(super) fn is_whole(text: &str, name: Range<usize>) -> bool {
    !text[..name.start].ends_with(is_word) && !text[name.end..].starts_with(is_word)
}

/// The first line of a statement, shortened, for a message.
pub(super) fn first_line(text: &str) -> String {
    const LONGEST: usize = 60;
    let line = text.lines().next().unwrap_or_default();
    let shown: String = line.chars().take(LONGEST).collect();
    if shown.len() < line.len() { format!("{shown}...") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statements(text: &str) -> Vec<&str> {
        let code = Code::of(text).unwrap();
        (0..code.len()).map(|at| &text[code.range(at)]).collect()
    }

    #[test]
    fn statements_end_outside_of_brackets_and_strings() {
        assert_eq!(statements("a = f(\n  1,  # )\n)\nb = 2"), ["a = f(\n  1,  # )\n)", "b = 2"]);
        assert_eq!(statements("a = '''\n# (\n'''\n\n# b\nc\\\n  = 1\r\n"), ["a = '''\n# (\n'''", "c\\\n  = 1"]);
        assert_eq!(statements("a = 'it\\'s #('  # \\\nb"), ["a = 'it\\'s #('  # \\", "b"]);
    }

    #[test]
    fn code_that_does_not_end_is_refused() {
        for (text, found) in
            [("a = (1\n", "end of the last"), ("a = 'b\n", "line 1"), ("a\nb)\n", "line 2"), ("x = '''", "string")]
        {
            assert!(Code::of(text).err().unwrap().contains(found), "{text}");
        }
        assert!(Code::of("if a:\n\tb\n        c\n").err().unwrap().contains("line 3"));
    }

    #[test]
    fn functions_are_named_as_in_stacks() {
        let code =
            Code::of("class A:\n    x = 1\n    async def f(self):\n        if y:\n            z\n    w\nv\n").unwrap();
        let names: Vec<&str> = (0..code.len()).map(|at| code.function(at)).collect();
        assert_eq!(names, ["<module>", "A", "A", "f", "f", "A", "<module>"]);
        assert_eq!((code.body(Some(2)), code.body(Some(0)), code.body(None)), (3..5, 1..6, 0..7));
    }

    #[test]
    fn names_in_comments_are_no_uses() {
        let code = Code::of("out = 1  # out\nouter = f'{out}'\nx.out\n").unwrap();
        assert_eq!(code.uses("out", 0..3), [0, 1, 2]);
        assert_eq!(code.uses("outer", 0..3), [1]);
    }

    #[test]
    fn torch_must_be_imported_by_its_name() {
        let imports = |text: &str| Code::of(text).unwrap().imports_torch();
        assert!(imports("import os, torch\n") && imports("import torch.nn\n"));
        assert!(
            !imports("import torch.nn as nn\n")
                && !imports("from torch import nn\n")
                && !imports("import torchvision\n")
        );
    }
}
