//! The report as a static HTML page.

use super::findings::findings;
use super::verdict::Remedy;
use super::{FIRST_SITES, Page, Section, figures, verdict};
use crate::analysis::peak::DevicePeak;
use crate::model::bytes::Bytes;
use crate::report::common::notes::{self, device_name, safe};
use crate::report::common::picture::Picture;
use crate::report::common::picture::palette::{ALARM, BACKGROUND, Color, GRID, MUTED, Rgb, TEXT};
use crate::report::common::words::{count, starred};
use crate::report::percent;
use std::io::{self, Write};

pub fn write(page: &Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let name = escape(page.name());
    writeln!(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">")?;
    // Nothing is loaded or run; this makes the browser enforce it.
    writeln!(
        out,
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    )?;
    writeln!(out, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")?;
    writeln!(out, "<title>{name}</title>\n<style>\n{}</style>\n</head>\n<body>", style())?;
    writeln!(out, "<h1>{}</h1>", breakable(page.name()))?;
    if page.overview.peak.devices.is_empty() {
        writeln!(out, "<p>{}</p>", escape(&figures::recording(page)))?;
        writeln!(out, "<p>No memory was allocated on any device while recording, or recording was off.</p>")?;
        return writeln!(out, "</body>\n</html>");
    }
    if let Some((sentence, is_bad)) = verdict::verdict(page) {
        let class = if is_bad { " alarm" } else { "" };
        writeln!(out, "<p class=\"verdict{class}\">{}</p>", escape(&sentence))?;
        verdict::others(page).iter().try_for_each(|line| writeln!(out, "<p>{}</p>", escape(line)))?;
    }
    for line in notes::source(page.source.recording) {
        writeln!(out, "<p class=\"note\">{}</p>", escape(&line))?;
    }
    let remedies = verdict::remedies(page);
    if !remedies.is_empty() {
        writeln!(out, "<h2>What to do</h2>")?;
        if let Some(line) = verdict::meaning(page) {
            writeln!(out, "<p class=\"note\">{}</p>", escape(line))?;
        }
        what_to_do(&remedies, out)?;
    }
    let mut timelines = page.first_pictures();
    let others = timelines.pictures.split_off(timelines.pictures.len().min(1));
    section(&timelines, out)?;
    narrow(page, out)?;
    if let Some(first) = page.first_peak() {
        sites(first, FIRST_SITES, out)?;
    }
    writeln!(out, "<details class=\"more\"><summary>More</summary>")?;
    section_of(&others, out)?;
    let (devices, shown) = page.tables();
    let is_more = |device: &&DevicePeak| devices.len() > 1 || device.attribution.rows.len() > FIRST_SITES;
    devices.iter().filter(is_more).try_for_each(|device| sites(device, shown, out))?;
    page.more_pictures().iter().try_for_each(|more| section(more, out))?;
    for finding in findings(page) {
        let class = if finding.is_failure { " class=\"alarm\"" } else { "" };
        writeln!(out, "<h2{class}>{}</h2>", escape(&finding.title))?;
        list(&finding.lines, out)?;
    }
    writeln!(out, "<h2>Figures</h2>")?;
    all_figures(page, out)?;
    writeln!(out, "</details>\n<p>{}</p>\n</body>\n</html>", breakable(&figures::recording(page)))
}

/// Rows of a table, and items of a list, that are shown; the rest are collapsed.
const UNFOLDED: usize = 12;

fn section(section: &Section, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "<h2>{}</h2>", section.caption)?;
    section_of(&section.pictures, out)
}

/// Pictures, each as wide as the page at most.
fn section_of(pictures: &[Picture], out: &mut dyn Write) -> io::Result<()> {
    for picture in pictures {
        picture.write(out)?;
    }
    Ok(())
}

/// The title, notes and legend of the first picture as text, for a screen on which those in the picture are too small to
/// read.
fn narrow(page: &Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let Some((device, keys)) = page.first_keys() else { return Ok(()) };
    writeln!(out, "<div class=\"narrow\">")?;
    writeln!(out, "<p>{} ({})</p>", escape(&notes::headline(device)), escape(&notes::place(device)))?;
    notes::device(device).iter().try_for_each(|line| writeln!(out, "<p class=\"note\">{}</p>", escape(line)))?;
    writeln!(out, "<table>")?;
    for key in keys {
        let square = key.color.map_or(String::new(), |color| {
            let square = format!("<rect width=\"11\" height=\"11\" fill=\"{}\"/>", color.light);
            format!("<svg width=\"11\" height=\"11\">{square}</svg>")
        });
        let (label, bytes) = (escape(&key.label), Bytes(key.bytes));
        writeln!(out, "<tr><td>{square}</td><td>{label}</td><td class=\"number\">{bytes}</td></tr>")?;
    }
    writeln!(out, "</table>\n</div>")
}

