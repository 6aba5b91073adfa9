//! `memviz ledger` as CSV.

use crate::analysis::ledger::{Holder, LedgerReport};
use crate::model::device_file::Occasion;
use crate::model::{DeviceId, HOST_DEVICE};
use crate::report::common::csv::{cell, optional, table};
use std::io::{self, Write};

/// The bytes of one holder at one sample.
struct Line {
    device: DeviceId,
    at: Occasion,
    name: Option<String>,
    time_us: Option<i64>,
    holder: Holder,
    label: String,
    bytes: i64,
    used_bytes: u64,
    /// Bytes of the device; `None` for the host.
    total_bytes: Option<u64>,
}

impl Line {
    fn pid(&self) -> Option<u64> {
        if let Holder::Other { pid, .. } = self.holder { Some(pid) } else { None }
    }
}

pub(crate) fn write(report: &LedgerReport, out: &mut dyn Write) -> io::Result<()> {
    let samples = report.devices.iter().flat_map(|device| device.samples.iter().map(move |sample| (device, sample)));
    let on_devices = samples.flat_map(|(device, sample)| {
        sample.rows.iter().map(|row| Line {
            device: device.device,
            at: sample.at,
            name: sample.name.clone(),
            time_us: sample.time_us,
            holder: row.holder.clone(),
            label: row.holder.label(),
            bytes: row.bytes,
            used_bytes: sample.used_bytes,
            total_bytes: Some(sample.total_bytes),
        })
    });
    let on_host = report.host.iter().map(|sample| Line {
        device: HOST_DEVICE,
        at: sample.at,
        name: None,
        time_us: sample.time_us,
        holder: Holder::Pytorch,
        label: "pinned host memory".to_owned(),
        bytes: i64::try_from(sample.reserved_bytes).unwrap_or(i64::MAX),
        used_bytes: sample.reserved_bytes,
        total_bytes: None,
    });
    table(
        on_devices.chain(on_host),
        &[
            ("device", |line| line.device.to_string()),
            ("at", |line| line.at.name().to_owned()),
            ("time_us", |line| optional(line.time_us)),
            ("holder", |line| line.holder.name().to_owned()),
            ("label", |line| cell(&line.label)),
            ("pid", |line| optional(line.pid())),
            ("bytes", |line| line.bytes.to_string()),
            ("used_bytes", |line| line.used_bytes.to_string()),
            ("total_bytes", |line| optional(line.total_bytes)),
            ("name", |line| cell(line.name.as_deref().unwrap_or_default())),
        ],
        out,
    )
}
