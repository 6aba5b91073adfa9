//! Facts about the training step of a recording.
//!
//! A snapshot contains addresses, sizes and stacks, but not which entries are forward and which are backward. `role` reads
//! what each stack shows, `phases` assigns a phase to each entry of a device, `calls` finds the calls of the model's
//! functions, `categories` determines the category of each allocation.

pub(crate) mod backward;
mod caches;
pub(crate) mod call_paths;
pub(crate) mod calls;
pub(crate) mod categories;
pub(crate) mod category;
mod forward_operators;
mod forwards;
mod functions;
mod inner_backward;
pub mod iterations;
pub(crate) mod library;
pub(crate) mod module_path;
mod named;
mod nodes;
mod older;
mod origin;
mod own_lines;
mod parameters;
mod periods;
pub(crate) mod phases;
mod replacements;
pub(crate) mod role;
pub mod steps;
pub(crate) mod summary;
pub(crate) mod workspace;

pub use backward::BackwardSites;
pub use call_paths::{CallPaths, PlaceId};
pub use calls::{Call, Calls, ForwardFunction, FunctionId};
pub use categories::{Categories, Decision};
pub use category::{Category, Evidence};
pub(crate) use origin::{Origin, Origins};
pub use phases::{Phase, PhaseSpan, Phases};
pub use role::{Role, Roles};
pub use summary::PhaseSummary;