/// What would help, each with its lines of Python.
fn what_to_do(remedies: &[Remedy], out: &mut dyn Write) -> io::Result<()> {
    let code = |lines: &[String], out: &mut dyn Write| {
        let code = escape_lines(lines);
        if code.is_empty() { Ok(()) } else { write!(out, "<pre>{code}</pre>") }
    };
    writeln!(out, "<ul>")?;
    for remedy in remedies {
        write!(out, "<li>{}", breakable(&remedy.text))?;
        code(&remedy.code, out)?;
        for (text, lines) in &remedy.others {
            write!(out, "<div>{}</div>", breakable(text))?;
            code(lines, out)?;
        }
        writeln!(out, "</li>")?;
    }
    writeln!(out, "</ul>")
}

/// Lines of code without markup.
fn escape_lines(lines: &[String]) -> String {
    lines.iter().map(|line| escape(line)).collect::<Vec<_>>().join("\n")
}

fn list(lines: &[String], out: &mut dyn Write) -> io::Result<()> {
    let items = |lines: &[String], out: &mut dyn Write| {
        writeln!(out, "<ul>")?;
        lines.iter().try_for_each(|line| writeln!(out, "<li>{}</li>", breakable(line)))?;
        writeln!(out, "</ul>")
    };
    let (first, rest) = lines.split_at(lines.len().min(UNFOLDED));
    items(first, out)?;
    if !rest.is_empty() {
        writeln!(out, "<details><summary>{} more</summary>", rest.len())?;
        items(rest, out)?;
        writeln!(out, "</details>")?;
    }
    Ok(())
}

/// The figures of every device; those of many devices are collapsed.
fn all_figures(page: &Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    // Numbers are between the name of the device and the column about its history.
    let cells = |tag: &str, row: [String; figures::COLUMNS.len()]| -> String {
        let last = row.len() - 1;
        let class = |index| if index == 0 || index == last { "" } else { " class=\"number\"" };
        let cell = |(index, cell): (usize, String)| {
            // On a narrow screen, each figure is on a separate line with its name.
            let name = if tag == "td" { format!(" data-name=\"{}\"", figures::COLUMNS[index]) } else { String::new() };
            format!("<{tag}{}{name}>{}</{tag}>", class(index), escape(&cell))
        };
        row.into_iter().enumerate().map(cell).collect()
    };
    let rows = figures::rows(page);
    let is_long = rows.len() > UNFOLDED;
    if is_long {
        writeln!(out, "<details><summary>{}</summary>", count(rows.len() as u64, "device"))?;
    }
    writeln!(out, "<table class=\"figures\">\n<tr>{}</tr>", cells("th", figures::COLUMNS.map(str::to_owned)))?;
    for row in rows {
        writeln!(out, "<tr>{}</tr>", cells("td", row))?;
    }
    writeln!(out, "</table>")?;
    if is_long {
        writeln!(out, "</details>")?;
    }
    writeln!(out, "<p class=\"note\">{}</p>", escape(figures::INACTIVE))
}

