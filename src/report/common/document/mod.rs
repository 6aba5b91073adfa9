//! An answer for people as one value, a list of blocks that [`text`] and [`markdown`] render.
//!
//! | block | text | Markdown |
//! |---|---|---|
//! | title, heading, section | no title; bold, with its place in brackets; bold | `##`, `###`, `####`; the place as a sentence |
//! | note, remark | after `!`; dim | quoted |
//! | fact, item, number, detail | indented; after its mark; below its item | items of a list; inside the item |
//! | paragraph, legend | wrapped at the width of the screen; dim | a paragraph |
//! | table | the columns that fit, the last one cut | all columns, labels as code, the lines below a row in its last cell |
//! | source, code, frames | cut; never cut; cut at the start | code |
//! | curve, shares | a line of block characters; a bar with a legend | code; a table |
//! | fold, tuck | shown with its title; shown without it | folded |
//! | screen, aside | shown; omitted | omitted; shown |
//! | all, brief | if the style asks for all; otherwise | shown; omitted |
//! | wide, narrow | by the width of the screen | shown; omitted |
//! | advice, commands | if the style asks for advice | omitted, unless they are part of the answer |
//!
//! Strings come from the recording, so each renderer escapes them. An empty line in text is a separate block
//! ([`Document::gap`]); Markdown separates blocks automatically.

mod markdown;
mod shared;
pub(crate) mod table;
mod text;
mod units;

use super::advice::{Advice, advice, for_simulation};
use super::markdown::code;
use super::next::Next;
use super::notes;
use super::words::NOTHING;
use crate::facts::training::Category;
use crate::report::Source;
pub(crate) use shared::{attributed, counters, label, more_rows, pending, shortened};
pub(crate) use table::{Cell, Column, Cut, Reader, Row, Table};

/// An answer for people, which can be written as text or as Markdown.
#[derive(Clone, Debug, Default)]
pub struct Document {
    /// The title in Markdown. Text has none.
    title: String,
    blocks: Vec<Block>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Bold,
    Dim,
    Warn,
    Tint,
    Hued(Category),
}

#[derive(Clone, Debug)]
enum Block {
    Gap,
    Heading(String, String),
    Words(Words),
    /// Items separated by commas.
    List(usize, Vec<String>),
    Table(Table),
    Source(usize, String),
    /// Code to copy: never cut or wrapped.
    Code(usize, Vec<String>),
    /// Lines of a diff, with what precedes it: never changed.
    Diff(Vec<String>),
    Frames(usize, Vec<String>),
    Curve(Vec<i64>),
    Shares(Vec<Share>),
    Advice(Advice),
    Commands(Vec<Next>),
    /// Shown only if the style asks for advice.
    Suggestions(Vec<Next>),
    /// The title, whether text shows it, and the blocks inside.
    Fold(String, bool, Vec<Block>),
    /// Markdown, and text on screens of at least this many columns.
    Wide(usize, Vec<Block>),
    /// Text on screens of fewer columns.
    Narrow(usize, Vec<Block>),
    /// Markdown, and text that shows all.
    All(Vec<Block>),
    /// Text that fits a screen.
    Brief(Vec<Block>),
    Screen(Vec<Block>),
    Aside(Vec<Block>),
}

/// A sentence and its role in the answer.
#[derive(Clone, Debug)]
struct Words {
    role: Role,
    indent: usize,
    tone: Tone,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// The indent of its continuation lines.
    Title(usize),
    Section,
    Note,
    Remark,
    Fact,
    Item,
    Number(usize),
    Detail,
    Paragraph,
}

/// A part of a whole, for a bar.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    /// Its name in a table; and its name below the bar, if it has one there.
    pub label: String,
    pub name: Option<String>,
    /// Whether that name only explains the bar: it is left out where the bar has no such part.
    pub if_drawn: bool,
    /// Its bytes, and those of the whole, which takes the width of the bar.
    pub bytes: u64,
    pub total: u64,
    /// The character that fills its part of the bar.
    pub fill: &'static str,
    pub tone: Tone,
}

