//! The destinations of answers, and their style.

use super::args::{Color, SharedArgs};
use super::desktop;
use super::files::Staged;
use super::format::{self, Format};
use crate::cli::outcome::Failure;
use crate::report::{TextStyle, safe};
use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::sync::LazyLock;

pub fn style(args: &SharedArgs) -> TextStyle {
    let to_terminal = args.output.is_none() && io::stdout().is_terminal();
    let color = match args.color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => to_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    };
    TextStyle {
        width: to_terminal.then(terminal_width).flatten(),
        color,
        advice: !args.quiet,
        program: program(),
        all: false,
    }
}

/// How memviz was called, if that is a path to a folder where a shell does not look for programs.
fn program() -> Option<&'static str> {
    static CALLED: LazyLock<Option<String>> = LazyLock::new(|| {
        let called = std::env::args_os().next()?.into_string().ok()?;
        let folder = Path::new(&called).parent().filter(|folder| !folder.as_os_str().is_empty())?;
        let searched = std::env::var_os("PATH").unwrap_or_default();
        let is_found = std::env::split_paths(&searched).any(|searched| searched == folder);
        (!is_found).then_some(called)
    });
    CALLED.as_deref()
}

/// Columns of the terminal: `COLUMNS` if set, otherwise as the terminal reports.
fn terminal_width() -> Option<usize> {
    let variable =
        std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).filter(|&columns| columns > 0);
    variable.or_else(|| terminal_size::terminal_size().map(|(width, _)| usize::from(width.0)))
}

/// The format of an answer, from the options and the destination: see [`format::resolve`]. Fails if they contradict
/// each other, or the destination cannot show the answer: this is checked before any work is done.
pub fn format<F: Format>(args: &SharedArgs, asked: Option<F>) -> Result<F, Failure> {
    let file = target(args).filter(|path| !is_stream(path));
    let format = format::resolve(asked, file)?;
    if format.picture().is_some_and(|picture| !picture.is_built()) {
        let message = "expected a build of memviz with PNG support (cargo install --path . --features png), or a file name ending in .svg";
        return Err(Failure::Message(message.to_owned()));
    }
    if let Some(reason) = format.not_for_terminals()
        && args.output.is_none()
        && io::stdout().is_terminal()
    {
        return Err(Failure::Message(format!("expected -o FILE: {reason}")));
    }
    // The desktop might run a file with another extension.
    if args.open && !file.is_some_and(|path| format::is_named(&format, path)) {
        let end = format.extensions().first().copied().unwrap_or_default();
        return Err(Failure::Message(format!("--open needs -o with a file name ending in .{end}")));
    }
    Ok(format)
}

/// Writes an answer to the file or to standard output, and reports the size of a file, unless quiet. If the reader of a pipe
/// has closed it, that is not a failure and does not change the exit code: a verdict does not depend on who reads the text.
pub fn write(args: &SharedArgs, render: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    let Some(path) = target(args) else {
        let mut out = BufWriter::new(io::stdout().lock());
        let written = render(&mut out).and_then(|()| out.flush());
        return Ok(unless_closed(written)?);
    };
    write_file(args, path, render)
}

/// The same for a file with another name.
pub fn write_file(
    args: &SharedArgs,
    path: &Path,
    render: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Failure> {
    let about = |error: io::Error| Failure::Message(format!("{}: {error}", path.display()));
    if is_stream(path) {
        let mut out = BufWriter::new(OpenOptions::new().write(true).open(path).map_err(about)?);
        return unless_closed(render(&mut out).and_then(|()| out.flush())).map_err(about);
    }
    let staged = Staged::write(path, render).map_err(about)?;
    let placed = if args.force { staged.replace() } else { staged.create() };
    placed.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => exists(path),
        _ => about(error),
    })?;
    report_written(args, path).map_err(about)?;
    if args.open { desktop::open(path).map_err(about) } else { Ok(()) }
}

/// Reports on standard error that a file was written, with its size, unless quiet.
pub fn report_written(args: &SharedArgs, path: &Path) -> io::Result<()> {
    if !args.quiet {
        let bytes = path.metadata()?.len();
        // If standard error is closed, nothing can be reported.
        let _ = writeln!(io::stderr(), "wrote {}, {}", safe(&path.display().to_string()), size(bytes));
    }
    Ok(())
}

/// The size of a file as file managers show it, in powers of 1000.
fn size(bytes: u64) -> String {
    match bytes {
        ..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{} KB", (bytes + 500) / 1_000),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// Removes the answer of an earlier run that this run replaces, so that it cannot be mistaken for the new answer if this run
/// fails. To be called after [`check_target`].
pub fn forget_old(args: &SharedArgs) -> Result<(), Failure> {
    let Some(path) = target(args).filter(|path| args.force && path.is_file()) else { return Ok(()) };
    fs::remove_file(path).map_err(|error| Failure::Message(format!("{}: {error}", path.display())))
}

/// The requested file; `None` for standard output.
fn target(args: &SharedArgs) -> Option<&Path> {
    args.output.as_deref().filter(|path| path.as_os_str() != "-")
}

/// Whether a path is a stream, such as a pipe or a terminal, rather than a file to replace.
fn is_stream(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

/// Ignores the error of a closed pipe.
fn unless_closed(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Refuses a bad target before any work is done: a file that exists, one in a folder that does not, or an input.
pub fn check_target(args: &SharedArgs, inputs: &[impl AsRef<Path>]) -> Result<(), Failure> {
    let Some(path) = target(args) else { return Ok(()) };
    let same = |input: &Path| matches!((path.canonicalize(), input.canonicalize()), (Ok(a), Ok(b)) if a == b);
    if !is_stream(path) && inputs.iter().any(|input| same(input.as_ref())) {
        return Err(Failure::Message(format!("{} is the input file, which memviz never overwrites", path.display())));
    }
    let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    if let Some(folder) = path.parent().filter(is_missing) {
        let (path, folder) = (path.display(), folder.display());
        return Err(Failure::Message(format!("{path}: the folder {folder} does not exist")));
    }
    // A broken link exists, too.
    let is_there = path.symlink_metadata().is_ok();
    if is_there && !args.force && !is_stream(path) { Err(exists(path)) } else { Ok(()) }
}

fn exists(path: &Path) -> Failure {
    Failure::Message(if path.is_dir() {
        format!("expected a file for --output, found the folder {}", path.display())
    } else {
        format!("{} already exists; --force overwrites it", path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_files_are_short() {
        assert_eq!(
            [999, 1_000, 84_499, 999_499, 1_250_000].map(size),
            ["999 bytes", "1 KB", "84 KB", "999 KB", "1.2 MB"]
        );
    }
}
