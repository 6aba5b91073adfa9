//! `memviz check` as workflow commands of GitHub Actions, which become annotations of a pull request: an error for each
//! budget that is exceeded or cannot be judged, at the line that caused it, if that line is in the repository. Other budgets
//! are plain lines of the log.

use super::words::{self, CheckedInput};
use crate::analysis::check::{Check, CheckVerdict};
use crate::model::bytes::Bytes;
use crate::report::common::notes::safe;
use crate::report::common::words::starred;
use std::io::{self, Write};

/// Writes a line for each budget. `in_repository` turns a recorded path into one of the repository, if it is there.
pub fn write(
    inputs: &[CheckedInput],
    in_repository: &dyn Fn(&str) -> Option<String>,
    out: &mut dyn Write,
) -> io::Result<()> {
    for input in inputs {
        if let Err(reason) = &input.answer {
            let title = property("memviz check");
            writeln!(out, "::error title={title}::{}", message(&format!("{}: {}", input.path, reason)))?;
        }
        for check in input.checks() {
            annotation(&input.path, check, in_repository, out)?;
        }
    }
    Ok(())
}

fn annotation(
    path: &str,
    check: &Check,
    in_repository: &dyn Fn(&str) -> Option<String>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let title = words::title_below(path, check);
    match check.verdict {
        CheckVerdict::Passed | CheckVerdict::Shown => {
            let (measured, limit) = (words::measured(check), words::amount(check.limit));
            let no_match = words::no_match(check).map(|no_match| format!("; {no_match}")).unwrap_or_default();
            let verdict = check.verdict.name();
            writeln!(out, "{verdict}: {}: {}: {measured} of {limit}{no_match}", safe(path), safe(&title))
        }
        CheckVerdict::Unknown => {
            let reason = check.doubt.as_ref().map(words::doubt).unwrap_or_default();
            let text = format!("{path}: cannot be judged: {reason}");
            writeln!(out, "::error title={}::{}", property(&title), message(&text))
        }
        CheckVerdict::Failed => {
            let place =
                check.culprits.sites.iter().find_map(|site| Some((in_repository(site.file.as_ref()?)?, site.line?)));
            let place = place.map(|(file, line)| format!("file={},line={line},", property(&file)));
            let mut text = format!("{path}: {}; {}:\n", words::excess(check), words::basis(check));
            for site in &check.culprits.sites {
                text += &format!("{}  {}\n", Bytes(site.bytes), starred(&site.label, site.inferred));
            }
            let more = words::left_out(check).into_iter().chain(words::star(check).map(str::to_owned));
            text += &more.collect::<Vec<_>>().join("\n");
            let place = place.unwrap_or_default();
            writeln!(out, "::error {place}title={}::{}", property(&title), message(text.trim_end()))
        }
    }
}

/// The message of a command. memviz's line breaks become line breaks of the annotation; names contain none at this point.
fn message(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(|line| safe(line).replace('%', "%25")).collect();
    lines.join("%0A")
}

fn property(text: &str) -> String {
    let text = safe(text).replace('%', "%25");
    text.replace('\r', "%0D").replace('\n', "%0A").replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_cannot_be_broken_out_of() {
        assert_eq!(property("a,b: 5%\u{1b}"), "a%2Cb%3A 5%25\\u{1b}");
        assert_eq!(message("5% over\nsite\r::error::x"), "5%25 over%0Asite\\u{d}::error::x");
    }
}
