//! `memviz fix`.

use super::{Run, examples};
use crate::analysis::advice::RuleKind;
use crate::analysis::fix::{FixOptions, Only};
use crate::cli::args::CommonArgs;
use crate::cli::format::{DIFF, Format, RowsOrPicture};
use crate::cli::outcome::{Failure, Outcome};
use crate::cli::output;
use crate::cli::recording::{Reply, with_recording};
use crate::cli::source_folder::SourceFolder;
use crate::report::{AnswerFormat, PictureFormat, fix, plot_columns};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Write the fixes of known mistakes as a diff of the source code
///
/// The diff is for `git apply` or `patch -p1`. memviz changes no files, and writes a fix only if the recorded line has the form that the
/// fix expects; otherwise it says what it found. Exits with 1 if it writes no fix. `-o NAME.svg` draws memory before and after.
#[derive(Debug, Args)]
#[command(before_help = examples(&[
    ("memviz fix snapshot.pickle --source .", "the diff, for reading"),
    ("memviz fix snapshot.pickle --source . -o fix.patch", "keep it, for git apply"),
]))]
pub struct Fix {
    /// Folder with the source code of the recorded program
    #[arg(long, value_name = "DIR")]
    source: PathBuf,
    /// Write only this fix: its number, or the name of its mistake, as `memviz rules` lists them
    #[arg(long, value_name = "FIX", value_parser = only)]
    only: Option<Only>,
    /// Output format [default: from the output file's extension, else text]
    #[arg(long, value_enum)]
    format: Option<DiffOrPicture>,
    #[command(flatten)]
    common: CommonArgs,
}

/// An answer or a picture, if the text of the answer is a diff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DiffOrPicture(RowsOrPicture);

impl ValueEnum for DiffOrPicture {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self(RowsOrPicture::Rows(AnswerFormat::Text)),
            Self(RowsOrPicture::Rows(AnswerFormat::Json)),
            Self(RowsOrPicture::Rows(AnswerFormat::Csv)),
            Self(RowsOrPicture::Rows(AnswerFormat::Markdown)),
            Self(RowsOrPicture::Rows(AnswerFormat::JsonAndCsv)),
            Self(RowsOrPicture::Picture(PictureFormat::Svg)),
            Self(RowsOrPicture::Picture(PictureFormat::Png)),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        self.0.to_possible_value()
    }
}

impl Format for DiffOrPicture {
    const USUAL: Option<Self> = Some(Self(RowsOrPicture::Rows(AnswerFormat::Text)));

    fn extensions(&self) -> &'static [&'static str] {
        if self.0 == RowsOrPicture::Rows(AnswerFormat::Text) { DIFF } else { self.0.extensions() }
    }

    fn picture(&self) -> Option<PictureFormat> {
        self.0.picture()
    }
}

fn only(text: &str) -> Result<Only, String> {
    if let Ok(number) = text.parse() {
        return Ok(Only::Number(number));
    }
    let kind = RuleKind::ALL.iter().find(|kind| kind.name() == text);
    kind.map(|&kind| Only::Rule(kind)).ok_or_else(|| "expected a number, or a name that memviz rules lists".to_owned())
}

impl Run for Fix {
    fn run(&self) -> Result<Outcome, Failure> {
        let format = output::format(&self.common, self.format)?;
        let style = output::style(&self.common);
        let folder = SourceFolder::open(&self.source)?;
        let mut options = FixOptions::default().devices(self.common.devices());
        options.only = self.only;
        with_recording(&self.common, |recording| {
            let report = recording.fix(&options, &|path| folder.read(path))?;
            let is_written = !report.files.is_empty();
            let reply = match format.0 {
                RowsOrPicture::Rows(format) => Reply::rows(report, format, style),
                RowsOrPicture::Picture(format) => {
                    let panels = recording.histories.len();
                    let curves = report.curves(&recording.devices(), plot_columns(panels));
                    Reply::new(move |source, out| fix::draw(source, &report, &curves).write_as(format, out))
                }
            };
            Ok(reply.failed(!is_written))
        })
    }
}
