//! Setters of options, so that a program changes some and leaves the others at their defaults, including options added later:
//! `PeakOptions::default().by(GroupBy::Stack).top(Some(5))`.

/// Adds a setter for each named field.
#[doc(hidden)]
#[macro_export]
macro_rules! setters {
    ($options:ident { $($field:ident: $type:ty),+ $(,)? }) => {
        impl $options {
            $(
                #[doc = concat!("Sets `", stringify!($field), "`.")]
                #[must_use]
                pub fn $field(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )+
        }
    };
}
