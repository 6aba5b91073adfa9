//! Labels of groups that do not represent code.

/// Label of blocks from before the first kept entry whose stack is not in the file.
pub const BASELINE: &str = "(before the recording)";
/// Label of the same blocks if nothing was recorded at all.
pub const NOT_RECORDED: &str = "(not recorded)";
/// Label of blocks that a filter excludes.
pub const FILTERED: &str = "(filtered out)";
/// Label of blocks allocated outside any annotation.
pub const NO_ANNOTATION: &str = "(no annotation)";
/// Label of blocks allocated outside any `nn.Module`.
pub const NO_MODULE: &str = "(no nn.Module)";
/// Label of blocks whose pool is not in the file.
pub const UNKNOWN_POOL: &str = "(pool not recorded)";
/// Label of blocks that the allocator made for itself (`mallocWithAddress`), to get a block at a specific address: no code of
/// the program requested them.
pub const ALLOCATOR: &str = "(allocator itself)";
/// Label of ranges whose stream is not in the file.
pub const UNKNOWN_STREAM: &str = "(stream not recorded)";
/// Label of blocks that were live at no walk over the program's references.
pub const NOT_WALKED: &str = "(freed before the references were walked)";
/// Label of such blocks that one backward pass allocated without Python and freed again: gradients of activations.
pub const INSIDE_BACKWARD: &str = "(inside a backward pass: autograd alone holds it)";
/// Label of blocks in which a walk found no tensor.
pub const NO_HOLDER: &str = "(no holder: inside an operator or C++)";
/// Label of blocks without metadata from the program.
pub const NO_METADATA: &str = "(no metadata)";
