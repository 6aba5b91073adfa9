//! A pickle reader that never executes anything.
//!
//! In: a byte stream. Out: [`decoded::DecodedPickle`], the values on a flat heap, with trace entries already in columns, and
//! strings, frames and stacks interned. One pass, without recursion (except for a few levels in [`metadata`]), with memory
//! bounded by the bytes read.

pub mod cut;
pub mod decoded;
pub mod fast_entry;
pub mod findings;
pub mod forward;
mod lists;
pub mod machine;
mod memo;
pub mod metadata;
pub mod opcode;
mod tables;
pub mod template;
pub mod text;
pub mod value;
