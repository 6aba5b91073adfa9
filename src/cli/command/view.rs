//! `memviz view`.

use super::{Run, examples};
use crate::Recording;
use crate::analysis::time::when::{Purpose, When};
use crate::cli::args::{CommonArgs, SharedArgs};
use crate::cli::format::Format;
use crate::cli::recording::use_threads;
use crate::cli::serve::Server;
use crate::cli::{Failure, Outcome, complain, output};
use crate::input::{ReadOptions, Unpacked};
use crate::replay::{Instant, Metric};
use crate::report::view::Reading;
use crate::report::view::page::{self, Carried};
use clap::{Args, ValueEnum};
use std::io::{self, Cursor, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

/// Look around in a recording: write a page with it and memviz itself, for a browser, without a network
#[derive(Debug, Args)]
#[command(after_help = examples(&[
    ("memviz view snapshot.pickle -o view.html --open", "a page to look around in, and to attach"),
    ("memviz view snapshot.pickle --serve", "the same at an address of this machine"),
]))]
pub struct View {
    /// Show this part first, from this instant on: peak, oom, start, end, entry:N, time:12.5s, annotation:NAME[#K]
    #[arg(long, value_name = "WHEN", requires = "input")]
    from: Option<When>,
    /// Show this part first, up to this instant
    #[arg(long, value_name = "WHEN", requires = "input")]
    to: Option<When>,
    /// Give the page out at an address of this machine that nobody can guess, until Ctrl-C, instead of writing it
    #[arg(long, conflicts_with_all = ["output", "open", "force"])]
    serve: bool,
    /// Port of that address [default: one that is free]
    #[arg(long, value_name = "N", requires = "serve", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Snapshot, profiler trace or memory timeline, plain or compressed with gzip, zstd or zip; - for standard input;
    /// without it a page that recordings are dropped on
    #[arg(value_name = "INPUT", help_heading = None::<&'static str>)]
    input: Option<PathBuf>,
    #[command(flatten)]
    shared: SharedArgs,
}

/// What the command writes.
#[derive(Clone, Debug, PartialEq, Eq, ValueEnum)]
enum PageFile {
    Html,
}

impl Format for PageFile {
    const USUAL: Option<Self> = Some(Self::Html);
    const HAS_FLAG: bool = false;

    fn extensions(&self) -> &'static [&'static str] {
        &["html", "htm"]
    }
}

/// A recording on its way into a page.
struct Input {
    path: String,
    content: Content,
    options: String,
    show: String,
    anomalies: u64,
}

/// What a recording is read from, twice: to see what it is, and to put it into the page.
enum Content {
    File(PathBuf),
    /// Standard input, which comes only once.
    Bytes(Vec<u8>),
}

impl Run for View {
    fn run(&self) -> Result<Outcome, Failure> {
        output::format::<PageFile>(&self.shared, None)?;
        if !self.serve && self.shared.output.is_none() && io::stdout().is_terminal() {
            let message = "expected -o view.html, or --serve: a terminal does not show pages";
            return Err(Failure::Message(message.to_owned()));
        }
        output::check_target(&self.shared, self.input.as_slice())?;
        use_threads(&self.shared);
        let input = self.input.as_deref().map(|input| self.read(input)).transpose()?;
        if self.serve {
            return self.serve(input.as_ref());
        }
        output::write(&self.shared, |out| write(input.as_ref(), out))?;
        let contradicts = input.is_some_and(|input| input.anomalies > 0);
        Ok(if self.shared.strict && contradicts { Outcome::CheckFailed } else { Outcome::Done })
    }
}

impl View {
    /// Reads a recording as every command does, so that what is wrong with it is told now rather than in the page.
    fn read(&self, input: &Path) -> Result<Input, Failure> {
        let path = CommonArgs::shown(input);
        let about = |error: crate::Error| Failure::about(&path, &error);
        let content = Content::of(input).map_err(about)?;
        let reading = Reading { allow_truncated: self.shared.allow_truncated, own: self.shared.own() };
        let recording = content.open().and_then(|file| Recording::read(file, &reading.options()?)).map_err(about)?;
        let show = self.show(&recording).map_err(about)?;
        let anomalies = recording.anomalies();
        Ok(Input { options: reading.to_json(), show, anomalies, path, content })
    }

    /// The part to show first, in the words of a link within the page: that of the first device asked for.
    fn show(&self, recording: &Recording) -> crate::Result<String> {
        let devices = recording.devices();
        let wanted = self.shared.devices();
        if wanted.is_empty() && self.from.is_none() && self.to.is_none() {
            return Ok(String::new());
        }
        let wanted = devices.wanted(&wanted)?;
        let mut failed = None;
        for device in wanted {
            let resolve = |when: &Option<When>, purpose, otherwise: Instant| match when {
                Some(when) => when.resolve(device.track, device.annotations(), Metric::Allocated, purpose),
                None => Ok(otherwise),
            };
            let from = resolve(&self.from, Purpose::From, 0);
            let to = resolve(&self.to, Purpose::To, device.track.entries());
            match (from, to) {
                (Ok(0), Ok(to)) if to == device.track.entries() => return Ok(format!("device={}", device.id())),
                (Ok(from), Ok(to)) if from < to => {
                    return Ok(format!("device={}&x=entry&from={from}&to={to}", device.id()));
                }
                (Ok(_), Ok(_)) => {
                    let message = format!("expected --from before --to on device {}", device.id());
                    failed.get_or_insert(crate::Error::Request(message));
                }
                (Err(error), _) | (_, Err(error)) => {
                    failed.get_or_insert(error);
                }
            }
        }
        failed.map_or(Ok(String::new()), Err)
    }

    fn serve(&self, input: Option<&Input>) -> Result<Outcome, Failure> {
        let mut page = Vec::new();
        write(input, &mut page)?;
        let about = |error: io::Error| Failure::Message(format!("127.0.0.1:{}: {error}", self.port));
        let server = Server::bind(self.port).map_err(about)?;
        let mut out = io::stdout().lock();
        writeln!(out, "{}", server.url())?;
        out.flush()?;
        drop(out);
        if !self.shared.quiet {
            let port = server.port();
            complain(&format!(
                "until Ctrl-C; on another machine, ssh -L {port}:127.0.0.1:{port} HOST makes this address work"
            ));
        }
        server.run(&page);
        Ok(Outcome::Done)
    }
}

/// Writes the page.
fn write(input: Option<&Input>, out: &mut dyn Write) -> io::Result<()> {
    let Some(Input { path, content, options, show, .. }) = input else { return page::write(None, out) };
    let file = content.open().and_then(|file| Unpacked::new(file, &ReadOptions::default()));
    let mut content = file.map_err(io::Error::other)?.into_reader();
    let name = Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy());
    page::write(Some(Carried { name: &name, options, show, content: &mut content }), out)
}

impl Content {
    fn of(input: &Path) -> crate::Result<Self> {
        if input.as_os_str() != "-" {
            return Ok(Self::File(input.to_owned()));
        }
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes)?;
        Ok(Self::Bytes(bytes))
    }

    fn open(&self) -> crate::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Self::File(path) => Box::new(crate::input::open(path)?),
            Self::Bytes(bytes) => Box::new(Cursor::new(bytes.clone())),
        })
    }
}
