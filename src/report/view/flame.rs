//! Live bytes by stack, as a tree.

use super::json;
use crate::analysis::flame::FlameNode;
use crate::report::common::json::keys;
use crate::report::common::palette::Rgb;
use crate::report::flamegraph::colors::Colors;

keys! {

    struct Node<'a>(node: &'a FlameNode, colors: &Colors<'_>) {
        let color = colors.of_node(node);
        let FlameNode { label, bytes, own_bytes, blocks, depth, start, .. } = node;
        pub label: &'a str = label,
        pub light: Rgb = color.light,
        pub dark: Rgb = color.dark,
        pub bytes: u64 = *bytes,
        pub own_bytes: u64 = *own_bytes,
        pub blocks: u64 = *blocks,
        pub depth: usize = *depth,
        pub start: u64 = *start,
    }
}

/// The nodes of a tree, each before its callees.
pub fn flame(nodes: &[FlameNode]) -> String {
    let colors = Colors::of(nodes.iter());
    json(&nodes.iter().map(|node| Node::of(node, &colors)).collect::<Vec<_>>())
}
