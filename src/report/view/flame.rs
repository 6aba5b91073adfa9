//! Live bytes by stack, as a tree.

use super::json;
use crate::analysis::flame::{FlameNode, FlameReport};
use crate::report::flamegraph::picture::color;
use serde::Serialize;

#[derive(Serialize)]
struct Node<'a> {
    label: &'a str,
    light: &'static str,
    dark: &'static str,
    bytes: u64,
    own_bytes: u64,
    blocks: u64,
    depth: usize,
    start: u64,
}

/// The nodes of the first device's tree, each before its callees.
pub fn flame(report: &FlameReport) -> String {
    let nodes: Vec<Node<'_>> = report.devices.iter().take(1).flat_map(|device| &device.nodes).map(Node::from).collect();
    json(&nodes)
}

impl<'a> From<&'a FlameNode> for Node<'a> {
    fn from(node: &'a FlameNode) -> Self {
        let color = color(node);
        let FlameNode { label, bytes, own_bytes, blocks, depth, start, .. } = node;
        Self {
            label,
            light: color.light,
            dark: color.dark,
            bytes: *bytes,
            own_bytes: *own_bytes,
            blocks: *blocks,
            depth: *depth,
            start: *start,
        }
    }
}
