//! Where answers go and what they look like there.

use super::Failure;
use super::args::{ColorArg, CommonArgs, FormatArg};
use crate::report::{CsvReport, JsonReport, MarkdownReport, Render, TextReport};
use std::fs::OpenOptions;
use std::io::{self, BufWriter, IsTerminal, Write};

/// The renderer for the format asked for.
pub fn renderer(args: &CommonArgs) -> Box<dyn Render> {
    match args.format {
        FormatArg::Json => Box::new(JsonReport),
        FormatArg::Csv => Box::new(CsvReport),
        FormatArg::Markdown => Box::new(MarkdownReport),
        FormatArg::Text => {
            let to_terminal = args.output.is_none() && io::stdout().is_terminal();
            let color = match args.color {
                ColorArg::Always => true,
                ColorArg::Never => false,
                ColorArg::Auto => to_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            };
            Box::new(TextReport { width: to_terminal.then(terminal_width).flatten(), color })
        }
    }
}

/// Columns of the terminal: `COLUMNS` if set, else what the terminal says.
fn terminal_width() -> Option<usize> {
    let variable = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    variable.or_else(|| terminal_size::terminal_size().map(|(width, _)| usize::from(width.0)))
}

/// Writes an answer to the file or to standard output.
pub fn write(args: &CommonArgs, render: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    let Some(path) = &args.output else {
        let mut out = BufWriter::new(io::stdout().lock());
        render(&mut out)?;
        return Ok(out.flush()?);
    };
    let file = OpenOptions::new().write(true).create(true).truncate(true).create_new(!args.force).open(path);
    let shown = path.display();
    let file = file.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Failure::Message(format!("{shown}: exists; --force overwrites it")),
        _ => Failure::Message(format!("{shown}: {error}")),
    })?;
    let mut out = BufWriter::new(file);
    render(&mut out).and_then(|()| out.flush()).map_err(|error| Failure::Message(format!("{shown}: {error}")))
}

/// Refuses an output file that exists before any work is done for it.
pub fn check_target(args: &CommonArgs) -> Result<(), Failure> {
    match &args.output {
        Some(path) if !args.force && path.exists() => {
            Err(Failure::Message(format!("{}: exists; --force overwrites it", path.display())))
        }
        _ => Ok(()),
    }
}
