//! The format of an answer: the requested one, or the one for the output file's extension.

use crate::cli::outcome::Failure;
use crate::report::page::PageFormat;
use crate::report::{AnswerFormat, PictureFormat};
use clap::ValueEnum;
use clap::builder::PossibleValue;
use std::path::Path;

pub trait Format: ValueEnum + PartialEq {
    /// The default format; `None` if one must be named.
    const USUAL: Option<Self>;

    /// Whether there is `--format`: a command with one format does not have it.
    const HAS_FLAG: bool = true;

    /// Extensions of files in this format, in lower case, the usual one first.
    fn extensions(&self) -> &'static [&'static str];

    /// Why a terminal cannot show it; `None` if it can.
    fn not_for_terminals(&self) -> Option<&'static str> {
        self.picture().map(|_| NO_PICTURES)
    }

    /// The kind of picture, which no terminal can show.
    fn picture(&self) -> Option<PictureFormat> {
        None
    }
}

const NO_PICTURES: &str = "a terminal cannot show pictures";
#[cfg(feature = "parquet")]
const NO_TABLES: &str = "a terminal cannot show tables for databases";

pub const DIFF: &[&str] = &["diff", "patch", "txt", "text"];
const TEXT: &[&str] = &["txt", "text", "log"];
const JSON: &[&str] = &["json"];
const CSV: &[&str] = &["csv"];
const MARKDOWN: &[&str] = &["md", "markdown"];
const SVG: &[&str] = &["svg"];
const PNG: &[&str] = &["png"];
const HTML: &[&str] = &["html", "htm"];
const FOLDED: &[&str] = &["folded"];
const XML: &[&str] = &["xml"];
const PPROF: &[&str] = &["pb.gz"];
const PERFETTO: &[&str] = &["perfetto-trace", "pftrace"];
#[cfg(feature = "speedscope")]
const SPEEDSCOPE: &[&str] = &["speedscope.json"];
const PROMETHEUS: &[&str] = &["prom"];
const PARQUET: &[&str] = &["parquet"];
#[cfg(feature = "firefox")]
const FIREFOX: &[&str] = &["firefox.json"];
/// Extensions of all commands' formats: a file with such a name contains nothing else.
const KNOWN: &[&[&str]] =
    &[DIFF, TEXT, JSON, CSV, MARKDOWN, SVG, PNG, HTML, FOLDED, XML, PPROF, PERFETTO, PROMETHEUS, PARQUET];

impl Format for AnswerFormat {
    const USUAL: Option<Self> = Some(Self::Text);

    fn extensions(&self) -> &'static [&'static str] {
        match self {
            Self::Text => TEXT,
            Self::Json | Self::JsonAndCsv => JSON,
            Self::Csv => CSV,
            Self::Markdown => MARKDOWN,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsOrPicture {
    Rows(AnswerFormat),
    Picture(PictureFormat),
}

impl ValueEnum for RowsOrPicture {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self::Rows(AnswerFormat::Text),
            Self::Rows(AnswerFormat::Json),
            Self::Rows(AnswerFormat::Csv),
            Self::Rows(AnswerFormat::Markdown),
            Self::Rows(AnswerFormat::JsonAndCsv),
            Self::Picture(PictureFormat::Svg),
            Self::Picture(PictureFormat::Png),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Rows(format) => format.to_possible_value(),
            Self::Picture(format) => format.to_possible_value(),
        }
    }
}

impl Format for RowsOrPicture {
    const USUAL: Option<Self> = Some(Self::Rows(AnswerFormat::Text));

    fn extensions(&self) -> &'static [&'static str] {
        match self {
            Self::Rows(format) => format.extensions(),
            Self::Picture(format) => format.extensions(),
        }
    }

    fn picture(&self) -> Option<PictureFormat> {
        match self {
            Self::Rows(_) => None,
            Self::Picture(format) => Some(*format),
        }
    }
}

impl RowsOrPicture {
    /// Whether it is for people, who want the largest rows, rather than for other programs, which want all.
    pub fn is_for_people(self) -> bool {
        match self {
            Self::Rows(format) => format.is_for_people(),
            Self::Picture(_) => true,
        }
    }
}

