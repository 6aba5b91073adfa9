//! Facts about the training step of a recording.
//!
//! A snapshot knows addresses, sizes and stacks; which entries are forward and which are backward, it does not say.
//! `role` reads what each stack tells, `phases` puts the entries of a device in order,
//! `calls` finds the calls of the model's functions, `categories` says what each allocation is for.

pub(crate) mod backward;
mod caches;
pub(crate) mod call_paths;
pub(crate) mod calls;
pub(crate) mod categories;
pub(crate) mod category;
mod forward_operators;
mod forwards;
mod functions;
pub mod iterations;
pub mod library;
pub mod module_path;
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
mod workspace;

pub use backward::BackwardSites;
pub use call_paths::{CallPaths, PlaceId};
pub use calls::{Call, Calls, ForwardFunction, FunctionId};
pub use categories::{Categories, Decision};
pub use category::{Category, Evidence};
pub(crate) use origin::{Origin, Origins};
pub use phases::{Phase, PhaseSpan, Phases};
pub use role::{Role, Roles};
pub use summary::PhaseSummary;
