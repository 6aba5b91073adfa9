//! Options that a program changes one by one, leaving the others at their defaults, including options added later:
//! `PeakOptions::default().by(GroupBy::Stack).top(Some(5))`.

/// Defines a struct of options, with a setter for each field.
#[doc(hidden)]
#[macro_export]
macro_rules! options {
    ($(#[$meta:meta])* $vis:vis struct $options:ident {
        $($(#[$is:meta])* $seen:vis $field:ident: $type:ty,)+
    }) => {
        $(#[$meta])*
        $vis struct $options {
            $($(#[$is])* $seen $field: $type,)+
        }

        impl $options {
            $(
                #[doc = concat!("Sets `", stringify!($field), "`.")]
                #[must_use]
                $seen fn $field(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )+
        }
    };
}
