//! The report as a static HTML page.

use super::findings::findings;
use super::{Page, figures};
use crate::analysis::DevicePeak;
use crate::model::bytes::Bytes;
use crate::report::common::notes::{self, device_name, safe};
use crate::report::common::picture::palette::{ALARM, BACKGROUND, Color, GRID, MUTED, TEXT};
use crate::report::common::words::starred;
use crate::report::percent;
use std::io::{self, Write};

pub fn write(page: &Page<'_>, out: &mut dyn Write) -> io::Result<()> {
    let path = escape(page.source.path);
    writeln!(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">")?;
    // Nothing is loaded or run; this makes the browser enforce it.
    writeln!(
        out,
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
    )?;
    writeln!(out, "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">")?;
    writeln!(out, "<title>{path}</title>\n<style>\n{}</style>\n</head>\n<body>", style())?;
    writeln!(out, "<h1>{path}</h1>\n<p>{}</p>", escape(&figures::recording(page)))?;
    for line in notes::source(&page.source.recording.snapshot) {
        writeln!(out, "<p class=\"note\">{}</p>", escape(&line))?;
    }
    if page.overview.peak.devices.is_empty() {
        writeln!(out, "<p>No memory was allocated on any device while recording.</p>")?;
    } else {
        // Numbers stand between the device's name and what its history lacks.
        let cells = |tag: &str, row: [String; figures::COLUMNS.len()]| -> String {
            let last = row.len() - 1;
            let class = |index| if index == 0 || index == last { "" } else { " class=\"number\"" };
            let cell = |(index, cell): (usize, String)| format!("<{tag}{}>{}</{tag}>", class(index), escape(&cell));
            row.into_iter().enumerate().map(cell).collect()
        };
        writeln!(out, "<table>\n<tr>{}</tr>", cells("th", figures::COLUMNS.map(str::to_owned)))?;
        for row in figures::rows(page) {
            writeln!(out, "<tr>{}</tr>", cells("td", row))?;
        }
        writeln!(out, "</table>")?;
    }
    for finding in findings(page) {
        writeln!(out, "<h2 class=\"alarm\">{}</h2>\n<ul>", escape(&finding.title))?;
        finding.lines.iter().try_for_each(|line| writeln!(out, "<li>{}</li>", escape(line)))?;
        writeln!(out, "</ul>")?;
    }
    for (index, (caption, pictures)) in page.pictures().into_iter().enumerate() {
        writeln!(out, "<h2>{caption}</h2>")?;
        for picture in pictures {
            picture.write(out)?;
        }
        if index == 0 {
            let (devices, shown) = page.tables();
            devices.iter().try_for_each(|device| sites(device, shown, out))?;
        }
    }
    writeln!(out, "</body>\n</html>")
}

/// The table of sites of one device, each with its stack to unfold.
fn sites(device: &DevicePeak, shown: usize, out: &mut dyn Write) -> io::Result<()> {
    let mut top = device.attribution.clone();
    top.keep_top(shown);
    let name = device_name(device.device);
    writeln!(out, "<h2>{name}: what holds the memory at the peak</h2>")?;
    let number = |tag: &str, content: &str| format!("<{tag} class=\"number\">{content}</{tag}>");
    let names = ["bytes", "share", "blocks"].map(|name| number("th", name)).concat();
    writeln!(out, "<table>\n<tr>{names}<th>{}</th></tr>", top.by.name())?;
    for row in &top.rows {
        let label = format!("<code>{}</code>", escape(&starred(&row.label, row.inferred)));
        let label = if row.stack.is_empty() {
            label
        } else {
            let stack: Vec<String> = row.stack.iter().map(|frame| escape(frame)).collect();
            format!("<details><summary>{label}</summary><pre>{}</pre></details>", stack.join("\n"))
        };
        let share = percent(row.bytes, top.total_bytes);
        writeln!(
            out,
            "<tr><td>{}</td><td>{share:.1}%</td><td>{}</td><td>{label}</td></tr>",
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
    let theme = |shade: fn(Color) -> &'static str| {
        let [text, muted, grid, background, alarm] = [TEXT, MUTED, GRID, BACKGROUND, ALARM].map(shade);
        format!(
            "body{{color:{text};background:{background}}}\nth,td{{border-color:{grid}}}\nth,.note{{color:{muted}}}\n\
             .alarm{{color:{alarm}}}\n"
        )
    };
    let (light, dark) = (theme(|color| color.light), theme(|color| color.dark));
    format!(
        "{light}@media (prefers-color-scheme:dark){{\n{dark}}}\n\
         body{{font:14px system-ui,sans-serif;max-width:1200px;margin:24px auto;padding:0 16px}}\n\
         h1{{font-size:20px;overflow-wrap:anywhere}}\nh2{{font-size:16px;margin:28px 0 8px}}\n\
         table{{border-collapse:collapse}}\n\
         th,td{{border-bottom-style:solid;border-bottom-width:1px;padding:3px 16px 3px 0;vertical-align:top}}\n\
         th{{text-align:left;font-weight:400}}\ntd.number,th.number{{text-align:right}}\n\
         code,pre{{font-family:ui-monospace,monospace;font-size:12px;overflow-wrap:anywhere}}\n\
         svg{{display:block;max-width:100%;height:auto}}\n"
    )
}

/// Text that is no markup.
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
    fn markup_is_escaped() {
        assert_eq!(escape("<a href=\"x\">&\u{1b}"), "&lt;a href=&quot;x&quot;&gt;&amp;\\u{1b}");
    }
}
