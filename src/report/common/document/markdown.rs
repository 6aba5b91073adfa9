//! Renders a document as GitHub-flavored Markdown. Nothing is cut; long parts are folded.

use super::text::curve;
use super::{Block, Cell, Document, Role, Row, Share, Table, Tone, Words};
use crate::model::bytes::Bytes;
use crate::report::common::markdown::{cell, code, escape};
use crate::report::common::notes::safe;
use crate::report::percent;
use std::io::{self, Write};

/// Longest curve, in columns.
const CURVE: usize = 64;

impl Document {
    pub fn markdown(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "## {}", self.title)?;
        let mut writer = Writer { out, indent: None };
        writer.blocks(&self.blocks)
    }
}

struct Writer<'o> {
    out: &'o mut dyn Write,
    /// Inside a list: the indent of its items.
    indent: Option<usize>,
}

impl Writer<'_> {
    fn blocks(&mut self, blocks: &[Block]) -> io::Result<()> {
        blocks.iter().try_for_each(|block| self.block(block))
    }

    fn block(&mut self, block: &Block) -> io::Result<()> {
        match block {
            Block::Gap
            | Block::Advice(_)
            | Block::Suggestions(_)
            | Block::Screen(_)
            | Block::Brief(_)
            | Block::Narrow(..) => Ok(()),
            Block::Heading(title, place) => {
                self.apart(&format!("### {}", escape(title)))?;
                self.apart(&format!("{}.", escape(&capital(place))))
            }
            Block::Words(words) => self.words(words),
            Block::List(_, items) => self.item("- ", &escape(&items.join(", "))),
            Block::Table(table) => self.table(table),
            Block::Source(_, line) => self.inside(&code(line)),
            Block::Code(_, lines) => self.fenced("python", lines),
            Block::Diff(lines) => self.fenced("diff", lines),
            Block::Frames(_, frames) => frames.iter().try_for_each(|frame| match self.indent {
                Some(2) => self.inside(&format!("1. {}", code(frame))),
                _ => self.item("1. ", &code(frame)),
            }),
            Block::Curve(values) => self.item("- ", &code(&curve(values, CURVE))),
            Block::Shares(shares) => self.shares(shares),
            Block::Commands(lines) => lines.iter().try_for_each(|next| {
                let about = if next.about.is_empty() { String::new() } else { format!("{}: ", escape(&next.about)) };
                self.item("- ", &format!("{about}{}", code(&next.typed())))
            }),
            Block::Fold(summary, _, blocks) => {
                self.apart(&format!("<details><summary>{}</summary>", html(summary)))?;
                self.blocks(blocks)?;
                self.apart("</details>")
            }
            Block::Aside(blocks) | Block::All(blocks) | Block::Wide(_, blocks) => self.blocks(blocks),
        }
    }

    fn words(&mut self, Words { role, tone, text, .. }: &Words) -> io::Result<()> {
        let text = escape(text);
        let text = if *tone == Tone::Bold && !matches!(role, Role::Title(_) | Role::Section) {
            format!("**{text}**")
        } else {
            text
        };
        match role {
            Role::Title(_) => self.apart(&format!("### {text}")),
            Role::Section => self.apart(&format!("#### {text}")),
            Role::Note | Role::Remark => self.apart(&format!("> {text}")),
            Role::Fact | Role::Item => self.item("- ", &text),
            Role::Number(_) => self.item("1. ", &text),
            Role::Detail => self.inside(&format!("- {text}")),
            Role::Paragraph => self.apart(&text),
        }
    }

    /// A separate block.
    fn apart(&mut self, text: &str) -> io::Result<()> {
        self.indent = None;
        writeln!(self.out, "\n{text}")
    }

    fn item(&mut self, mark: &str, text: &str) -> io::Result<()> {
        if self.indent.replace(mark.len()) != Some(mark.len()) {
            writeln!(self.out)?;
        }
        writeln!(self.out, "{mark}{text}")
    }

    /// A line of the item above, or a separate block if there is none.
    fn inside(&mut self, text: &str) -> io::Result<()> {
        match self.indent {
            Some(indent) => writeln!(self.out, "{}{text}", " ".repeat(indent)),
            None => self.apart(text),
        }
    }

    fn fenced(&mut self, language: &str, lines: &[String]) -> io::Result<()> {
        let longest = lines.iter().flat_map(|line| line.split(|next| next != '`')).map(str::len).max().unwrap_or(0);
        let fence = "`".repeat(longest.max(2) + 1);
        self.inside(&format!("{fence}{language}"))?;
        let pad = " ".repeat(self.indent.unwrap_or(0));
        lines.iter().try_for_each(|line| writeln!(self.out, "{pad}{}", safe(line)))?;
        writeln!(self.out, "{pad}{fence}")
    }

    fn table(&mut self, table: &Table) -> io::Result<()> {
        if table.rows.is_empty() {
            return Ok(());
        }
        let columns: Vec<usize> =
            (0..table.columns.len()).filter(|&index| table.columns[index].is_in_markdown).collect();
        let names: Vec<String> = columns.iter().map(|&index| escape(&table.columns[index].name)).collect();
        let rule = |&index: &usize| if table.columns[index].is_right { "--:|" } else { "---|" };
        self.apart(&format!("| {} |", names.join(" | ")))?;
        writeln!(self.out, "|{}", columns.iter().map(rule).collect::<String>())?;
        for row in table.rows.iter().filter(|row| row.reader.reads_markdown()) {
            let mut cells: Vec<String> = columns.iter().map(|&index| shown(row, &row.cells[index])).collect();
            // Lines that the last column does not show follow its label.
            let below = if row.is_said.is_some() { &[][..] } else { &row.below };
            let below = below.iter().map(|(front, text)| format!("{}{}", escape(front.trim_start()), cell(text)));
            let label = cells.pop().filter(|label| !label.is_empty());
            cells.push(label.into_iter().chain(below).collect::<Vec<_>>().join("<br>"));
            writeln!(self.out, "| {} |", cells.join(" | "))?;
        }
        Ok(())
    }

    fn shares(&mut self, shares: &[Share]) -> io::Result<()> {
        self.apart("| category | bytes | share |\n|---|--:|--:|")?;
        for share in shares {
            let (label, bytes) = (cell(&share.label), Bytes(share.bytes));
            writeln!(self.out, "| {label} | {bytes} | {:.1}% |", percent(share.bytes, share.total))?;
        }
        Ok(())
    }
}

/// A cell. Spaces before a label indent it, which Markdown would drop.
fn shown(row: &Row, content: &Cell) -> String {
    let indent = if content.text.trim().is_empty() { 0 } else { content.text.len() - content.text.trim_start().len() };
    let text = match content.text.trim_start() {
        "" => String::new(),
        text if content.is_code => cell(text),
        text => escape(text),
    };
    let is_bold = !text.is_empty() && (row.is_total || matches!(content.tone, Tone::Bold | Tone::Warn));
    let text = if is_bold { format!("**{text}**") } else { text };
    format!("{}{text}{}", "&nbsp;".repeat(indent), escape(&content.suffix.0))
}

fn capital(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().into_iter().flat_map(char::to_uppercase).chain(rest).collect()
}

/// Text inside an HTML element, where Markdown's escapes do not work. An `@` does not notify anybody.
fn html(text: &str) -> String {
    safe(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('@', "@&#8203;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        assert_eq!(html("<string>:1 a && b"), "&lt;string&gt;:1 a &amp;&amp; b");
        assert_eq!(html("step_1 \u{1b}[31m"), "step_1 \\u{1b}[31m");
        assert_eq!(html("@octocat"), "@&#8203;octocat");
    }
}
