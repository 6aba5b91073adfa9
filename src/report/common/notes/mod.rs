//! What a recording lacks and where it contradicts itself, in words; used by every report.

mod device;
mod file;
mod place;
mod rows;
mod settings;
mod text;

pub use device::{anomalies, device, failures, figure_bounds, fragmentation, is_end, limits, no_oom, ooms};
pub use file::{file, ring, source};
pub use place::{START, headline, place, position};
pub use rows::{
    INFERRED_SITE, NO_STACKS, grouping, inferred, inferred_rows, library_below, older_lines, other_lines, private_pool,
    private_pools, stranded,
};
pub use settings::{settings, settings_warning, settings_warnings};
pub use text::{device_name, duration, safe, signed};
