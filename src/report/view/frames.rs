//! Frames, with known facts about them.

use super::json;
use crate::facts::code::sites::{Sites, clipped};
use crate::facts::device::Device;
use crate::model::{FrameId, StackId};
use serde::Serialize;
use std::collections::HashMap;

#[derive(Clone, Debug, Serialize)]
pub(super) struct Frame {
    label: String,
    path: String,
    own: bool,
}

impl Frame {
    fn of(sites: &Sites<'_>, id: FrameId) -> Self {
        let snapshot = sites.snapshot();
        let path = snapshot.stacks.frame(id).map(|frame| {
            let file = clipped(snapshot.strings.get(frame.filename));
            if frame.line > 0 { format!("{file}:{}", frame.line) } else { file.to_owned() }
        });
        Self { label: sites.label(id), path: path.unwrap_or_default(), own: sites.is_own(id) }
    }

    pub(super) fn of_stack(sites: &Sites<'_>, stack: StackId) -> Vec<Self> {
        sites.snapshot().stacks.frame_ids(stack).iter().map(|&id| Self::of(sites, id)).collect()
    }
}

/// The frames for labels, as in stacks of rows. If several frames have one label, the user's own comes first; a label
/// without a frame represents itself.
pub fn frames(device: &Device<'_>, labels: &[String]) -> String {
    let sites = device.deep_sites();
    let mut known: HashMap<&str, Option<Frame>> = labels.iter().map(|label| (label.as_str(), None)).collect();
    for id in (0..sites.snapshot().stacks.frame_count() as u32).map(FrameId) {
        let frame = Frame::of(sites, id);
        if let Some(known) = known.get_mut(frame.label.as_str())
            && known.as_ref().is_none_or(|known| frame.own && !known.own)
        {
            *known = Some(frame);
        }
    }
    let unknown = |label: &String| Frame { label: label.clone(), path: String::new(), own: false };
    let frame = |label: &String| known.get(label.as_str()).cloned().flatten().unwrap_or_else(|| unknown(label));
    json(&labels.iter().map(frame).collect::<Vec<_>>())
}
