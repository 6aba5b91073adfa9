//! Tables: rows, and columns that have a width and may be hidden on a narrow screen.

use super::Tone;
use super::units::Unit;
use crate::report::common::fit::{broken, shorten, shorten_end};
use crate::report::common::notes::safe;
use crate::report::common::text::TextStyle;
use unicode_width::UnicodeWidthStr;

/// The beginning of the name of memory that backward allocated for a line of forward.
const BACKWARD_OF: &str = "backward of ";

/// Rows of figures with a label in the last column, which takes the remaining width.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
    indent: usize,
    head: Option<Tone>,
    /// The indent of the lines below a row; by default two more than that of the label.
    below: Option<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub name: String,
    width: usize,
    pub is_right: bool,
    gap: usize,
    /// The narrowest screen that shows it; `None` if text never shows it.
    from: Option<usize>,
    pub is_in_markdown: bool,
    cut: Cut,
    /// The minimum width of the last column.
    least: usize,
}

/// How a cell is made to fit its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    Start,
    End,
    /// The text continues on the next line.
    Wrapped,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    pub text: String,
    pub tone: Tone,
    /// Text after the label that is never cut, its tone, and the narrowest screen that shows it.
    pub suffix: (String, Tone, usize),
    pub is_code: bool,
    /// Bytes, with what is written before them: a column shows all of its sizes in one unit.
    size: Option<(i128, &'static str)>,
}

/// Which format shows a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reader {
    #[default]
    Everybody,
    OfText,
    OfMarkdown,
    /// Markdown, and text that shows all.
    OfAll,
    /// Text that fits a screen.
    OfScreen,
}

impl Reader {
    pub(crate) fn reads_text(self, all: bool) -> bool {
        match self {
            Self::Everybody | Self::OfText => true,
            Self::OfMarkdown => false,
            Self::OfAll => all,
            Self::OfScreen => !all,
        }
    }

