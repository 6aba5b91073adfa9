//! Gauges in Prometheus' text format.

use super::notes::safe;
use std::fmt::Display;
use std::io::{self, Write};

/// Gauges that are being written. All lines of a metric follow its head.
pub(crate) struct Gauges<'o>(pub(crate) &'o mut dyn Write);

impl Gauges<'_> {
    /// Announces a metric: `memviz_` and this name.
    pub(crate) fn head(&mut self, name: &str, help: &str) -> io::Result<()> {
        writeln!(self.0, "# HELP memviz_{name} {help}\n# TYPE memviz_{name} gauge")
    }

    pub(crate) fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) -> io::Result<()> {
        write!(self.0, "memviz_{name}")?;
        for (place, (label, text)) in labels.iter().enumerate() {
            let before = if place == 0 { '{' } else { ',' };
            write!(self.0, "{before}{label}=\"{}\"", escaped(text))?;
        }
        let end = if labels.is_empty() { "" } else { "}" };
        writeln!(self.0, "{end} {value}")
    }
}

/// A value of a label: backslashes, quotes and line ends are escaped.
fn escaped(text: &str) -> String {
    safe(text).replace('\\', "\\\\").replace('"', "\\\"")
}
