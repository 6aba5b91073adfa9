//! `memviz view`.

use super::excerpt::PartArgs;
use super::{Run, examples};
use crate::Recording;
use crate::analysis::excerpt::{Window, excerpt};
use crate::cli::args::{CommonArgs, SharedArgs, one_input};
use crate::cli::format::Format;
use crate::cli::limits;
use crate::cli::outcome::{Failure, Outcome, complain};
use crate::cli::recording::use_threads;
use crate::cli::serve::Server;
use crate::cli::{browser, files, output};
use crate::facts::device::{Device, Devices};
use crate::facts::time::when::{Purpose, When};
use crate::input::{Compression, ReadOptions, Unpacked, device_file};
use crate::model::Snapshot;
use crate::replay::Metric;
use crate::report::safe;
use crate::report::view::page::{self, Carried};
use crate::report::view::{Reading, all_findings};
use crate::wire;
use clap::{Args, ValueEnum};
use std::io::{self, Cursor, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Open an interactive page of a recording in the browser
///
/// On a terminal, memviz writes a temporary page and opens it. With -o, or in a pipeline, it writes the page to the file or to the
/// pipe instead. The page works offline, and opens at the OOM if there is one.
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz view snapshot.pickle", "open the recording in the browser"),
    ("memviz view snapshot.pickle -o view.html", "keep the page, or send it"),
]))]
pub struct View {
    #[command(flatten)]
    part: PartArgs,
    /// Serve the page on localhost at a random URL until Ctrl-C, instead of writing it
    #[arg(long, conflicts_with_all = ["output", "open", "force"])]
    serve: bool,
    /// Port to serve on [default: a free one]
    #[arg(long, value_name = "N", requires = "serve", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Snapshot, profiler trace or memory timeline; - for standard input
    ///
    /// Plain, or compressed with gzip, zstd or zip; or a folder with one recording. Without INPUT, the page is empty: drop recordings onto it.
    #[arg(value_name = "INPUT", help_heading = None::<&'static str>, value_parser = one_input())]
    input: Option<PathBuf>,
    #[command(flatten)]
    shared: SharedArgs,
}

/// The output of the command.
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

/// A recording for the page.
struct Input {
    name: String,
    content: Content,
    options: String,
    /// Samples of the whole device next to it.
    samples: String,
    /// Its findings, for the page; empty for a part of a recording.
    findings: String,
    show: String,
    anomalies: u64,
}

/// What the page contains.
enum Content {
    /// The recording as it is, and its compression. It is read twice: to recognize it, and to copy it into the page.
    Whole(Origin, Compression),
    /// A part of it.
    Part(Box<Snapshot>),
}

/// The source of a recording.
enum Origin {
    File(PathBuf),
    /// A pipe, which can be read only once.
    Bytes(Arc<[u8]>),
}

impl Run for View {
    fn run(&self) -> Result<Outcome, Failure> {
        // A terminal cannot show pages.
        let is_seen = self.shared.open || io::stdout().is_terminal();
        let is_temporary = !self.serve && self.shared.output.is_none() && is_seen;
        if !is_temporary {
            output::format::<PageFile>(&self.shared, None)?;
        }
        output::check_target(&self.shared, self.input.as_slice())?;
        use_threads(&self.shared);
        let input = self.input.as_deref().map(|input| self.read(input)).transpose()?;
        if self.serve {
            return self.serve(input.as_ref());
        }
        if is_temporary {
            self.browse(input.as_ref())?;
        } else {
            output::write(&self.shared, |out| write(input.as_ref(), out))?;
        }
        let contradicts = input.is_some_and(|input| input.anomalies > 0);
        Ok(if self.shared.strict && contradicts { Outcome::CheckFailed } else { Outcome::Done })
    }
}

impl View {
    /// Reads a recording like every command, so that errors are reported now rather than in the page.
    fn read(&self, input: &Path) -> Result<Input, Failure> {
        let path = CommonArgs::shown(input);
        let about = |error: crate::Error| Failure::about(&path, &error);
        let origin = Origin::of(input).map_err(about)?;
        let reading = Reading { allow_truncated: self.shared.allow_truncated, own: self.shared.own() };
        let recording = origin.open().and_then(|file| Recording::read(file, &reading.options()?)).map_err(about)?;
        let (options, anomalies, compression) = (reading.to_json(), recording.anomalies(), recording.compression);
        let name = Path::new(&path).file_name().map_or(path.clone(), |name| name.to_string_lossy().into_owned());
        let devices = recording.devices();
        let windows = self.part.windows(&devices, &self.shared).map_err(about)?;
        let is_whole = windows.len() == devices.all().len() && windows.iter().all(|window| is_whole(&devices, window));
        if is_whole {
            let show = shown_failure(&devices);
            let samples = samples_beside(input, self.shared.quiet);
            // Without them, the page says why there are none.
            let findings = all_findings(&devices).unwrap_or_default();
            let content = Content::Whole(origin, compression);
            return Ok(Input { name, content, options, samples, findings, show, anomalies });
        }
        if !recording.snapshot.notes.format.has_segments() {
            let show = windows.first().map(|window| shown_first(&devices, window)).unwrap_or_default();
            let (content, samples, findings) = (Content::Whole(origin, compression), String::new(), String::new());
            return Ok(Input { name, content, options, samples, findings, show, anomalies });
        }
        let part = Box::new(excerpt(&devices, &windows).map_err(about)?);
        let name = format!("{name}, {}", described(&devices, &windows));
        let content = Content::Part(part);
        let (samples, findings, show) = (String::new(), String::new(), String::new());
        Ok(Input { name, content, options, samples, findings, show, anomalies })
    }

