//! Renders a document as text: as wide as the screen, in colors if it has them.

use super::{Block, Document, Role, Share, Tone, Words};
use crate::report::common::fit::{shorten, shorten_end};
use crate::report::common::notes::safe;
use crate::report::common::text::TextStyle;
use crate::report::percent;
use std::io::{self, Write};
use unicode_width::UnicodeWidthStr;

const CURVE: usize = 40;
/// Longest bar of shares, in columns.
const SHARES: usize = 60;

impl Document {
    pub fn text(&self, style: TextStyle, out: &mut dyn Write) -> io::Result<()> {
        style.blocks(&self.blocks, out)
    }
}

impl TextStyle {
    fn blocks(&self, blocks: &[Block], out: &mut dyn Write) -> io::Result<()> {
        blocks.iter().try_for_each(|block| self.block(block, out))
    }

    fn block(&self, block: &Block, out: &mut dyn Write) -> io::Result<()> {
        let indented = |indent: usize, line: &str| format!("{}{line}", " ".repeat(indent));
        match block {
            Block::Gap => writeln!(out),
            Block::Heading(title, place) => self.titled(&safe(title), place, out),
            Block::Words(words) => self.sentence(words, out),
            Block::List(indent, items) => {
                let plain = |item: &String| (safe(item), safe(item).width());
                self.listed(*indent, &items.iter().map(plain).collect::<Vec<_>>(), out)
            }
            Block::Table(table) => {
                if let Some(head) = table.head_line(self) {
                    writeln!(out, "{head}")?;
                }
                for row in table.rows.iter().filter(|row| row.reader.reads_text(self.all)) {
                    writeln!(out, "{}", table.line(self, row))?;
                    table.below_lines(self, row).iter().try_for_each(|line| writeln!(out, "{line}"))?;
                }
                Ok(())
            }
            Block::Source(indent, line) => {
                let line = shorten_end(&indented(*indent, &safe(line)), self.room(0));
                writeln!(out, "{}", self.dim(&line))
            }
            Block::Code(indent, lines) => {
                lines.iter().try_for_each(|line| writeln!(out, "{}", indented(*indent, &self.tint(&safe(line)))))
            }
            Block::Diff(lines) => lines.iter().try_for_each(|line| writeln!(out, "{line}")),
            Block::Frames(indent, frames) => frames.iter().try_for_each(|frame| {
                let frame = shorten(&safe(frame), self.room(*indent));
                writeln!(out, "{}", indented(*indent, &self.dim(&frame)))
            }),
            Block::Curve(values) => writeln!(out, "  {}", self.tint(&curve(values, self.room(2).min(CURVE)))),
            Block::Shares(shares) => self.shares(shares, out),
            Block::Advice(advice) if self.advice => {
                writeln!(out)?;
                if advice.code.is_empty() {
                    return self.lines(0, &advice.missing, Tone::Dim, out);
                }
                self.lines(0, &format!("{}; record again with:", advice.missing), Tone::Bold, out)?;
                advice.code.iter().try_for_each(|line| writeln!(out, "    {line}"))
            }
            Block::Suggestions(lines) if self.advice && !lines.is_empty() => self.commands(lines, out),
            Block::Commands(lines) => self.commands(lines, out),
            Block::Fold(summary, is_titled, blocks) => {
                if *is_titled {
                    writeln!(out, "\n{}", self.bold(&shorten(&safe(summary), self.room(0))))?;
                }
                self.blocks(blocks, out)
            }
            Block::Screen(blocks) => self.blocks(blocks, out),
            Block::All(blocks) if self.all => self.blocks(blocks, out),
            Block::Brief(blocks) if !self.all => self.blocks(blocks, out),
            Block::Wide(from, blocks) if self.has(*from) => self.blocks(blocks, out),
            Block::Narrow(below, blocks) if !self.has(*below) => self.blocks(blocks, out),
            Block::All(_)
            | Block::Brief(_)
            | Block::Wide(..)
            | Block::Narrow(..)
            | Block::Advice(_)
            | Block::Suggestions(_)
            | Block::Aside(_) => Ok(()),
        }
    }

    fn lines(&self, indent: usize, text: &str, tone: Tone, out: &mut dyn Write) -> io::Result<()> {
        self.sentence(&Words { role: Role::Paragraph, indent, tone, text: text.to_owned() }, out)
    }

