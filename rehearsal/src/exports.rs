//! Helpers for functions that PyTorch calls by their C names.

/// Defines functions with C names and the C calling convention.
///
/// Their bodies may dereference the pointers that they receive: see "Unsafe code" in the crate documentation.
macro_rules! exports {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments, clippy::missing_safety_doc)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) $(-> $result)? {
            #[allow(unused_unsafe)]
            // SAFETY: the caller passes what the interface with this name requires.
            unsafe { $body }
        }
    )*};
}

/// Writes a result to the caller's pointer, unless it is null.
///
/// # Safety
/// `to` is null or writable.
pub unsafe fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: as the caller promises. Fields of packed structures may be unaligned.
        unsafe { to.write_unaligned(value) }
    }
}

/// Allocates a value with a unique address, for handles that are only passed back.
pub fn new_handle<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Frees a handle from `new_handle`.
///
/// # Safety
/// `handle` is null, or comes from `new_handle` and is not used again.
pub unsafe fn drop_handle<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(handle) });
    }
}