impl Format for PictureFormat {
    const USUAL: Option<Self> = Some(Self::Svg);

    fn extensions(&self) -> &'static [&'static str] {
        match self {
            Self::Svg => SVG,
            Self::Png => PNG,
        }
    }

    fn picture(&self) -> Option<PictureFormat> {
        Some(*self)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlameFormat {
    Picture(PictureFormat),
    Folded,
}

impl ValueEnum for FlameFormat {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Picture(PictureFormat::Svg), Self::Picture(PictureFormat::Png), Self::Folded]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Picture(format) => format.to_possible_value(),
            Self::Folded => Some(PossibleValue::new("folded").help("Stacks for inferno, speedscope and flamegraph.pl")),
        }
    }
}

impl Format for FlameFormat {
    const USUAL: Option<Self> = Some(Self::Picture(PictureFormat::Svg));

    fn extensions(&self) -> &'static [&'static str] {
        match self {
            Self::Picture(format) => format.extensions(),
            Self::Folded => FOLDED,
        }
    }

    fn picture(&self) -> Option<PictureFormat> {
        match self {
            Self::Picture(format) => Some(*format),
            Self::Folded => None,
        }
    }
}

impl Format for PageFormat {
    const USUAL: Option<Self> = None;

    fn extensions(&self) -> &'static [&'static str] {
        match self {
            Self::Svg => SVG,
            Self::Png => PNG,
            Self::Markdown => MARKDOWN,
            Self::Html => HTML,
        }
    }

    fn picture(&self) -> Option<PictureFormat> {
        match self {
            Self::Svg => Some(PictureFormat::Svg),
            Self::Png => Some(PictureFormat::Png),
            Self::Markdown | Self::Html => None,
        }
    }
}

/// What a check can be written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CheckFormat {
    /// For people
    Text,
    /// A JSON object; for several inputs, one per line
    Json,
    /// For an issue or a step summary
    Markdown,
    /// Test results in XML
    Junit,
    /// Workflow commands of GitHub Actions
    Github,
    /// Verdicts, limits and measured bytes as gauges, for Prometheus
    Prometheus,
}

impl Format for CheckFormat {
    const USUAL: Option<Self> = Some(Self::Text);

    fn extensions(&self) -> &'static [&'static str] {
        match self {
            Self::Text | Self::Github => TEXT,
            Self::Json => JSON,
            Self::Markdown => MARKDOWN,
            Self::Junit => XML,
            Self::Prometheus => PROMETHEUS,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimelineFormat {
    Picture(PictureFormat),
    Csv,
    Json,
    /// As [`AnswerFormat::JsonAndCsv`].
    JsonAndCsv,
    #[cfg(feature = "parquet")]
    Parquet,
}

impl ValueEnum for TimelineFormat {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self::Picture(PictureFormat::Svg),
            Self::Picture(PictureFormat::Png),
            Self::Csv,
            Self::Json,
            Self::JsonAndCsv,
            #[cfg(feature = "parquet")]
            Self::Parquet,
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Picture(format) => format.to_possible_value(),
            Self::Csv => Some(PossibleValue::new("csv").help("A row for each group at each point")),
            Self::Json => Some(PossibleValue::new("json").help("The same as an object")),
            Self::JsonAndCsv => AnswerFormat::JsonAndCsv.to_possible_value(),
            #[cfg(feature = "parquet")]
            Self::Parquet => Some(PossibleValue::new("parquet").help("The same as a table for databases")),
        }
    }
}

impl Format for TimelineFormat {
    const USUAL: Option<Self> = Some(Self::Picture(PictureFormat::Svg));

    fn extensions(&self) -> &'static [&'static str] {
        match self {
            Self::Picture(format) => format.extensions(),
            Self::Csv => CSV,
            Self::Json | Self::JsonAndCsv => JSON,
            #[cfg(feature = "parquet")]
            Self::Parquet => PARQUET,
        }
    }

    fn not_for_terminals(&self) -> Option<&'static str> {
        match self {
            #[cfg(feature = "parquet")]
            Self::Parquet => Some(NO_TABLES),
            format => format.picture().map(|_| NO_PICTURES),
        }
    }

    fn picture(&self) -> Option<PictureFormat> {
        match self {
            Self::Picture(format) => Some(*format),
            _ => None,
        }
    }
}

