//! The keys that torch-snapkit adds. A part that it would not write is reported, and left out.

use super::Assembler;
use crate::error::Result;
use crate::input::pickle::findings::Fields;
use crate::input::pickle::value::Value;
use crate::model::{DeviceId, LoggedTensor, SourceFile, StrId};

/// The key of a dictionary from paths to texts.
pub(super) const SOURCE_CODE: &str = "source_code";
/// The key of a list with a dictionary for each process, from addresses to lists of tensors.
pub(super) const SHAPE_DATA: &str = "shape_data";

/// An operator, a shape and a type.
type Tensor = (StrId, Box<[u64]>, StrId);

impl Assembler {
    pub(super) fn source_code(&mut self, at: u64, value: Value) -> Result<()> {
        let Value::Dict(index) = value else {
            self.malformed(SOURCE_CODE, "a dictionary", value);
            return Ok(());
        };
        for (path, text) in Fields::of(&self.heap, index, SOURCE_CODE)?.pairs.to_vec() {
            self.record(at)?;
            match (path, text) {
                (Value::Str(path), Value::Str(text)) => {
                    self.snapshot.notes.source_code.push(SourceFile { path, text });
                }
                _ => self.malformed(SOURCE_CODE, "the text of a file", text),
            }
        }
        Ok(())
    }

    pub(super) fn shape_data(&mut self, at: u64, value: Value) -> Result<()> {
        let (Value::List(_) | Value::Tuple(_)) = value else {
            self.malformed(SHAPE_DATA, "a list", value);
            return Ok(());
        };
        let logs = self.items(at, SHAPE_DATA, value)?;
        let is_one = logs.len() == 1;
        for (rank, log) in logs.into_iter().enumerate() {
            self.record(at)?;
            let Value::Dict(index) = log else {
                self.malformed(SHAPE_DATA, "a dictionary", log);
                continue;
            };
            let device = if is_one { None } else { DeviceId::try_from(rank).ok() };
            for (address, tensors) in Fields::of(&self.heap, index, SHAPE_DATA)?.pairs.to_vec() {
                let hexadecimal = match address {
                    Value::Str(id) => self.text(id).strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16)),
                    _ => None,
                };
                let (Some(Ok(address)), Value::List(_)) = (hexadecimal, tensors) else {
                    self.malformed(SHAPE_DATA, "tensors by their addresses", address);
                    continue;
                };
                for tensor in self.items(at, SHAPE_DATA, tensors)? {
                    self.record(at)?;
                    match self.tensor(at, tensor)? {
                        Some((operator, shape, dtype)) => {
                            self.snapshot.notes.tensors.push(LoggedTensor { device, address, operator, shape, dtype });
                        }
                        None => self.malformed(SHAPE_DATA, "an operator, a shape and a type", tensor),
                    }
                }
            }
        }
        Ok(())
    }

    fn tensor(&mut self, at: u64, value: Value) -> Result<Option<Tensor>> {
        let (Value::List(_) | Value::Tuple(_)) = value else { return Ok(None) };
        let [Value::Str(operator), shape @ (Value::List(_) | Value::Tuple(_)), Value::Str(dtype)] =
            self.items(at, SHAPE_DATA, value)?[..]
        else {
            return Ok(None);
        };
        let lengths = self.items(at, SHAPE_DATA, shape)?;
        self.records(at, lengths.len() as u64)?;
        let length = |value: &Value| self.heap.as_int(*value).and_then(|length| u64::try_from(length).ok());
        let shape: Option<Box<[u64]>> = lengths.iter().map(length).collect();
        let dtype = self.text(dtype).trim_start_matches("torch.").to_owned();
        let dtype = self.findings.strings.intern(&dtype);
        Ok(shape.map(|shape| (operator, shape, dtype)))
    }
}
