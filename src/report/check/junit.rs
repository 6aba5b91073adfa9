//! `memviz check` as `JUnit` XML, which CI systems show as test results: a suite for each input, a case for each budget
//! on each device. A budget that is exceeded is a failure, one that cannot be judged an error.

use super::words::{self, CheckedInput};
use crate::analysis::check::{Check, CheckVerdict, Culprit};
use crate::model::bytes::Bytes;
use crate::report::common::notes::safe;
use crate::report::common::words::starred;
use std::io::{self, Write};

pub fn write(inputs: &[CheckedInput], out: &mut dyn Write) -> io::Result<()> {
    let sums = inputs.iter().map(Counts::of).fold(Counts::default(), Counts::plus);
    writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    writeln!(out, "<testsuites name=\"memviz check\" {}>", sums.attributes())?;
    for input in inputs {
        let path = escape(&input.path);
        writeln!(out, "  <testsuite name=\"{path}\" {}>", Counts::of(input).attributes())?;
        match &input.answer {
            Ok((_, report)) => report.checks.iter().try_for_each(|check| case(&path, check, out))?,
            Err(reason) => {
                writeln!(out, "    <testcase classname=\"{path}\" name=\"read\">")?;
                writeln!(out, "      <error type=\"unreadable\" message=\"{}\"/>", escape(reason))?;
                writeln!(out, "    </testcase>")?;
            }
        }
        writeln!(out, "  </testsuite>")?;
    }
    writeln!(out, "</testsuites>")
}

fn case(path: &str, check: &Check, out: &mut dyn Write) -> io::Result<()> {
    let head = format!("    <testcase classname=\"{path}\" name=\"{}\"", escape(&words::title(check)));
    let kind = check.kind.name();
    match check.verdict {
        CheckVerdict::Passed | CheckVerdict::Shown => writeln!(out, "{head}/>"),
        CheckVerdict::Unknown => {
            let reason = check.doubt.as_ref().map(words::doubt).unwrap_or_default();
            writeln!(out, "{head}>")?;
            writeln!(out, "      <error type=\"{kind}\" message=\"cannot be judged: {}\"/>", escape(&reason))?;
            writeln!(out, "    </testcase>")
        }
        CheckVerdict::Failed => {
            writeln!(out, "{head}>")?;
            let sites: Vec<String> = check.culprits.sites.iter().map(line).collect();
            let text = format!("{}:\n{}{}", words::basis(check), sites.concat(), more(check));
            writeln!(
                out,
                "      <failure type=\"{kind}\" message=\"{}\">{text}</failure>",
                escape(&words::excess(check))
            )?;
            writeln!(out, "    </testcase>")
        }
    }
}

fn line(site: &Culprit) -> String {
    format!("{}  {}\n", Bytes(site.bytes), escape(&starred(&site.label, site.inferred)))
}

fn more(check: &Check) -> String {
    let lines = words::left_out(check).into_iter().chain(words::star(check).map(str::to_owned));
    lines.map(|line| line + "\n").collect()
}

#[derive(Clone, Copy, Default)]
struct Counts {
    tests: usize,
    failures: usize,
    errors: usize,
}

impl Counts {
    fn of(input: &CheckedInput) -> Self {
        if input.answer.is_err() {
            return Self { tests: 1, failures: 0, errors: 1 };
        }
        let number = |verdict| input.checks().iter().filter(|check| check.verdict == verdict).count();
        Self {
            tests: input.checks().len(),
            failures: number(CheckVerdict::Failed),
            errors: number(CheckVerdict::Unknown),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            tests: self.tests + other.tests,
            failures: self.failures + other.failures,
            errors: self.errors + other.errors,
        }
    }

    fn attributes(self) -> String {
        format!("tests=\"{}\" failures=\"{}\" errors=\"{}\"", self.tests, self.failures, self.errors)
    }
}

fn escape(text: &str) -> String {
    safe(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