/// What a recording can be written as for another program.
#[cfg(feature = "export")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportFormat {
    /// Memory by stack and labels, for pprof, Pyroscope and others
    #[cfg(feature = "pprof")]
    Pprof,
    /// Counters over time, with annotations, steps and phases, for Perfetto
    #[cfg(feature = "perfetto")]
    Perfetto,
    /// Memory by stack, for speedscope
    #[cfg(feature = "speedscope")]
    Speedscope,
    /// Every allocation and free, for the Firefox Profiler
    #[cfg(feature = "firefox")]
    Firefox,
    /// Memory by stack as lines of text, for flame graphs
    Folded,
    /// Tables for databases
    #[cfg(feature = "parquet")]
    Parquet,
    /// Peaks and categories as gauges, for Prometheus
    Prometheus,
}

#[cfg(feature = "export")]
impl Format for ExportFormat {
    const USUAL: Option<Self> = None;

    fn extensions(&self) -> &'static [&'static str] {
        match self {
            #[cfg(feature = "pprof")]
            Self::Pprof => PPROF,
            #[cfg(feature = "perfetto")]
            Self::Perfetto => PERFETTO,
            #[cfg(feature = "speedscope")]
            Self::Speedscope => SPEEDSCOPE,
            #[cfg(feature = "firefox")]
            Self::Firefox => FIREFOX,
            Self::Folded => FOLDED,
            #[cfg(feature = "parquet")]
            Self::Parquet => PARQUET,
            Self::Prometheus => PROMETHEUS,
        }
    }

    fn not_for_terminals(&self) -> Option<&'static str> {
        (!matches!(self, Self::Prometheus | Self::Folded)).then_some("a terminal cannot show files for other programs")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RanksFormat {
    Answer(RowsOrPicture),
    Prometheus,
    #[cfg(feature = "parquet")]
    Parquet,
}

impl ValueEnum for RanksFormat {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self::Answer(RowsOrPicture::Rows(AnswerFormat::Text)),
            Self::Answer(RowsOrPicture::Rows(AnswerFormat::Json)),
            Self::Answer(RowsOrPicture::Rows(AnswerFormat::Csv)),
            Self::Answer(RowsOrPicture::Rows(AnswerFormat::Markdown)),
            Self::Answer(RowsOrPicture::Rows(AnswerFormat::JsonAndCsv)),
            Self::Answer(RowsOrPicture::Picture(PictureFormat::Svg)),
            Self::Answer(RowsOrPicture::Picture(PictureFormat::Png)),
            Self::Prometheus,
            #[cfg(feature = "parquet")]
            Self::Parquet,
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::Answer(answer) => answer.to_possible_value(),
            Self::Prometheus => Some(PossibleValue::new("prometheus").help("Gauges of each rank, for Prometheus")),
            #[cfg(feature = "parquet")]
            Self::Parquet => {
                Some(PossibleValue::new("parquet").help("A table with a row for each rank, for databases"))
            }
        }
    }
}

impl Format for RanksFormat {
    const USUAL: Option<Self> = Some(Self::Answer(RowsOrPicture::Rows(AnswerFormat::Text)));

    fn extensions(&self) -> &'static [&'static str] {
        match self {
            Self::Answer(answer) => answer.extensions(),
            Self::Prometheus => PROMETHEUS,
            #[cfg(feature = "parquet")]
            Self::Parquet => PARQUET,
        }
    }

    fn not_for_terminals(&self) -> Option<&'static str> {
        match self {
            Self::Answer(answer) => answer.not_for_terminals(),
            Self::Prometheus => None,
            #[cfg(feature = "parquet")]
            Self::Parquet => Some(NO_TABLES),
        }
    }

    fn picture(&self) -> Option<PictureFormat> {
        match self {
            Self::Answer(answer) => answer.picture(),
            Self::Prometheus => None,
            #[cfg(feature = "parquet")]
            Self::Parquet => None,
        }
    }
}

