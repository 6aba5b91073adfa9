//! How answers about a recording are to be given.

use regex::Regex;

/// What the asker wants of answers: no part of the file, but wanted wherever the recording goes. By default answers say
/// what is recorded and leave nothing out.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct View {
    /// Code that is the asker's own besides what paths tell: Python files whose path or package matches one of these.
    pub own: Vec<Regex>,
    /// Whether sites go down to the lines of a library whose model runs below one of the user's own: see
    /// [`crate::facts::device::Device::deep_sites`].
    pub library_lines: bool,
    /// Whether stacks leave out C++ frames beside Python ones, and everywhere those of allocator, dispatcher and
    /// interpreter.
    pub fold: bool,
    /// The key of `user_metadata` that groups of metadata represent; `None` for all of its text.
    pub metadata_key: Option<String>,
}

setters!(View { own: Vec<Regex>, library_lines: bool, fold: bool, metadata_key: Option<String> });