impl Document {
    pub(crate) fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), blocks: Vec::new() }
    }

    pub(crate) fn about(what: &str, path: &str) -> Self {
        Self::new(format!("{what} {}", code(path)).trim_start())
    }

    /// An answer about a recording: notes about the file, the blocks that `one` adds for each device, and how to record what is
    /// missing.
    pub(crate) fn devices<D>(
        what: &str,
        source: Source<'_>,
        devices: impl ExactSizeIterator<Item = D>,
        one: impl FnMut(&mut Self, D),
    ) -> Self {
        let mut document = Self::about(what, source.path);
        document.file_notes(source);
        if devices.len() == 0 {
            document.nothing(source);
        }
        document.each(devices, one);
        document.advice(source);
        document
    }

    /// The blocks that `one` adds for each item, separated by empty lines.
    pub(crate) fn each<T>(&mut self, all: impl Iterator<Item = T>, mut one: impl FnMut(&mut Self, T)) {
        for (index, item) in all.enumerate() {
            if index > 0 {
                self.gap();
            }
            one(self, item);
        }
    }

    pub(crate) fn first(&mut self, inside: impl FnOnce(&mut Self)) {
        self.blocks.splice(0..0, Self::inside(inside));
    }

    pub(crate) fn file_notes(&mut self, source: Source<'_>) {
        for note in notes::file(source.recording) {
            if note.is_plain { self.remark(note.text) } else { self.note(note.text) }
        }
    }

    /// States that nothing was allocated.
    pub(crate) fn nothing(&mut self, source: Source<'_>) {
        self.paragraph(format!("{}: {NOTHING}", source.path));
    }

    fn words(&mut self, role: Role, indent: usize, tone: Tone, text: impl Into<String>) {
        self.blocks.push(Block::Words(Words { role, indent, tone, text: text.into() }));
    }

    /// An empty line in text.
    pub(crate) fn gap(&mut self) {
        self.blocks.push(Block::Gap);
    }

    pub(crate) fn heading(&mut self, title: impl Into<String>, place: impl Into<String>) {
        self.blocks.push(Block::Heading(title.into(), place.into()));
    }

    pub(crate) fn title(&mut self, text: impl Into<String>) {
        self.words(Role::Title(2), 0, Tone::Bold, text);
    }

    pub(crate) fn flush_title(&mut self, text: impl Into<String>) {
        self.words(Role::Title(0), 0, Tone::Bold, text);
    }

    pub(crate) fn alarm(&mut self, text: impl Into<String>) {
        self.words(Role::Title(2), 0, Tone::Warn, text);
    }

    /// An empty line and the title of the blocks that follow.
    pub(crate) fn section(&mut self, text: impl Into<String>) {
        self.gap();
        self.words(Role::Section, 0, Tone::Bold, text);
    }

    /// A reason why figures are not exact.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.words(Role::Note, 2, Tone::Warn, text);
    }

    pub(crate) fn notes<T: Into<String>>(&mut self, lines: impl IntoIterator<Item = T>) {
        lines.into_iter().for_each(|line| self.note(line));
    }

    /// A note that does not limit the figures.
    pub(crate) fn remark(&mut self, text: impl Into<String>) {
        self.words(Role::Remark, 4, Tone::Dim, text);
    }

    pub(crate) fn fact(&mut self, text: impl Into<String>) {
        self.words(Role::Fact, 2, Tone::Plain, text);
    }

    pub(crate) fn facts<T: Into<String>>(&mut self, lines: impl IntoIterator<Item = T>) {
        lines.into_iter().for_each(|line| self.fact(line));
    }

    pub(crate) fn items<T: Into<String>>(&mut self, lines: impl IntoIterator<Item = T>) {
        lines.into_iter().for_each(|line| self.words(Role::Item, 2, Tone::Plain, line));
    }

    /// One of several things to do.
    pub(crate) fn number(&mut self, number: usize, indent: usize, tone: Tone, text: impl Into<String>) {
        self.words(Role::Number(number), indent, tone, text);
    }

    /// More about the item above.
    pub(crate) fn detail(&mut self, indent: usize, text: impl Into<String>) {
        self.words(Role::Detail, indent, Tone::Plain, text);
    }

    pub(crate) fn paragraph(&mut self, text: impl Into<String>) {
        self.words(Role::Paragraph, 0, Tone::Plain, text);
    }

    pub(crate) fn toned(&mut self, tone: Tone, indent: usize, text: impl Into<String>) {
        self.words(Role::Paragraph, indent, tone, text);
    }

    /// The meaning of a symbol in the table above.
    pub(crate) fn legend(&mut self, text: impl Into<String>) {
        self.toned(Tone::Dim, 2, text);
    }

    pub(crate) fn legends<T: Into<String>>(&mut self, lines: impl IntoIterator<Item = T>) {
        lines.into_iter().for_each(|line| self.legend(line));
    }

    pub(crate) fn list(&mut self, indent: usize, items: Vec<String>) {
        self.blocks.push(Block::List(indent, items));
    }

    pub(crate) fn table(&mut self, table: Table) {
        self.blocks.push(Block::Table(table.in_units()));
    }

    pub(crate) fn source(&mut self, indent: usize, line: impl Into<String>) {
        self.blocks.push(Block::Source(indent, line.into()));
    }

    pub(crate) fn code<T: Into<String>>(&mut self, indent: usize, lines: impl IntoIterator<Item = T>) {
        let lines: Vec<String> = lines.into_iter().map(Into::into).collect();
        if !lines.is_empty() {
            self.blocks.push(Block::Code(indent, lines));
        }
    }

    pub(crate) fn diff(&mut self, lines: Vec<String>) {
        self.blocks.push(Block::Diff(lines));
    }

    /// A stack, innermost frame first.
    pub(crate) fn frames(&mut self, indent: usize, frames: &[String]) {
        if !frames.is_empty() {
            self.blocks.push(Block::Frames(indent, frames.to_vec()));
        }
    }

    /// A curve that starts at zero on the vertical axis.
    pub(crate) fn curve(&mut self, values: Vec<i64>) {
        self.blocks.push(Block::Curve(values));
    }

    pub(crate) fn shares(&mut self, shares: Vec<Share>) {
        self.blocks.push(Block::Shares(shares));
    }

    /// Commands that are part of the answer.
    pub(crate) fn commands(&mut self, lines: Vec<Next>) {
        self.blocks.push(Block::Commands(lines));
    }

    /// The first few commands to run next, if the style asks for advice.
    pub(crate) fn next(&mut self, lines: impl IntoIterator<Item = Next>) {
        self.blocks.push(Block::Suggestions(lines.into_iter().take(super::next::MOST).collect()));
    }

    pub(crate) fn advice(&mut self, source: Source<'_>) {
        self.blocks.extend(advice(source.recording).map(Block::Advice));
    }

    /// How to record a snapshot, instead of other advice, if the recording cannot be simulated because it is none.
    pub(crate) fn advice_for_simulation(&mut self, source: Source<'_>) {
        if let Some(advice) = for_simulation(source.recording) {
            self.blocks.retain(|block| !matches!(block, Block::Advice(_)));
            self.blocks.push(Block::Advice(advice));
        }
    }

    /// Blocks that Markdown folds, and that text shows below an empty line and the title.
    pub(crate) fn fold(&mut self, title: impl Into<String>, inside: impl FnOnce(&mut Self)) {
        self.blocks.push(Block::Fold(title.into(), true, Self::inside(inside)));
    }

    /// Blocks that Markdown folds, and that text shows without the title.
    pub(crate) fn tuck(&mut self, summary: impl Into<String>, inside: impl FnOnce(&mut Self)) {
        self.blocks.push(Block::Fold(summary.into(), false, Self::inside(inside)));
    }

    /// Blocks about columns that narrower screens do not show.
    pub(crate) fn wide(&mut self, from: usize, inside: impl FnOnce(&mut Self)) {
        self.blocks.push(Block::Wide(from, Self::inside(inside)));
    }

    pub(crate) fn narrow(&mut self, below: usize, inside: impl FnOnce(&mut Self)) {
        self.blocks.push(Block::Narrow(below, Self::inside(inside)));
    }

    /// Blocks that make an answer longer than a screen.
    pub(crate) fn all(&mut self, inside: impl FnOnce(&mut Self)) {
        self.blocks.push(Block::All(Self::inside(inside)));
    }

    /// Blocks in their place.
    pub(crate) fn brief(&mut self, inside: impl FnOnce(&mut Self)) {
        self.blocks.push(Block::Brief(Self::inside(inside)));
    }

    pub(crate) fn screen(&mut self, inside: impl FnOnce(&mut Self)) {
        self.blocks.push(Block::Screen(Self::inside(inside)));
    }

    pub(crate) fn aside(&mut self, inside: impl FnOnce(&mut Self)) {
        self.blocks.push(Block::Aside(Self::inside(inside)));
    }

    fn inside(inside: impl FnOnce(&mut Self)) -> Vec<Block> {
        let mut document = Self::default();
        inside(&mut document);
        document.blocks
    }
}
