//! How to present answers about a recording.

use regex_lite::Regex;

options! {
    /// What the user wants in answers. It is not part of the file, but accompanies the recording. By default, answers show what
    /// is recorded and leave nothing out.
    #[derive(Clone, Debug, Default)]
    pub struct View {
        /// Additional user code: Python files whose path or package matches one of these count as the user's own.
        pub own: Vec<Regex>,
        /// Whether sites are lines of a library if its model runs below a line of the user's own code.
        pub library_lines: bool,
        /// Whether stacks leave out C++ frames next to Python frames, frames between a call of an `nn.Module` and its `forward`, and
        /// always frames of the allocator, the dispatcher and the interpreter.
        pub fold: bool,
        /// The key of `user_metadata` that `--by metadata` groups by; `None` for the whole text.
        pub metadata_key: Option<String>,
        /// The user's own categories: names, and what matches a frame of their stacks. The first match counts.
        pub categories: Vec<(String, Regex)>,
    }
}
