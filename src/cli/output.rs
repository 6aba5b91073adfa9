//! Where answers go and what they look like there.

use super::Failure;
use super::args::{ColorArg, FormatArg, SharedArgs};
use crate::report::{CsvReport, JsonReport, MarkdownReport, Render, TextReport};
use std::fs::OpenOptions;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

/// The renderer for the format asked for.
pub fn renderer(args: &SharedArgs, format: FormatArg) -> Box<dyn Render> {
    match format {
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
    let variable =
        std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).filter(|&columns| columns > 0);
    variable.or_else(|| terminal_size::terminal_size().map(|(width, _)| usize::from(width.0)))
}

/// Writes an answer to the file or to standard output.
pub fn write(args: &SharedArgs, render: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    let Some(path) = args.output.as_deref().filter(|path| path.as_os_str() != "-") else {
        let mut out = BufWriter::new(io::stdout().lock());
        render(&mut out)?;
        return Ok(out.flush()?);
    };
    let shown = path.display();
    let created =
        OpenOptions::new().write(true).create(true).truncate(true).create_new(!may_replace(args, path)).open(path);
    let file = created.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => exists(path),
        _ => Failure::Message(format!("{shown}: {error}")),
    })?;
    let mut out = BufWriter::new(file);
    render(&mut out).and_then(|()| out.flush()).map_err(|error| Failure::Message(format!("{shown}: {error}")))
}

/// Refuses to write a picture to a terminal, where nobody can see it.
pub fn check_picture_target(args: &SharedArgs) -> Result<(), Failure> {
    if args.output.is_none() && io::stdout().is_terminal() {
        return Err(Failure::Message("expected -o FILE: a terminal does not show SVG".to_owned()));
    }
    Ok(())
}

/// Refuses a bad target before any work is done for it: a file that exists, or an input itself.
pub fn check_target(args: &SharedArgs, inputs: &[impl AsRef<Path>]) -> Result<(), Failure> {
    let Some(path) = args.output.as_deref().filter(|path| path.as_os_str() != "-") else { return Ok(()) };
    let same = |input: &Path| matches!((path.canonicalize(), input.canonicalize()), (Ok(a), Ok(b)) if a == b);
    if inputs.iter().any(|input| same(input.as_ref())) {
        return Err(Failure::Message(format!("{}: is the input, which is never overwritten", path.display())));
    }
    if path.exists() && !may_replace(args, path) { Err(exists(path)) } else { Ok(()) }
}

/// Whether writing to `path` may replace what is there: when asked to, or when it is no regular file.
fn may_replace(args: &SharedArgs, path: &Path) -> bool {
    args.force || path.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

fn exists(path: &Path) -> Failure {
    Failure::Message(format!("{}: exists; --force overwrites it", path.display()))
}
