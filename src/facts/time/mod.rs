//! Instants of a recording as people name them, and the annotations that were open then.

pub mod annotations;
pub mod moment;
pub mod when;
