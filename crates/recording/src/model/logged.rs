//! What torch-snapkit adds to a snapshot: the source code of the program, and a log of its tensors.

use super::{DeviceId, StrId};

/// A file of the program, as it was when the program ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Its path, as in stacks.
    pub path: StrId,
    pub text: StrId,
}

/// A tensor that an operator returned, in chronological order among those with its address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedTensor {
    /// `None` if one process logged the tensors of all its devices.
    pub device: Option<DeviceId>,
    pub address: u64,
    /// The operator: `aten.addmm.default`.
    pub operator: StrId,
    pub shape: Box<[u64]>,
    /// Its type without the module: `float32`.
    pub dtype: StrId,
}

/// Bytes of an element of the types of PyTorch that have a fixed size.
const ELEMENT_BYTES: [(u64, &[&str]); 5] = [
    (
        1,
        &[
            "bool",
            "int8",
            "uint8",
            "float8_e4m3fn",
            "float8_e5m2",
            "float8_e4m3fnuz",
            "float8_e5m2fnuz",
            "float8_e8m0fnu",
        ],
    ),
    (2, &["float16", "bfloat16", "int16", "uint16"]),
    (4, &["float32", "int32", "uint32", "complex32"]),
    (8, &["float64", "int64", "uint64", "complex64"]),
    (16, &["complex128"]),
];

/// Bytes of the elements of a contiguous tensor; `None` for types that memviz does not know, and sizes that no memory has.
pub fn tensor_bytes(shape: &[u64], dtype: &str) -> Option<u64> {
    let (element, _) = ELEMENT_BYTES.iter().find(|(_, types)| types.contains(&dtype))?;
    shape.iter().try_fold(*element, |bytes, &length| bytes.checked_mul(length))
}