    /// Text on as many lines as needed, broken between words; later lines are indented to the start of the first.
    fn sentence(&self, words: &Words, out: &mut dyn Write) -> io::Result<()> {
        let Words { role, indent, tone, text } = words;
        let mark = match role {
            Role::Note => "! ".to_owned(),
            Role::Item => "- ".to_owned(),
            Role::Number(number) => format!("{number}. "),
            _ => String::new(),
        };
        let hang = if let Role::Title(hang) = role { *hang } else { indent + mark.width() };
        for (index, line) in self.broken(hang, text).iter().enumerate() {
            let front = if index == 0 { format!("{}{mark}", " ".repeat(*indent)) } else { " ".repeat(hang) };
            match role {
                // The mark is a part of the warning.
                Role::Note => writeln!(out, "{}", self.toned(&format!("{front}{line}"), *tone))?,
                _ => writeln!(out, "{front}{}", self.toned(line, *tone))?,
            }
        }
        Ok(())
    }

    /// A title followed by a place, or with the place on the next lines if both are too long for one.
    fn titled(&self, title: &str, place: &str, out: &mut dyn Write) -> io::Result<()> {
        let place = safe(place);
        if title.width() + place.width() + 3 <= self.room(0) {
            return writeln!(out, "{} ({place})", self.bold(title));
        }
        self.lines(0, title, Tone::Bold, out)?;
        self.lines(2, &place, Tone::Plain, out)
    }

    /// Items separated by commas, on as many lines as needed; each with its width, since it may contain colors.
    fn listed(&self, indent: usize, items: &[(String, usize)], out: &mut dyn Write) -> io::Result<()> {
        let start = " ".repeat(indent);
        let (mut line, mut used) = (start.clone(), indent);
        for (index, (item, width)) in items.iter().enumerate() {
            let comma = if index + 1 == items.len() { "" } else { "," };
            let space = if used > indent { " " } else { "" };
            if !space.is_empty() && used + 1 + width + comma.len() > self.room(0) {
                writeln!(out, "{line}")?;
                (line, used) = (format!("{start}{item}{comma}"), indent + width + comma.len());
                continue;
            }
            line += &format!("{space}{item}{comma}");
            used += space.len() + width + comma.len();
        }
        writeln!(out, "{line}")
    }

    /// Parts of a whole as one bar, with those that have a name below it.
    fn shares(&self, shares: &[Share], out: &mut dyn Write) -> io::Result<()> {
        let length = self.width.unwrap_or(SHARES).min(SHARES);
        let (mut bar, mut drawn, mut names, mut sum, mut used) = (String::new(), Vec::new(), Vec::new(), 0u64, 0);
        for share in shares {
            sum = sum.saturating_add(share.bytes);
            let end = (percent(sum, share.total) / 100.0 * length as f64).round() as usize;
            bar += &self.toned(&share.fill.repeat(end.saturating_sub(used)), share.tone);
            if end > used {
                drawn.push(share.fill);
            }
            used = used.max(end);
        }
        let is_told = |share: &&Share| !share.if_drawn || drawn.contains(&share.fill);
        for share in shares.iter().filter(is_told) {
            if let Some(name) = &share.name {
                let painted = format!("{} {}", self.toned(share.fill, share.tone), safe(name));
                names.push((painted, share.fill.width() + 1 + safe(name).width()));
            }
        }
        writeln!(out, "{bar}")?;
        self.listed(0, &names, out)
    }
}

/// A curve in at most `width` columns, from zero up, with a column for each value or for the highest of a few values.
pub(super) fn curve(values: &[i64], width: usize) -> String {
    const EIGHTHS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let highest = values.iter().copied().max().unwrap_or(0);
    let columns = values.chunks(values.len().div_ceil(width.max(1)).max(1));
    let tops = columns.map(|values| values.iter().copied().max().unwrap_or(0));
    let level = |bytes: i64| if highest > 0 && bytes > 0 { (bytes as f64 / highest as f64 * 7.0).round() } else { 0.0 };
    tops.map(|bytes| EIGHTHS[(level(bytes) as usize).min(7)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_show_every_high_point() {
        assert_eq!(curve(&[0, 4, 8], 8), "▁▅█");
        assert_eq!(curve(&[1, 8, 1, 1, 1, 1], 3), "█▂▂");
        assert_eq!(curve(&[0, -5], 8), "▁▁");
        assert_eq!(curve(&[], 8), "");
    }
}
