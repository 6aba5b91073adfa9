//! The annotations that `record_function` writes.

use super::Assembler;
use crate::error::{Error, Result};
use crate::input::pickle::findings::{Fields, expected, name};
use crate::input::pickle::value::Value;
use crate::model::{Annotation, DeviceId, HOST_DEVICE, MAX_DEVICE, Stage};

impl Assembler {
    pub(super) fn annotations(&mut self, at: u64, value: Value) -> Result<()> {
        let strings = &mut self.findings.strings;
        let (stage_key, device_key) = (strings.intern("stage"), strings.intern("device"));
        for item in self.items(at, "external_annotations", value)? {
            self.record(at)?;
            let Value::Dict(index) = item else {
                return Err(expected(at, "an annotation in", "external_annotations", item));
            };
            let fields = Fields::of(&self.heap, index, "annotation")?;
            let stage = fields.string(stage_key, "stage")?;
            let device = fields.optional(device_key).map_or(Ok(0), |value| fields.signed(value, "device"))?;
            let device = DeviceId::try_from(device).ok().filter(|device| (HOST_DEVICE..=MAX_DEVICE).contains(device));
            let device = device.ok_or_else(|| {
                Error::malformed(fields.at, "expected a device number for the annotation, found another value")
            })?;
            let time = fields.required(name::TIME_US, "time_us")?;
            self.snapshot.annotations.push(Annotation {
                stage: match self.text(stage) {
                    "START" => Stage::Start,
                    "END" => Stage::End,
                    other => {
                        let message = format!("expected \"START\" or \"END\" for \"stage\", found {other:?}");
                        return Err(Error::malformed(fields.at, message));
                    }
                },
                name: fields.string(name::NAME, "name")?,
                device,
                time_us: fields.signed(time, "time_us")?,
            });
        }
        Ok(())
    }
}
