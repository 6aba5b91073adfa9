//! `memviz simulate`.

use super::Run;
use crate::analysis::SimulateOptions;
use crate::cli::args::{CommonArgs, RowsOrSvg};
use crate::cli::recording::{Reply, with_recording};
use crate::cli::{Failure, Outcome, output};
use crate::input::alloc_conf::{Rest, parse, rest_of};
use crate::model::bytes::Bytes;
use crate::report::simulate;
use clap::Args;

/// What the run would need under other allocator settings, and on which device: its requests, played; with -o, reserved
/// memory as recorded and under the best settings as SVG
#[derive(Debug, Args)]
pub struct Simulate {
    #[command(flatten)]
    common: CommonArgs,
    /// Format of the answer [default: svg where the output file's name ends in .svg, else text]
    #[arg(long, value_enum)]
    format: Option<RowsOrSvg>,
    /// Settings to play, as `PYTORCH_CUDA_ALLOC_CONF` takes them, such as `expandable_segments:True`; can be given several
    /// times
    #[arg(long, value_name = "CONF")]
    alloc_conf: Vec<String>,
    /// Play the settings that are worth trying, too, and sort by what they need
    #[arg(long)]
    sweep: bool,
    /// Memory of the device, such as 80GiB: its total as PyTorch's messages name it; without it what an oom entry tells,
    /// or a device without end
    #[arg(long, value_name = "SIZE")]
    capacity: Option<Bytes>,
    /// What CUDA keeps of it [default: what an oom entry tells, else 500MiB]
    #[arg(long, value_name = "SIZE")]
    context: Option<Bytes>,
}

impl Run for Simulate {
    fn run(&self) -> Result<Outcome, Failure> {
        // Mistakes show before a large file is read.
        for text in &self.alloc_conf {
            parse(text, Rest::default()).map_err(|error| Failure::Message(format!("--alloc-conf: {error}")))?;
        }
        let format = RowsOrSvg::resolve(self.format, self.common.output.as_deref());
        if matches!(format, RowsOrSvg::Svg) {
            output::check_picture_target(&self.common)?;
        }
        let style = output::style(&self.common);
        with_recording(&self.common, |recording| {
            let rest = rest_of(&recording.snapshot.settings);
            let options = SimulateOptions {
                settings: self.alloc_conf.iter().filter_map(|text| parse(text, rest).ok()).collect(),
                sweep: self.sweep,
                capacity: self.capacity.map(|capacity| capacity.0),
                context: self.context.map(|context| context.0),
                devices: self.common.devices(),
            };
            let report = recording.simulate(&options)?;
            Ok(match format {
                RowsOrSvg::Rows(format) => Reply::rows(report, format, style),
                RowsOrSvg::Svg => Reply::new(move |source, out| simulate::draw(source, &report).write(out)),
            })
        })
    }
}