/// The table of sites of one device, each with its stack to unfold.
fn sites(device: &DevicePeak, shown: usize, out: &mut dyn Write) -> io::Result<()> {
    let mut top = device.attribution.clone();
    top.rows.retain(|row| row.bytes > 0);
    top.keep_top(shown);
    let name = device_name(device.device);
    let place = notes::place(device);
    writeln!(out, "<h2>{name}: what holds the memory, {}</h2>", escape(&place))?;
    let number = |tag: &str, content: &str| format!("<{tag} class=\"number\">{content}</{tag}>");
    let names = ["bytes", "share", "blocks"].map(|name| number("th", name)).concat();
    writeln!(out, "<table>\n<tr>{names}<th>{}</th></tr>", top.by.name())?;
    for row in &top.rows {
        let label = format!("<code>{}</code>", breakable(&starred(&row.label, row.inferred)));
        let label = if row.stack.is_empty() {
            label
        } else {
            let stack: Vec<String> = row.stack.iter().map(|frame| escape(frame)).collect();
            format!("<details><summary>{label}</summary><pre>{}</pre></details>", stack.join("\n"))
        };
        let share = percent(row.bytes, top.total_bytes);
        writeln!(
            out,
            "<tr><td class=\"number\">{}</td><td class=\"number\">{share:.1}%</td><td class=\"number\">{}</td><td>{label}</td></tr>",
            Bytes(row.bytes),
            row.blocks
        )?;
    }
    writeln!(out, "</table>")?;
    if top.rows.iter().any(|row| row.inferred) {
        writeln!(out, "<p class=\"note\">{}</p>", escape(notes::inferred(top.by)))?;
    }
    if let Some(line) = notes::library_below(&top) {
        writeln!(out, "<p class=\"note\">{}</p>", escape(&line))?;
    }
    Ok(())
}

fn style() -> String {
    let theme = |shade: fn(Color) -> Rgb| {
        let [text, muted, grid, background, alarm] = [TEXT, MUTED, GRID, BACKGROUND, ALARM].map(shade);
        format!(
            "body{{color:{text};background:{background}}}\nth,td{{border-color:{grid}}}\nth,.note{{color:{muted}}}\n\
             .alarm{{color:{alarm}}}\n"
        )
    };
    let (light, dark) = (theme(|color| color.light), theme(|color| color.dark));
    format!(
        "{light}@media (prefers-color-scheme:dark){{\n{dark}}}\n\
         body{{font:14px system-ui,sans-serif;max-width:900px;margin:24px auto;padding:0}}\n\
         h1,h2,p,ul,table,details{{margin-left:16px;margin-right:16px}}p,li{{overflow-wrap:anywhere}}\n\
         .more{{margin:0}}.more>summary{{margin:24px 16px;font-size:16px;font-weight:600}}\n\
         .narrow{{display:none}}\n\
         .verdict{{font-size:20px;font-weight:600}}\n\
         h1{{font-size:16px;overflow-wrap:anywhere}}\nh2{{font-size:16px;margin:28px 16px 8px}}\ntd details{{margin:0}}\n\
         table{{border-collapse:collapse}}\n\
         th,td{{border-bottom-style:solid;border-bottom-width:1px;padding:3px 16px 3px 0;vertical-align:top}}\n\
         th{{text-align:left;font-weight:400}}\ntd.number,th.number{{text-align:right;white-space:nowrap}}\n\
         code,pre{{font-family:ui-monospace,monospace;font-size:12px;overflow-wrap:anywhere}}pre{{white-space:pre-wrap}}\n\
         svg{{display:block;max-width:100%;height:auto}}\n\
         @media (max-width:760px){{td,th{{padding-right:8px}}h2{{margin-top:20px}}.narrow{{display:block}}\
         .figures th{{display:none}}.figures tr{{display:block;padding:8px 0}}\
         .figures td{{display:flex;justify-content:space-between;border:0;padding:1px 0}}\
         .figures td::before{{content:attr(data-name)}}}}\n"
    )
}

/// Text without markup that may break between the words of a path, a setting or an identifier, rather than within a word.
fn breakable(text: &str) -> String {
    let escaped = escape(text);
    let mut out = String::with_capacity(escaped.len());
    let mut last = [' '; 2];
    for next in escaped.chars() {
        let [before, separator] = last;
        if before.is_ascii_alphanumeric()
            && matches!(separator, '/' | '\\' | '_' | '=' | '-')
            && next.is_ascii_alphanumeric()
        {
            out.push_str("<wbr>");
        }
        out.push(next);
        last = [separator, next];
    }
    out
}

/// Text without markup.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for next in safe(text).chars() {
        match next {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            next => escaped.push(next),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_break_between_their_words() {
        assert_eq!(breakable("a.py:4 scaled_dot(x=<b>)"), "a.py:4 scaled_<wbr>dot(x=&lt;b&gt;)");
        assert_eq!(breakable("--own __init__ -12.14 MiB"), "--own __init__ -12.14 MiB");
    }

    #[test]
    fn markup_is_escaped() {
        assert_eq!(escape("<a href=\"x\">&\u{1b}"), "&lt;a href=&quot;x&quot;&gt;&amp;\\u{1b}");
    }
}
