//! Output: threads, pictures, formats, widths, and the examples of the source.

use super::{FORMATS, RANKS8, TRACE, put, rank8, summary, written};
use crate::support::{self, FIXTURES, MALFORMED, Run, command, fixture, memviz, memviz_reading, names, read_text};
use memviz::Recording;
use memviz::analysis::peak::PeakOptions;
use memviz::analysis::ranks::RanksReport;
use memviz::input::ReadOptions;
use memviz::ranks::{RankInputs, RanksOptions};
use memviz::replay::Metric;
use memviz::report::{Answer, TextStyle};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tempfile::TempDir;
use unicode_width::UnicodeWidthStr;

#[test]
fn the_number_of_threads_does_not_show() {
    let broken = format!("{MALFORMED}/truncated-in-segments.pickle");
    for format in [&FORMATS[..], &["svg"]].concat() {
        let args = ["ranks", RANKS8, &broken, &fixture("multi_gpu"), "--format", format];
        let one = memviz(&[&args[..], &["--threads", "1"]].concat());
        one.expect(2);
        for threads in ["2", "8", "64"] {
            assert_eq!(memviz(&[&args[..], &["--threads", threads]].concat()), one, "{format}, {threads} threads");
        }
    }
}

/// Reading on one thread is another way to the same recording.
#[test]
fn one_thread_reads_what_several_do() {
    let mut one = ReadOptions::default();
    one.on_one_thread = true;
    let told = |path: &str, options: &ReadOptions| match Recording::open(path.as_ref(), options) {
        Ok(recording) => format!("{:?}", recording.peak(&PeakOptions::default()).map(|peak| peak.devices)),
        Err(error) => format!("{error:?}"),
    };
    let malformed = names(MALFORMED).into_iter().map(|name| format!("{MALFORMED}/{name}"));
    let fixtures = names(FIXTURES).into_iter().map(|name| format!("{FIXTURES}/{name}/snapshot.pickle.gz"));
    let traces = names("fixtures/traces").into_iter().flat_map(|folder| {
        let folder = format!("fixtures/traces/{folder}");
        names(&folder).into_iter().map(move |name| format!("{folder}/{name}"))
    });
    let paths: Vec<String> = malformed.chain(fixtures).chain(traces).filter(|path| Path::new(path).exists()).collect();
    assert!(paths.len() > 100);
    for path in paths {
        assert_eq!(told(&path, &one), told(&path, &ReadOptions::default()), "{path}");
    }
}

#[test]
fn pictures_are_drawn_for_any_number_of_ranks() {
    for number in [0, 1, 3, 64, 129, 541, 1080] {
        let summaries: Vec<Value> =
            (0..number).map(|rank| summary(rank, if rank == 40 { 9 << 30 } else { 4 << 30 })).collect();
        let run = memviz_reading(&["ranks", "-", "--format", "svg"], written(&summaries).as_bytes());
        run.expect(if number == 0 { 2 } else { 0 });
        assert!(run.stdout.len() < 500_000);
        let document = roxmltree::Document::parse(&run.stdout).unwrap();
        let texts: Vec<&str> = document.descendants().filter_map(|node| node.text()).map(str::trim).collect();
        assert_eq!(texts.contains(&"rank 40"), number > 40, "{number} ranks");
    }
}

#[test]
fn rows_come_before_the_last_file_is_read() {
    let mut child = command(&["ranks", &rank8(0), "-", "--threads", "1", "--format", "json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    // Standard input is still open.
    std::io::BufRead::read_line(&mut stdout, &mut line).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["rank"], 0);
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(2), "nothing came from standard input");
}

#[test]
fn a_closed_pipe_ends_quietly() {
    for format in [&FORMATS[..], &["svg"]].concat() {
        let args = ["ranks", RANKS8, "--threads", "2", "--format", format];
        let mut child = command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let run = Run::from(child.wait_with_output().unwrap());
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{format}");
    }
}

#[test]
fn csv_and_markdown_hold_every_rank() {
    let csv = memviz(&["ranks", RANKS8, "--format", "csv"]).stdout;
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 9);
    let column = |name: &str| rows[0].iter().position(|&head| head == name).unwrap();
    let state_without: Vec<&str> =
        rows.iter().filter(|row| !row[column("outlier")].is_empty()).map(|row| row[column("rank")]).collect();
    assert_eq!(state_without, ["rank", "5"]);
    assert_eq!(rows[6][column("max_allocated_bytes")], "6469628928");
    let markdown = memviz(&["ranks", RANKS8, "--format", "markdown"]).stdout;
    assert!(markdown.contains("### Outlier rank 5: allocated 6.03 GiB"), "{markdown}");
    assert_eq!(markdown.lines().filter(|line| line.contains("/rank") && line.starts_with('|')).count(), 8);
}

