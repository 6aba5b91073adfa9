//! Finds calls of PyTorch's softmax, and the blocks allocated around them.

use super::{Matrix, Weights, has_input_like, is_for_backward, multiplies_activation};
use crate::analysis::advice::stacks::Marked;
use crate::facts::code::frames::FrameKind;
use crate::facts::device::Device;
use crate::model::{FrameId, StackId, StrId};
use crate::replay::{Allocation, NEVER};
use foldhash::fast::RandomState;
use std::cell::RefCell;
use std::collections::HashMap;

/// Masks of single bytes, and other blocks between scores and softmax, have at most 1/N of the matrix's bytes.
const MINOR: u64 = 4;

pub(super) fn matrices<'d, 'a>(device: &'d Device<'a>, weights: &'d Weights<'d, 'a>) -> Vec<Matrix> {
    let softmax = softmax(device);
    if !softmax.any() {
        return Vec::new();
    }
    let (layers, dropout) = (layers(device), dropout(device));
    let search = Search { device, weights, softmax, layers, dropout, within: RefCell::default() };
    let made = device.allocations_by(|stack| search.softmax.has(stack));
    made.filter_map(|(index, ..)| search.matrix(index as usize)).collect()
}

pub(super) fn softmax(device: &Device<'_>) -> Marked {
    Marked::of(device, |path, name, kind| match kind {
        FrameKind::Torch => path == "torch/nn/functional.py" && name == "softmax",
        FrameKind::Native | FrameKind::Plumbing | FrameKind::Operator => {
            name.contains("softmax") && !name.contains("log_softmax")
        }
        _ => false,
    })
}

/// Functions in which a layer of `torch.nn` multiplies: their results are not scores.
pub(super) fn layers(device: &Device<'_>) -> Marked {
    Marked::of(device, |path, name, _| {
        path == "torch/nn/modules/linear.py" || (path.is_empty() && name == "aten::linear")
    })
}

/// Functions that drop elements at random.
pub(super) fn dropout(device: &Device<'_>) -> Marked {
    Marked::of(device, |_, name, _| name.contains("dropout"))
}

struct Search<'d, 'a> {
    device: &'d Device<'a>,
    weights: &'d Weights<'d, 'a>,
    softmax: Marked,
    layers: Marked,
    dropout: Marked,
    /// Whether a stack is in a function, for those that were asked for: each call of attention asks for the same ones.
    within: RefCell<HashMap<(StackId, StrId, StrId), bool, RandomState>>,
}

impl Search<'_, '_> {
    fn block(&self, index: usize) -> Allocation {
        self.device.history().allocations[index]
    }

    /// The call of attention around the result of a softmax; `None` if there is none.
    fn matrix(&self, result: usize) -> Option<Matrix> {
        let track = self.device.track;
        let stack = track.stack_of(result);
        let caller = self.caller(stack)?;
        let is_inside = |index: usize| self.is_within(track.stack_of(index), caller);
        let whole = self.block(result).requested;
        let mut blocks = vec![result as u32];
        // A softmax that returns another dtype may cast its input itself, as from bfloat16 to float32.
        let cast = result.checked_sub(1).filter(|&before| self.is_cast(before, result));
        blocks.extend(cast.map(|cast| cast as u32));
        // Scores come before it: first the input of softmax, in the same or in half precision.
        let mut scores = None;
        for index in (0..cast.unwrap_or(result)).rev() {
            let requested = self.block(index).requested;
            let is_other =
                !is_inside(index) || self.layers.has(track.stack_of(index)) || self.softmax.has(track.stack_of(index));
            let wanted = scores.map_or(requested == whole || requested == whole / 2, |size| requested == size);
            if is_other {
                break;
            } else if wanted {
                scores = Some(requested);
                blocks.push(index as u32);
            } else if requested.saturating_mul(MINOR) > whole {
                break;
            } else if scores.is_none() {
                blocks.push(index as u32);
            }
        }
        let scores = scores?;
        // After it come a cast or dropout, and then the product with the matrix.
        for index in result + 1..self.device.history().allocations.len() {
            let requested = self.block(index).requested;
            if !is_inside(index) || self.softmax.has(track.stack_of(index)) {
                return None;
            }
            let is_mask = requested.saturating_mul(8) >= scores && self.dropout.has(track.stack_of(index));
            if requested == scores || requested == whole || is_mask {
                blocks.push(index as u32);
            } else {
                let first = blocks.iter().min().map_or(result, |&first| first as usize);
                let is_product = requested < scores && has_input_like(self.device, first, requested);
                let last = blocks.iter().max().map_or(result, |&last| last as usize);
                let last = self.block(last);
                let is_product = is_product
                    && (!is_for_backward(self.device, &last)
                        || multiplies_activation(self.device, self.weights, first, &last, requested));
                return is_product.then_some(Matrix {
                    line: self.device.sites().site_frame(stack),
                    stack,
                    blocks,
                    sizes: [whole, scores],
                });
            }
        }
        None
    }

    /// Whether a block is the input of softmax after a cast: as large as the result, and gone as soon as the result is there, with
    /// no allocation in between. Backward needs only the result.
    fn is_cast(&self, block: usize, result: usize) -> bool {
        let next = self.device.history().allocations.get(result + 1).map_or(NEVER, |next| next.born);
        let (cast, made) = (self.block(block), self.block(result));
        self.softmax.has(self.device.track.stack_of(block))
            && cast.requested == made.requested
            && (made.born..=next).contains(&cast.freed)
    }

    /// The file and function that calls softmax.
    fn caller(&self, stack: StackId) -> Option<(StrId, StrId)> {
        let snapshot = self.device.snapshot();
        let marked = self.softmax.frame(stack)?;
        let frames = snapshot.stacks.frame_ids(stack);
        let outer = frames.iter().skip_while(|&&frame| frame != marked).skip(1);
        let is_code = |id: &&FrameId| {
            self.device.sites().kind(**id).is_python()
                && snapshot.stacks.frame(**id).is_some_and(|frame| snapshot.strings.get(frame.name) != "softmax")
        };
        let frame = snapshot.stacks.frame(*outer.clone().find(is_code)?)?;
        // `nn.Softmax` is a module: its caller is four frames further out.
        let name = snapshot.strings.get(frame.name);
        let file = snapshot.strings.get(frame.filename);
        if name == "forward" && file.replace('\\', "/").ends_with("torch/nn/modules/activation.py") {
            let is_caller = |id: &&FrameId| {
                is_code(id)
                    && !snapshot.stacks.frame(**id).is_some_and(|frame| {
                        snapshot.strings.get(frame.filename).replace('\\', "/").contains("torch/nn/modules/")
                    })
            };
            let frame = snapshot.stacks.frame(*outer.clone().find(is_caller)?)?;
            return Some((frame.filename, frame.name));
        }
        Some((frame.filename, frame.name))
    }

    fn is_within(&self, stack: StackId, (file, name): (StrId, StrId)) -> bool {
        let is_within =
            || self.device.snapshot().stacks.frames(stack).any(|frame| frame.filename == file && frame.name == name);
        *self.within.borrow_mut().entry((stack, file, name)).or_insert_with(is_within)
    }
}
