//! The commands to run next, at the end of an answer.

use super::notes::{failures, safe};
use super::text::TextStyle;
use crate::model::Action;
use crate::report::Source;
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

/// The name of memviz, with which commands start.
const NAME: &str = "memviz";
/// How answers name standard input.
const STDIN: &str = "<stdin>";
/// Maximum number of commands at the end of an answer.
pub(crate) const MOST: usize = 2;
/// The end of a command line that continues on the next line.
const CONTINUED: &str = " \\";
/// The start of a comment after a command.
const COMMENT: &str = "  # ";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    /// The command, its files and its options: the parts between which the line may be broken.
    parts: Vec<String>,
    /// What the command shows; empty if this is obvious.
    pub about: String,
    /// Whether the name of the command nearly says it, so that it is only told where there is room beside the command.
    is_clear: bool,
}

impl Next {
    pub(crate) fn new(name: &str, paths: &[&str], options: &str, about: impl Into<String>) -> Self {
        let words = std::iter::once(format!("{NAME} {name}")).chain(paths.iter().map(|path| quoted(path)));
        let options = Some(options.to_owned()).filter(|options| !options.is_empty());
        Self { parts: words.chain(options).collect(), about: about.into(), is_clear: false }
    }

    /// The same without a comment where there is no room beside the command.
    pub(crate) fn clear(self) -> Self {
        Self { is_clear: true, ..self }
    }

    pub(crate) fn typed(&self) -> String {
        self.parts.join(" ")
    }

    /// The same command under another name of memviz.
    fn called(&self, program: Option<&str>) -> Self {
        let mut called = self.clone();
        if let (Some(program), Some(first)) = (program, called.parts.first_mut()) {
            first.replace_range(..NAME.len(), &quoted(program));
        }
        called
    }

    /// The command that explains failed requests, if the recording has any.
    pub(crate) fn oom(source: Source<'_>) -> Option<Self> {
        let failed = Action::Oom.count_in(source.recording.snapshot.entries.actions());
        let about = || format!("{}: why, and what would have helped", failures(failed));
        (failed > 0).then(|| Self::new("oom", &[source.path], "", about()))
    }
}

/// A path as a shell reads it.
fn quoted(path: &str) -> String {
    // A recording from standard input has no path: the command shows a placeholder.
    let path = if path == STDIN { "FILE" } else { path };
    let is_plain = |next: char| next.is_alphanumeric() || "._-/+:@,".contains(next);
    let mut path = safe(path);
    if path.starts_with('-') {
        path.insert_str(0, "./");
    }
    let is_word = !path.is_empty() && path.chars().all(is_plain);
    if is_word { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

impl TextStyle {
    /// Commands, each with its purpose as a shell comment: after it, or above it if there is no room. A command that is wider
    /// than the screen continues on the next line, in shell syntax.
    pub(crate) fn commands(&self, lines: &[Next], out: &mut dyn Write) -> io::Result<()> {
        let called = |line: &Next| line.called(self.program);
        let lines: Vec<Next> = lines.iter().map(called).collect();
        let typed = lines.iter().map(|line| line.typed().width()).max().unwrap_or(0);
        let about = lines.iter().map(|line| line.about.width()).max().unwrap_or(0);
        let is_beside = self.has(typed + COMMENT.len() + about);
        writeln!(out)?;
        for line in &lines {
            let comment = format!("{COMMENT}{}", line.about);
            if line.about.is_empty() || line.is_clear && !is_beside {
                self.typed(line, out)?;
            } else if is_beside {
                let gap = " ".repeat(typed - line.typed().width());
                writeln!(out, "{}{gap}{}", self.tint(&line.typed()), self.dim(&comment))?;
            } else {
                for about in self.broken(2, &line.about) {
                    writeln!(out, "{}", self.dim(&format!("# {about}")))?;
                }
                self.typed(line, out)?;
            }
        }
        Ok(())
    }

    fn typed(&self, next: &Next, out: &mut dyn Write) -> io::Result<()> {
        let mut line = String::new();
        for (place, part) in next.parts.iter().enumerate() {
            let is_last = place + 1 == next.parts.len();
            let continued = if is_last { 0 } else { CONTINUED.len() };
            if place > 0 && line.width() + 1 + part.width() + continued > self.room(0) {
                writeln!(out, "{}", self.tint(&format!("{line}{CONTINUED}")))?;
                line = format!("  {part}");
            } else {
                line += if place > 0 { " " } else { "" };
                line += part;
            }
        }
        writeln!(out, "{}", self.tint(&line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_typed_as_a_shell_reads_them() {
        let typed = |path: &str| Next::new("simulate", &[path], "--sweep", "").typed();
        assert_eq!(typed("a/b-1.pickle.gz"), "memviz simulate a/b-1.pickle.gz --sweep");
        assert_eq!(typed("it's; rm -rf"), r"memviz simulate 'it'\''s; rm -rf' --sweep");
        assert_eq!(typed("--open"), "memviz simulate ./--open --sweep");
        assert_eq!(typed("<stdin>"), "memviz simulate FILE --sweep");
        assert_eq!(Next::new("diff", &["a", "b"], "", "").typed(), "memviz diff a b");
    }

    #[test]
    fn commands_start_with_what_memviz_was_called() {
        let style = TextStyle { program: Some("../my builds/memviz"), ..TextStyle::default() };
        let mut out = Vec::new();
        style.commands(&[Next::new("peak", &["a.pickle"], "", "")], &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "\n'../my builds/memviz' peak a.pickle\n");
    }

    #[test]
    fn wide_commands_wrap() {
        let shown = |width| {
            let mut out = Vec::new();
            let text = TextStyle { width: Some(width), ..TextStyle::default() };
            text.commands(&[Next::new("report", &["a long name.pickle"], "-o report.html", "")], &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(shown(60), "\nmemviz report 'a long name.pickle' -o report.html\n");
        assert_eq!(shown(40), "\nmemviz report 'a long name.pickle' \\\n  -o report.html\n");
        // A name is never cut: the shell needs it whole.
        assert_eq!(shown(10), "\nmemviz report \\\n  'a long name.pickle' \\\n  -o report.html\n");
    }
}
