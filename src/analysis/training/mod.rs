//! What a recording says about the training step behind it.
//!
//! A snapshot knows addresses, sizes and stacks; which entries are forward and which are backward, it does not say.
//! [`role`] reads what each stack tells, [`phases`] puts the entries of a device in order,
//! [`calls`] finds the calls of the model's functions.

pub mod calls;
pub mod phases;
pub mod role;

pub use calls::{Call, Calls, ForwardFunction};
pub use phases::{Phase, PhaseSpan, Phases};
pub use role::{Role, Roles};
