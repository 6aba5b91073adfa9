//! What a recording says about the training step behind it.
//!
//! A snapshot knows addresses, sizes and stacks; which entries are forward and which are backward, it does not say.
//! [`role`] reads what each stack tells, [`phases`] puts the entries of a device in order,
//! [`calls`] finds the calls of the model's functions.

pub mod backward;
pub mod calls;
mod nodes;
pub mod phases;
pub mod role;
mod tape;

pub use backward::BackwardSites;
pub use calls::{Call, Calls, ForwardFunction};
pub use phases::{Phase, PhaseSpan, Phases};
pub use role::{Role, Roles};