    /// Writes a page that only this user can read, and opens it in the browser; without a browser, prints the path of the
    /// page.
    fn browse(&self, input: Option<&Input>) -> Result<(), Failure> {
        let page = files::write_temporary("memviz.html", |out| write(input, out))?;
        let opened = browser::browse(&page);
        if opened.is_err() || !self.shared.quiet {
            writeln!(io::stdout(), "{}", safe(&page.display().to_string()))?;
        }
        if let Err(error) = opened {
            complain(&format!("{error}; open the page above, or run memviz view with --serve"));
        }
        Ok(())
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
                "serving until Ctrl-C; on another machine, ssh -L {port}:127.0.0.1:{port} HOST makes this address work"
            ));
        }
        limits::lift();
        server.run(&page);
        Ok(Outcome::Done)
    }
}

/// The samples of the whole device next to a recording, unchanged. If they cannot be read, memviz warns and leaves them out.
fn samples_beside(recording: &Path, quiet: bool) -> String {
    if recording.as_os_str() == "-" {
        return String::new();
    }
    let path = device_file::path_beside(recording);
    match device_file::beside(recording) {
        Ok(known) => known.and_then(|_| std::fs::read_to_string(path).ok()).unwrap_or_default(),
        Err(error) => {
            if !quiet {
                complain(&error.to_string());
            }
            String::new()
        }
    }
}

fn is_whole(devices: &Devices<'_>, window: &Window) -> bool {
    devices.get(window.device).is_some_and(|device| *window == Window::whole(device))
}

/// The first failed request, as a link within the page: empty if there is none, and the page then opens at the peak.
fn shown_failure(devices: &Devices<'_>) -> String {
    let failed = |device: &Device<'_>| {
        let instant = device.instant(&When::Oom, Metric::Allocated, Purpose::At).ok()?;
        Some(format!("device={}&at={instant}", device.id()))
    };
    devices.all().iter().find_map(failed).unwrap_or_default()
}

/// A window, as a link within the page.
fn shown_first(devices: &Devices<'_>, window: &Window) -> String {
    let Window { device, from, to } = window;
    if is_whole(devices, window) {
        return format!("device={device}");
    }
    // The state at an instant is shown up to the next instant.
    let to = u64::from(*to) + 1;
    format!("device={device}&x=entry&from={from}&to={to}")
}

/// Windows for people: entries by their numbers in the whole recording, including both ends.
fn described(devices: &Devices<'_>, windows: &[Window]) -> String {
    let has_several = devices.all().len() > 1;
    let one = |window: &Window| {
        let Window { device, from, to } = window;
        let of_device = if has_several { format!("device {device}") } else { String::new() };
        if is_whole(devices, window) {
            return of_device;
        }
        let entries = devices.get(*device).map_or(0, |device| device.track.entries());
        let space = if has_several { " " } else { "" };
        format!("{of_device}{space}entries {from} to {} of {entries}", to.saturating_sub(1))
    };
    windows.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Writes the page.
fn write(input: Option<&Input>, out: &mut dyn Write) -> io::Result<()> {
    let Some(Input { name, content, options, samples, findings, show, .. }) = input else {
        return page::write(None, out);
    };
    let mut write = |out: &mut dyn Write| match content {
        Content::Part(snapshot) => wire::snapshot::write(snapshot, out),
        Content::Whole(origin, Compression::Zstd) => {
            let mut file = origin.open().map_err(io::Error::other)?;
            io::copy(&mut file, out).map(|_| ())
        }
        Content::Whole(origin, _) => {
            let file = origin.open().and_then(|file| Unpacked::new(file, &ReadOptions::default()));
            io::copy(&mut file.map_err(io::Error::other)?.into_reader(), out).map(|_| ())
        }
    };
    let is_packed = matches!(content, Content::Whole(_, Compression::Zstd));
    page::write(Some(Carried { name, options, samples, findings, show, content: &mut write, is_packed }), out)
}

impl Origin {
    fn of(input: &Path) -> crate::Result<Self> {
        let mut bytes = Vec::new();
        if input.as_os_str() == "-" {
            io::stdin().lock().read_to_end(&mut bytes)?;
        } else {
            let mut file = crate::input::open(input)?;
            if file.metadata()?.is_file() {
                return Ok(Self::File(input.to_owned()));
            }
            file.read_to_end(&mut bytes)?;
        }
        Ok(Self::Bytes(bytes.into()))
    }

    fn open(&self) -> crate::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Self::File(path) => Box::new(crate::input::open(path)?),
            Self::Bytes(bytes) => Box::new(Cursor::new(Arc::clone(bytes))),
        })
    }
}