/// The requested format, or the one for the file's name; the default if neither is given.
/// Fails if they contradict each other, or no format fits.
pub fn resolve<F: Format>(asked: Option<F>, output: Option<&Path>) -> Result<F, Failure> {
    let Some(path) = output.filter(|path| path.extension().is_some()) else {
        return asked.or(F::USUAL).ok_or_else(|| expected::<F>("no output file"));
    };
    let Some(asked) = asked else {
        let fitting = F::value_variants().iter().find(|format| is_named(*format, path));
        return fitting.cloned().ok_or_else(|| expected::<F>(&shown(output)));
    };
    // A name without a known extension contradicts nothing.
    if is_named(&asked, path) || !KNOWN.iter().any(|ends| ends_in(path, ends)) {
        return Ok(asked);
    }
    let name = asked.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned());
    let usual = asked.extensions().first().copied().unwrap_or_default();
    Err(Failure::Message(format!(
        "expected a file name ending in .{usual} for --format {name}, found {}",
        shown(output)
    )))
}

/// Whether the name of a file has an extension of this format.
pub fn is_named<F: Format>(format: &F, path: &Path) -> bool {
    ends_in(path, format.extensions())
}

/// Whether the name of a file ends in one of these extensions. Some contain a dot.
fn ends_in(path: &Path, ends: &[&str]) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    let stem = |end: &&str| name.strip_suffix(*end)?.strip_suffix('.').filter(|stem| !stem.is_empty());
    ends.iter().any(|end| stem(end).is_some())
}

fn shown(output: Option<&Path>) -> String {
    output.map_or_else(String::new, |path| path.display().to_string())
}

fn expected<F: Format>(found: &str) -> Failure {
    let mut ends: Vec<String> = Vec::new();
    let is_built = |format: &&F| format.picture().is_none_or(PictureFormat::is_built);
    for format in F::value_variants().iter().filter(is_built) {
        let end = format.extensions().first().map(|end| format!(".{end}"));
        ends.extend(end.filter(|end| !ends.contains(end)));
    }
    let last = ends.pop().unwrap_or_default();
    let ends = if ends.is_empty() { last } else { format!("{} or {last}", ends.join(", ")) };
    let or = if F::HAS_FLAG { ", or --format; found" } else { ", found" };
    Failure::Message(format!("expected -o with a file name ending in {ends}{or} {found}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<F: Format>(asked: Option<F>, name: &str) -> Result<F, String> {
        resolve(asked, Some(name.as_ref())).map_err(|failure| match failure {
            Failure::Message(message) => message,
            Failure::ClosedPipe => String::new(),
        })
    }

    #[test]
    fn names_decide() {
        assert_eq!(of(None, "a/peak.json"), Ok(AnswerFormat::Json));
        assert_eq!(of(None, "PEAK.MD"), Ok(AnswerFormat::Markdown));
        assert_eq!(of(None, "peak"), Ok(AnswerFormat::Text));
        assert_eq!(of(None, "diff.svg"), Ok(RowsOrPicture::Picture(PictureFormat::Svg)));
        assert_eq!(of(None, "result.xml"), Ok(CheckFormat::Junit));
        assert_eq!(of(Some(CheckFormat::Github), "a.txt"), Ok(CheckFormat::Github));
        assert_eq!(of(Some(AnswerFormat::Json), "ranks.jsonl"), Ok(AnswerFormat::Json), "stands for no format here");
    }

    #[test]
    fn unsuitable_formats_are_refused() {
        let peak = "expected -o with a file name ending in .txt, .json, .csv or .md, or --format; found peak.png";
        assert_eq!(of::<AnswerFormat>(None, "peak.png"), Err(peak.to_owned()));
        let check = "expected -o with a file name ending in .txt, .json, .md, .xml or .prom, or --format; found a.csv";
        assert_eq!(of::<CheckFormat>(None, "a.csv"), Err(check.to_owned()));
        let contradiction = "expected a file name ending in .json for --format json, found peak.csv";
        assert_eq!(of(Some(AnswerFormat::Json), "peak.csv"), Err(contradiction.to_owned()));
        assert!(resolve::<PageFormat>(None, None).is_err());
    }
}