#[test]
fn output_does_not_overwrite_an_input() {
    let folder = TempDir::new().unwrap();
    let svg = folder.path().join("ranks.svg");
    let svg = svg.to_str().unwrap();
    memviz(&["ranks", RANKS8, "-o", svg]).expect(0);
    assert!(read_text(svg).contains("<svg"));
    memviz(&["ranks", RANKS8, "-o", svg]).expect_error("--force overwrites it");
    let input = put(&folder, "rank0.pickle.gz", fs::read(rank8(0)).unwrap());
    memviz(&["ranks", &rank8(1), &input, "--format", "text", "-o", &input, "--force"]).expect_error("is the input");
    for args in [&["ranks"] as &[&str], &["ranks", RANKS8, "--top", "0"], &["ranks", RANKS8, "--threads", "0"]] {
        let run = memviz(args);
        run.expect(2);
        assert_eq!(run.stdout, "");
    }
}

#[test]
fn every_line_fits_into_the_terminal() {
    let empty = fixture("empty");
    let broken = format!("{MALFORMED}/truncated-in-segments.pickle");
    let options = RanksOptions::default();
    let paths = [RANKS8, &empty, &broken, &fixture("skip_actions"), TRACE].map(PathBuf::from);
    let mut lines = Vec::new();
    let keep = |line| {
        lines.push(line);
        Ok(())
    };
    RankInputs::of(&paths, &options).summarize(&options, keep).unwrap();
    let report = RanksReport::of(lines, Metric::Allocated);
    for width in (50..=220).step_by(10) {
        let mut out = Vec::new();
        report
            .text((), TextStyle { width: Some(width), color: false, advice: true, ..TextStyle::default() }, &mut out)
            .unwrap();
        let out = String::from_utf8(out).unwrap();
        // Commands are to be copied as they are.
        let wide = out.lines().filter(|line| line.width() > width && !line.starts_with("memviz "));
        let wide: Vec<&str> = wide.collect();
        assert!(wide.is_empty(), "{width} columns: {wide:#?}");
        assert!(out.contains("Outlier rank 5"), "{out}");
    }
}

/// A command of `examples/` with the binary on its path.
fn example(program: &str, args: &[&str]) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    command.args(args).env("PATH", crate::support::path_with_memviz()).stdin(Stdio::null());
    command
}

#[test]
#[cfg(unix)]
fn the_slurm_example_summarizes_and_joins() {
    let folder = TempDir::new().unwrap();
    let [summaries, picture] = ["summaries", "ranks.svg"].map(|name| folder.path().join(name));
    let (summaries, picture) = (summaries.to_str().unwrap(), picture.to_str().unwrap());
    // Slurm sets these for each task of an array; the last one finds nothing left to do.
    for task in 0..10 {
        let mut command = example("bash", &["examples/ranks_slurm.sh", "summarize", RANKS8, summaries]);
        command.env("SLURM_ARRAY_TASK_ID", task.to_string()).env("SLURM_ARRAY_TASK_COUNT", "10");
        Run::from(command.output().unwrap()).expect(0);
    }
    assert_eq!(names(summaries).len(), 8);
    let joined = Run::from(example("bash", &["examples/ranks_slurm.sh", "join", summaries, picture]).output().unwrap());
    joined.expect(0);
    assert_eq!(joined.stdout.lines().skip(9).collect::<Vec<_>>(), {
        let whole = memviz(&["ranks", &format!("{RANKS8}/*.gz")]).stdout;
        whole.lines().skip(9).map(str::to_owned).collect::<Vec<_>>()
    });
    assert!(read_text(picture).contains("Outlier rank 5"));
    Run::from(example("bash", &["examples/ranks_slurm.sh"]).output().unwrap()).expect(2);
}

/// As much of Spark as the example uses.
const SPARK: &str = r#"
import glob

class Collection:
    def __init__(self, items): self.items = items
    def flatMap(self, of): return Collection([each for item in self.items for each in of(item)])
    def collect(self): return self.items

class SparkSession:
    def appName(self, name): return self
    def getOrCreate(self): return self
    def stop(self): pass
    @property
    def sparkContext(self): return self
    def binaryFiles(self, paths):
        return Collection([("file:" + path, open(path, "rb").read()) for path in sorted(glob.glob(paths))])

SparkSession.builder = SparkSession()
"#;

#[test]
fn the_spark_example_summarizes_and_joins() {
    if example("python3", &["--version"]).output().is_err() {
        return support::skipped("there is no python3");
    }
    let folder = TempDir::new().unwrap();
    put(&folder, "pyspark/__init__.py", "");
    put(&folder, "pyspark/sql.py", SPARK);
    let picture = folder.path().join("ranks.svg");
    let recordings = format!("{RANKS8}/*.pickle.gz");
    let args = ["examples/ranks_pyspark.py", &recordings, "--output", picture.to_str().unwrap()];
    let run = Run::from(example("python3", &args).env("PYTHONPATH", folder.path()).output().unwrap());
    run.expect(0);
    assert!(run.stdout.contains("Outlier rank 5"), "{}", run.stdout);
    assert!(run.stdout.contains(&format!("file:{RANKS8}/rank5.pickle.gz")), "{}", run.stdout);
    assert!(read_text(picture.to_str().unwrap()).contains("Outlier rank 5"));
}
