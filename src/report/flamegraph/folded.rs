//! Folded stacks: a line per stack, `root;caller;callee bytes`, as flame graph tools read them.

use crate::analysis::flame::FlameReport;
use crate::report::common::notes::{device_name, safe};
use std::io::{self, Write};

/// Writes one line for each stack that holds bytes. With several devices, the device is the root.
pub fn write(report: &FlameReport, out: &mut dyn Write) -> io::Result<()> {
    for device in &report.devices {
        let mut path: Vec<String> = Vec::new();
        for node in &device.nodes {
            path.truncate(node.depth);
            path.push(match (node.depth, report.devices.len()) {
                (0, 1) => String::new(),
                (0, _) => device_name(device.peak.device),
                // A semicolon separates frames.
                _ => safe(&node.label).replace(';', ","),
            });
            if node.own_bytes > 0 {
                let frames: Vec<&str> = path.iter().map(String::as_str).filter(|frame| !frame.is_empty()).collect();
                writeln!(out, "{} {}", frames.join(";"), node.own_bytes)?;
            }
        }
    }
    Ok(())
}