    pub(crate) fn reads_markdown(self) -> bool {
        matches!(self, Self::Everybody | Self::OfMarkdown | Self::OfAll)
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Row {
    pub cells: Vec<Cell>,
    /// The tone of the cells before the label.
    tone: Tone,
    pub is_total: bool,
    /// Whether the label follows the first cell directly, because the cells between them are empty.
    is_short: bool,
    /// Lines below the row: a prefix that is never cut, and text that is cut to fit.
    pub below: Vec<(String, String)>,
    pub reader: Reader,
    /// The narrowest screen whose last column shows the same, so that it needs no lines below the row.
    pub is_said: Option<usize>,
}

impl Column {
    fn new(name: &str, width: usize, is_right: bool) -> Self {
        let (name, from) = (name.to_owned(), Some(0));
        Self { name, width, is_right, gap: 1, from, is_in_markdown: true, cut: Cut::End, least: 0 }
    }

    pub(crate) fn right(width: usize, name: &str) -> Self {
        Self::new(name, width, true)
    }

    pub(crate) fn left(width: usize, name: &str) -> Self {
        Self::new(name, width, false)
    }

    /// A column of names from the user's program, which differ at their ends.
    pub(crate) fn label(name: &str) -> Self {
        Self::left(0, name).gap(2).cut(Cut::Start)
    }

    pub(crate) fn gap(self, gap: usize) -> Self {
        Self { gap, ..self }
    }

    pub(crate) fn from(self, width: usize) -> Self {
        Self { from: Some(width), ..self }
    }

    pub(crate) fn cut(self, cut: Cut) -> Self {
        Self { cut, ..self }
    }

    pub(crate) fn least(self, least: usize) -> Self {
        Self { least, ..self }
    }

    pub(crate) fn on_screens(self) -> Self {
        Self { is_in_markdown: false, ..self }
    }

    pub(crate) fn in_markdown(self) -> Self {
        Self { from: None, ..self }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

impl Cell {
    /// A number of bytes.
    pub(crate) fn size(bytes: impl Into<i128>) -> Self {
        Self { size: Some((bytes.into(), "")), ..Self::default() }
    }

    /// A number of bytes after a sign.
    pub(crate) fn marked(mark: &'static str, bytes: impl Into<i128>) -> Self {
        Self { size: Some((bytes.into(), mark)), ..Self::default() }
    }

    /// A name from the user's program.
    pub(crate) fn code(text: impl Into<String>) -> Self {
        Self { is_code: true, ..Self::from(text) }
    }

    pub(crate) fn toned(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }

    pub(crate) fn suffix(self, text: impl Into<String>, tone: Tone, from: usize) -> Self {
        Self { suffix: (text.into(), tone, from), ..self }
    }
}

impl Row {
    pub(crate) fn below(&mut self, frames: &[String]) {
        self.below = frames.iter().map(|frame| (String::new(), frame.clone())).collect();
    }

    pub(crate) fn toned(&mut self, tone: Tone) {
        self.tone = tone;
    }

    pub(crate) fn painted(&mut self, tone: Tone) {
        self.toned(tone);
        self.cells.last_mut().into_iter().for_each(|label| label.tone = tone);
    }

    pub(crate) fn cell(&mut self, column: usize, tone: Tone) {
        self.cells[column].tone = tone;
    }

    /// Sets the text after the label.
    pub(crate) fn suffix(&mut self, text: String, tone: Tone, from: usize) {
        if let Some(label) = self.cells.last_mut() {
            label.suffix = (text, tone, from);
        }
    }
}

impl Table {
    pub(crate) fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self { columns: columns.into_iter().collect(), head: Some(Tone::Dim), ..Self::default() }
    }

    pub(crate) fn head(self, head: Option<Tone>) -> Self {
        Self { head, ..self }
    }

    pub(crate) fn indent(self, indent: usize) -> Self {
        Self { indent, ..self }
    }

    pub(crate) fn below(self, indent: usize) -> Self {
        Self { below: Some(indent), ..self }
    }

    /// The same with the sizes of each column in one unit.
    pub(super) fn in_units(mut self) -> Self {
        for column in 0..self.columns.len() {
            let size = |row: &Row| row.cells.get(column)?.size.map(|(bytes, _)| bytes);
            let Some(unit) = Unit::of(self.rows.iter().filter_map(size)) else { continue };
            for cell in self.rows.iter_mut().filter_map(|row| row.cells.get_mut(column)) {
                if let Some((bytes, mark)) = cell.size {
                    cell.text = format!("{mark}{}", unit.shown(bytes));
                }
            }
        }
        self
    }

    /// Adds a row: one cell for each column but the last, and the label.
    pub(crate) fn row<C: Into<Cell>>(
        &mut self,
        cells: impl IntoIterator<Item = C>,
        label: impl Into<Cell>,
    ) -> &mut Row {
        let cells: Vec<Cell> = cells.into_iter().map(Into::into).chain([label.into()]).collect();
        debug_assert_eq!(cells.len(), self.columns.len(), "a cell for each column");
        let place = self.rows.len();
        self.rows.push(Row { cells, ..Row::default() });
        &mut self.rows[place]
    }

    /// Adds a row that has only a first cell and a label: a total, or a sum of hidden rows.
    pub(crate) fn short(&mut self, first: impl Into<Cell>, label: impl Into<String>) -> &mut Row {
        let blank = vec![Cell::default(); self.columns.len().saturating_sub(2)];
        let row = self.row([first.into()].into_iter().chain(blank), Cell::from(label).toned(Tone::Dim));
        row.is_short = true;
        row
    }

    pub(crate) fn total(&mut self, first: impl Into<Cell>, label: impl Into<String>) {
        self.short(first, label).is_total = true;
    }

    pub(crate) fn head_line(&self, style: &TextStyle) -> Option<String> {
        let head = self.head?;
        let cells = self.columns.iter().map(|column| Cell::from(&column.name)).collect();
        let plain = TextStyle { color: false, ..*style };
        Some(style.toned(&self.line(&plain, &Row { cells, ..Row::default() }), head))
    }

    /// A row in text, without the lines below it.
    pub(crate) fn line(&self, style: &TextStyle, row: &Row) -> String {
        let is_shown = |(column, _): &(&Column, &Cell)| column.from.is_some_and(|from| style.has(from));
        let mut shown: Vec<(&Column, &Cell)> = self.columns.iter().zip(&row.cells).filter(is_shown).collect();
        if row.is_short && shown.len() > 2 {
            shown.drain(1..shown.len() - 1);
        }
        let Some(((column, cell), front)) = shown.split_last() else { return String::new() };
        let (front, used) = self.front(style, row, front, if column.is_right { column.gap + column.width } else { 0 });
        let gap = match (row.is_short, used) {
            (true, _) => 2,
            (_, 0) => self.indent,
            _ => column.gap,
        };
        let (suffix, suffix_tone, from) = &cell.suffix;
        let suffix = if style.has(*from) { safe(suffix) } else { String::new() };
        // A label that does not fit is below instead.
        let is_below = self.columns.last().is_some_and(|last| std::ptr::eq(last, *column))
            && row.is_said.is_some_and(|from| !style.has(from));
        let text = if is_below { String::new() } else { safe(&cell.text) };
        let room = style.room(used + gap + suffix.width()).max(column.least);
        let lines = if column.cut == Cut::Start && cell.is_code {
            name(&text, room)
        } else if column.cut == Cut::End || row.is_short {
            vec![shorten_end(&text, room)]
        } else if text.width() <= room {
            // With its indent, if it has one.
            vec![text.clone()]
        } else {
            // Words among the names are wrapped and never cut.
            broken(&text, room)
        };
        let pad = if column.is_right { column.width.saturating_sub(text.width()) } else { 0 };
        let mut labels: Vec<String> = lines.iter().map(|line| style.toned(line, cell.tone)).collect();
        if let Some(last) = labels.last_mut() {
            *last += &style.toned(&suffix, *suffix_tone);
        }
        let line = |place: usize| {
            let front = front.get(place).cloned().unwrap_or_else(|| " ".repeat(used));
            let pad = if place == 0 { gap + pad } else { gap };
            let line = format!("{front}{}{}", " ".repeat(pad), labels.get(place).map_or("", String::as_str));
            line.trim_end().to_owned()
        };
        (0..labels.len().max(front.len())).map(line).collect::<Vec<_>>().join("\n")
    }

    /// The cells before the last one, and their width. If the figures do not fit, a name in the first column continues on the
    /// next lines.
    fn front(&self, style: &TextStyle, row: &Row, cells: &[(&Column, &Cell)], last: usize) -> (Vec<String>, usize) {
        let gap = |place: usize, column: &Column| if place == 0 { self.indent } else { column.gap };
        let all: usize = cells.iter().enumerate().map(|(place, (column, _))| gap(place, column) + column.width).sum();
        let over = style.width.map_or(0, |width| (all + last).saturating_sub(width));
        let (mut line, mut used, mut rest) = (String::new(), 0, Vec::new());
        for (place, (column, cell)) in cells.iter().enumerate() {
            let is_name = place == 0 && !column.is_right;
            let width = if is_name { column.width.saturating_sub(over) } else { column.width };
            let text = match column.is_right {
                true => safe(&cell.text),
                false if is_name && cell.text.width() > width => {
                    rest = broken(&safe(&cell.text), width);
                    rest.remove(0)
                }
                false => shorten_end(&safe(&cell.text), width),
            };
            let pad = " ".repeat(width.saturating_sub(text.width()));
            used += gap(place, column) + text.width() + pad.len();
            let padded = if column.is_right { pad + &text } else { text + &pad };
            line += &" ".repeat(gap(place, column));
            line += &if row.tone == Tone::Plain { style.toned(&padded, cell.tone) } else { padded };
        }
        let rest = rest.into_iter().map(|name| {
            let name = format!("{}{name}", " ".repeat(self.indent));
            let pad = " ".repeat(used.saturating_sub(name.width()));
            name + &pad
        });
        ([line].into_iter().chain(rest).map(|line| style.toned(&line, row.tone)).collect(), used)
    }

    pub(crate) fn below_lines(&self, style: &TextStyle, row: &Row) -> Vec<String> {
        if row.is_said.is_some_and(|from| style.has(from)) {
            return Vec::new();
        }
        let front = self.columns.iter().filter(|column| column.from.is_some_and(|from| style.has(from)));
        let front: usize = front.map(|column| column.width + column.gap).sum();
        // The first column has no gap.
        let label = (self.indent + front).saturating_sub(self.columns.first().map_or(0, |first| first.gap));
        let indent = self.below.unwrap_or(label + 2);
        let lines = |(front, text): &(String, String)| {
            let room = style.room(indent + front.width());
            // The label itself is never cut; frames are, since their ends distinguish them.
            let is_label = row.cells.last().is_some_and(|label| label.text == *text);
            let texts = match front.is_empty() {
                _ if is_label => broken(&safe(text), room),
                true => vec![shorten(&safe(text), room)],
                false => name(&safe(text), room),
            };
            let line = |(place, text): (usize, String)| {
                let front = if place == 0 { front.clone() } else { " ".repeat(front.width()) };
                format!("{}{}", " ".repeat(indent), style.toned(&format!("{front}{text}"), Tone::Dim))
            };
            texts.into_iter().enumerate().map(line).collect::<Vec<String>>()
        };
        row.below.iter().flat_map(lines).collect()
    }
}

/// A name from the user's program in at most `room` columns. Its end distinguishes it, so its beginning is cut; but that memory
/// is of backward, and the name of the file, are on lines of their own before they are cut.
fn name(text: &str, room: usize) -> Vec<String> {
    if text.width() <= room {
        return vec![text.to_owned()];
    }
    // Words instead of a name, or after it: `(workspaces of the autograd thread)`.
    if text.starts_with('(') || text.contains(" (") {
        return broken(text, room);
    }
    let backward = BACKWARD_OF.trim_end();
    if let Some(line) = text.strip_prefix(BACKWARD_OF).filter(|_| backward.width() <= room) {
        return std::iter::once(backward.to_owned()).chain(name(line, room)).collect();
    }
    match text.split_once(' ') {
        Some((place, function)) if place.contains(':') && file(place).width() + 1 + function.width() > room => {
            vec![shorten(place, room), shorten(function, room)]
        }
        _ => vec![shorten(text, room)],
    }
}

/// The part of a place after the last folder: `model.py:41`.
fn file(place: &str) -> &str {
    place.rsplit(['/', '\\']).next().unwrap_or(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(width: usize) -> Vec<String> {
        let mut table = Table::new([
            Column::right(5, "bytes"),
            Column::right(4, "share").from(30),
            Column::left(6, "verdict").gap(2),
            Column::label("site"),
        ]);
        let cells = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<String>>();
        table.row(cells("512 50% leak"), Cell::code("attention.py:41 forward")).below(&["attention.py:41".to_owned()]);
        table.row(cells("  "), "3 rows unchanged");
        table.total("1024", "total, by site");
        let style = TextStyle { width: Some(width), ..TextStyle::default() };
        let rows = table.rows.iter().flat_map(|row| {
            [table.line(&style, row)].into_iter().chain(table.below_lines(&style, row)).collect::<Vec<_>>()
        });
        table.head_line(&style).into_iter().chain(rows).collect()
    }

    #[test]
    fn narrow_screens_do_without_columns_and_cut_names() {
        let wide = [
            "bytes share  verdi…  site",
            "  512  50%  leak    attention.py:41 forward",
            "                      attention.py:41",
            "                    3 rows unchanged",
            " 1024  total, by site",
        ];
        assert_eq!(shown(60), wide);
        let narrow = [
            "bytes  verdi…  site",
            "  512  leak    …ntion.py:41\n               forward",
            "                 …ion.py:41",
            "               3 rows\n               unchanged",
            " 1024  total, by site",
        ];
        assert_eq!(shown(27), narrow);
    }

    #[test]
    fn names_keep_backward_and_their_file() {
        assert_eq!(name("backward of minigpt.py:82 forward *", 26), ["backward of", "minigpt.py:82 forward *"]);
        assert_eq!(name("backward of minigpt.py:82 forward *", 10), ["…forward *"]);
        assert_eq!(name("torch/nn/modules/linear.py:134 forward", 26), ["…les/linear.py:134 forward"]);
        assert_eq!(
            name("lib/attention.py:770 efficient_attention", 22),
            ["lib/attention.py:770", "efficient_attention"]
        );
        assert_eq!(name("Optimizer.step#AdamW.step", 12), ["…#AdamW.step"]);
        assert_eq!(name("(workspaces of the autograd thread)", 26), ["(workspaces of the", "autograd thread)"]);
    }

    #[test]
    fn a_name_before_figures_continues_below() {
        let mut table = Table::new([Column::left(20, ""), Column::right(7, "lowest"), Column::right(7, "highest")]);
        table.row(["inactive at the peak".to_owned(), "117 MiB".to_owned()], "522 MiB");
        let shown =
            |width: usize| table.line(&TextStyle { width: Some(width), ..TextStyle::default() }, &table.rows[0]);
        assert_eq!(shown(36), "inactive at the peak 117 MiB 522 MiB");
        assert_eq!(shown(28), "inactive at  117 MiB 522 MiB\nthe peak");
    }

    #[test]
    fn a_label_that_does_not_fit_is_below_whole() {
        let mut table = Table::new([Column::right(5, "bytes"), Column::label("settings").cut(Cut::Wrapped)]).below(1);
        let settings = "max_split_size_mb:128,expandable_segments:True";
        let row = table.row(["512".to_owned()], Cell::code(settings));
        row.is_said = Some(53);
        row.below(&[settings.to_owned()]);
        let shown = |width: usize| {
            let style = TextStyle { width: Some(width), ..TextStyle::default() };
            [vec![table.line(&style, &table.rows[0])], table.below_lines(&style, &table.rows[0])].concat()
        };
        assert_eq!(shown(53), ["  512  max_split_size_mb:128,expandable_segments:True"]);
        assert_eq!(shown(30), ["  512", " max_split_size_mb:128,", " expandable_segments:True"]);
    }
}
