//! Kinds of things with names, as flags, JSON and messages write them.

/// Defines an enum, with the name of each variant.
#[doc(hidden)]
#[macro_export]
macro_rules! names {
    ($(#[$meta:meta])* $vis:vis enum $kind:ident {
        $($(#[$is:meta])* $variant:ident = $name:literal,)+
    }) => {
        $(#[$meta])*
        $vis enum $kind {
            $($(#[$is])* $variant,)+
        }

        impl $kind {
            /// The name in flags, JSON and messages.
            $vis fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}
