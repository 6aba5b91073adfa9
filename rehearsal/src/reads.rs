//! Values that the program reads from a device. All are 0, but for sizes that somebody assumes, so what the program does with them is
//! another thing than on a GPU.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What a value is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
pub enum Use {
    /// A copy to the host: `.cpu()`, `.tolist()`, printing.
    Copy = 0,
    /// One value: `.item()`, `float()`, `if`.
    Value = 1,
    /// A size: the operator allocates what the value says, such as `nonzero`.
    Size = 2,
}

/// Operators whose results are as large as values say, as their names are in symbols of PyTorch.
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
/// Has the name of such an operator in its own, and reads one value.
const TRUTH: &[u8] = b"is_nonzero";
/// The operator that reads one value.
const VALUE: &[u8] = b"local_scalar_dense";
/// Frames that are looked at: operators are a few dispatches away.
const FRAMES: usize = 64;

/// Is told of each read: its bytes, and what it is for.
pub type Listener = extern "C" fn(u64, i32);

static LISTENER: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());
/// What functions on stacks want values for, by return address.
static KNOWN: Mutex<BTreeMap<usize, Use>> = Mutex::new(BTreeMap::new());
static READS: AtomicU64 = AtomicU64::new(0);

/// Has a function told of each read from now on.
pub fn listen(listener: Option<Listener>) {
    LISTENER.store(listener.map_or(std::ptr::null_mut(), |function| function as *mut ()), Ordering::Release);
}

/// How many values were read.
pub fn count() -> u64 {
    READS.load(Ordering::Relaxed)
}

thread_local! {
    static ASSUMED: Cell<u64> = const { Cell::new(0) };
}

/// Has the next size that this thread reads be this one, instead of 0.
pub fn assume(size: u64) {
    ASSUMED.set(size);
}

/// Counts a read, and gives its value: 0, or the size that is assumed.
pub fn note(bytes: usize) -> u64 {
    READS.fetch_add(1, Ordering::Relaxed);
    let listener = LISTENER.load(Ordering::Acquire);
    if listener.is_null() {
        return 0;
    }
    let kind = asked_for();
    // SAFETY: only `listen` stores here, and what it stores is a function of this type.
    let listener: Listener = unsafe { std::mem::transmute(listener) };
    listener(bytes as u64, kind as i32);
    if kind == Use::Size { ASSUMED.take() } else { 0 }
}

/// What this thread wants the value for, as the functions on its stack say.
fn asked_for() -> Use {
    let mut addresses = [std::ptr::null_mut(); FRAMES];
    // SAFETY: room for as many addresses as are asked for.
    let found = unsafe { libc::backtrace(addresses.as_mut_ptr(), FRAMES as i32) };
    let frames = addresses.iter().take(usize::try_from(found).unwrap_or(0));
    // Looking a name up takes milliseconds in libraries as large as PyTorch's.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let uses = frames.map(|&address| *known.entry(address as usize).or_insert_with(|| function_use(address)));
    uses.max().unwrap_or(Use::Copy)
}

/// What the function at an address wants values for.
fn function_use(address: *mut c_void) -> Use {
    // SAFETY: all zero is a value of this type, and `dladdr` fills it in.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked about.
    if unsafe { libc::dladdr(address, &raw mut info) } == 0 || info.dli_sname.is_null() {
        return Use::Copy;
    }
    // SAFETY: names of loaded libraries end with a zero and stay.
    use_of(unsafe { CStr::from_ptr(info.dli_sname) }.to_bytes())
}

/// What a function of this name wants values for.
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
