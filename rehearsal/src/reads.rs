//! Values that the program reads from a device. All are 0 except assumed sizes, so the program may behave differently
//! than on a GPU.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Why a value is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
pub enum Use {
    /// A copy to the host: `.cpu()`, `.tolist()`, printing.
    Copy = 0,
    /// One value: `.item()`, `float()`, `if`.
    Value = 1,
    /// A size: the operator allocates as much as the value says, for example `nonzero`.
    Size = 2,
}

/// Operators whose result size depends on values, by their names in PyTorch's symbols.
const SIZES: [&[u8]; 9] = [
    b"nonzero",
    b"unique",
    b"masked_select",
    b"repeat_interleave",
    b"bincount",
    b"one_hot",
    b"to_sparse",
    b"argwhere",
    b"tensor_split",
];
/// Its name contains that of such an operator, but it reads a single value.
const TRUTH: &[u8] = b"is_nonzero";
/// The operator that reads a single value.
const VALUE: &[u8] = b"local_scalar_dense";
/// Maximum number of frames to inspect: operators are a few dispatches away.
const FRAMES: usize = 64;

/// Called for each read with its bytes and its purpose.
pub type Listener = extern "C" fn(u64, i32);

static LISTENER: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
/// Why the functions on stacks read values, by return address.
static KNOWN: Mutex<BTreeMap<usize, Use>> = Mutex::new(BTreeMap::new());
static READS: AtomicU64 = AtomicU64::new(0);

/// Calls a function for each read from now on.
pub fn listen(listener: Option<Listener>) {
    LISTENER.store(listener.map_or(std::ptr::null_mut(), |function| function as *mut ()), Ordering::Release);
}

/// Number of values read so far.
pub fn count() -> u64 {
    READS.load(Ordering::Relaxed)
}

thread_local! {
    static ASSUMED: Cell<u64> = const { Cell::new(0) };
}

/// Sets the next size that this thread reads, instead of 0.
pub fn assume(size: u64) {
    ASSUMED.set(size);
}

/// Counts a read, and returns its value: 0 or the assumed size.
pub fn note(bytes: usize) -> u64 {
    READS.fetch_add(1, Ordering::Relaxed);
    let listener = LISTENER.load(Ordering::Acquire);
    if listener.is_null() {
        return 0;
    }
    let kind = asked_for();
    // SAFETY: only `listen` stores here, and it stores a function of this type.
    let listener: Listener = unsafe { std::mem::transmute(listener) };
    listener(bytes as u64, kind as i32);
    if kind == Use::Size { ASSUMED.take() } else { 0 }
}

/// Why this thread reads the value, according to the functions on its stack.
fn asked_for() -> Use {
    let mut addresses = [std::ptr::null_mut(); FRAMES];
    // SAFETY: the buffer has room for the requested number of addresses.
    let found = unsafe { libc::backtrace(addresses.as_mut_ptr(), FRAMES as i32) };
    let frames = addresses.iter().take(usize::try_from(found).unwrap_or(0));
    // Looking up a name takes milliseconds in libraries as large as PyTorch's.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let uses = frames.map(|&address| *known.entry(address as usize).or_insert_with(|| function_use(address)));
    uses.max().unwrap_or(Use::Copy)
}

/// Why the function at an address reads values.
fn function_use(address: *mut c_void) -> Use {
    // SAFETY: all zero is a value of this type, and `dladdr` fills it in.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `dladdr` accepts any address.
    if unsafe { libc::dladdr(address, &raw mut info) } == 0 || info.dli_sname.is_null() {
        return Use::Copy;
    }
    // SAFETY: names of loaded libraries end with a zero, and remain valid.
    use_of(unsafe { CStr::from_ptr(info.dli_sname) }.to_bytes())
}

/// Why a function with this name reads values.
fn use_of(name: &[u8]) -> Use {
    let has = |word: &[u8]| name.windows(word.len()).any(|part| part == word);
    if SIZES.iter().any(|word| has(word)) && !has(TRUTH) {
        Use::Size
    } else if has(VALUE) {
        Use::Value
    } else {
        Use::Copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_known_by_their_names() {
        assert_eq!(use_of(b"_ZN2at6native12nonzero_cudaERKNS_6TensorE"), Use::Size);
        assert_eq!(use_of(b"_ZN2at6native10is_nonzeroERKNS_6TensorE"), Use::Copy);
        assert_eq!(use_of(b"_ZN2at6native24_local_scalar_dense_cudaERKNS_6TensorE"), Use::Value);
        assert!(Use::Size > Use::Value && Use::Value > Use::Copy);
    }
}
