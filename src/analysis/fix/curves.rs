//! Allocated memory over time as recorded, and as predicted with the written fixes.

use super::{FixReport, ProposedFix};
use crate::analysis::advice::{Attempt, Simulate, WhatIf};
use crate::analysis::checkpoint::CurveOptions;
use crate::analysis::checkpoint::overlay::{Point, overlay};
use crate::analysis::diff::DeviceOverlay;
use crate::analysis::timeline::XAxis;
use crate::facts::device::{Device, Devices};
use crate::model::DeviceId;
use crate::replay::Metric;

/// One device with the fixes that its curve includes.
#[derive(Clone, Debug)]
pub struct FixedDevice {
    pub device: DeviceId,
    /// The numbers of the fixes; empty if none can be simulated.
    pub fixes: Vec<usize>,
    /// The recorded peak, and the predicted one, with both curves, if there are fixes.
    pub curves: Option<(i64, i64, DeviceOverlay)>,
}

impl FixReport {
    /// The curves of all devices with written fixes.
    pub fn curves(&self, recording: &Devices<'_>, columns: usize) -> Vec<FixedDevice> {
        let devices = recording.wanted(&[]).unwrap_or_default();
        let curves = devices.into_iter().filter_map(|device| {
            let of_device = |fix: &&ProposedFix| fix.device == device.id() && fix.written.is_ok();
            let written: Vec<&ProposedFix> = self.fixes.iter().filter(of_device).collect();
            (!written.is_empty()).then(|| curves(device, &written, columns))
        });
        curves.collect()
    }
}

fn curves(device: &Device<'_>, written: &[&ProposedFix], columns: usize) -> FixedDevice {
    let what_if = WhatIf::of(device, Simulate::All);
    let mut attempt = Attempt::default();
    let mut fixes = Vec::new();
    for fix in written {
        let is_it = |kind, line: &Option<_>| kind == fix.advice.kind && *line == fix.advice.line;
        let own = what_if.advice().position(|advice| is_it(advice.kind, &advice.line));
        let other = |own: usize| {
            let place = what_if.alternatives().position(|(place, other)| place == own && other.change == fix.change());
            place.map(|place| what_if.advice().count() + place)
        };
        let Some(own) = own else { continue };
        let place = if fix.change() == fix.advice.change { Some(own) } else { other(own) };
        if let Some(place) = place.filter(|&place| what_if.combines(place)) {
            attempt.fixes.push(place);
            fixes.push(fix.number);
        }
    }
    let nothing = FixedDevice { device: device.id(), fixes: Vec::new(), curves: None };
    if fixes.is_empty() {
        return nothing;
    }
    let Ok(Some(predicted)) = what_if.over_time(Metric::Allocated, &attempt) else { return nothing };
    let options = CurveOptions::default().axis(XAxis::Entry).columns(columns);
    let points = overlay(device.track, options, predicted.peak_instant(), |visit| {
        for (instant, highest, after) in predicted.instants() {
            visit(instant, Point::Spike(highest));
            visit(instant, Point::Level(after));
        }
    });
    let recorded = device.history().maxima[Metric::Allocated as usize].bytes;
    let peak = i64::try_from(predicted.peak()).unwrap_or(i64::MAX);
    FixedDevice { device: device.id(), fixes, curves: Some((recorded, peak, points)) }
}
