//! How functions are written that PyTorch calls by their names in C.

/// Defines functions with C names and C calling convention.
///
/// Their bodies may follow the pointers that they get: see "Unsafe code" at the top of the crate.
macro_rules! exports {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $result:ty)? $body:block)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments, clippy::missing_safety_doc)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) $(-> $result)? {
            #[allow(unused_unsafe)]
            // SAFETY: the caller passes what the interface of this name asks for.
            unsafe { $body }
        }
    )*};
}

/// Writes a result where the caller wants it; null is a caller that does not.
///
/// # Safety
/// `to` is null, or may be written to.
pub unsafe fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: as the caller promises. Results need not be aligned where they are fields of packed structures.
        unsafe { to.write_unaligned(value) }
    }
}

/// Something with an address of its own, for handles that are only passed back.
pub fn new_handle<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Lets go of what `new_handle` made.
///
/// # Safety
/// `handle` is null, or comes from `new_handle` and is not used again.
pub unsafe fn drop_handle<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(handle) });
    }
}
