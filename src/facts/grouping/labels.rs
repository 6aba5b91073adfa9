//! Labels of groups that represent no code.

/// Label of blocks from before the first kept entry whose stack the file does not hold.
pub const BASELINE: &str = "(before the recording)";
/// Label of the same blocks where nothing was recorded at all.
pub const NOT_RECORDED: &str = "(not recorded)";
/// Label of blocks that a filter excludes.
pub const FILTERED: &str = "(filtered out)";
/// Label of blocks allocated outside of any annotation.
pub const NO_ANNOTATION: &str = "(no annotation)";
/// Label of blocks allocated outside of any `nn.Module`.
pub const NO_MODULE: &str = "(no nn.Module)";
/// Label of blocks whose pool the file does not tell.
pub const UNKNOWN_POOL: &str = "(pool not recorded)";
/// Label of blocks that the allocator made for itself (`mallocWithAddress`), to get a block at an address: they are no
/// code's.
pub const ALLOCATOR: &str = "(allocator itself)";
/// Label of ranges whose stream the file does not tell.
pub const UNKNOWN_STREAM: &str = "(stream not recorded)";
/// Label of blocks of which the program says nothing.
pub const NO_METADATA: &str = "(no metadata)";
