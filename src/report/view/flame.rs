//! Live bytes by stack, as a tree.

use super::json;
use crate::analysis::flame::FlameNode;
use crate::report::common::palette::Rgb;
use crate::report::flamegraph::colors::Colors;
use serde::Serialize;

#[derive(Serialize)]
struct Node<'a> {
    label: &'a str,
    light: Rgb,
    dark: Rgb,
    bytes: u64,
    own_bytes: u64,
    blocks: u64,
    depth: usize,
    start: u64,
}

/// The nodes of a tree, each before its callees.
pub fn flame(nodes: &[FlameNode]) -> String {
    let colors = Colors::of(nodes.iter());
    json(&nodes.iter().map(|node| Node::of(node, &colors)).collect::<Vec<_>>())
}

impl<'a> Node<'a> {
    fn of(node: &'a FlameNode, colors: &Colors<'_>) -> Self {
        let color = colors.of_node(node);
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
