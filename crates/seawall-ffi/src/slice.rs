//! Bytes and handles that cross the interface.

use crate::status::{Status, call};
use seawall::{Error, Result};
use std::ffi::{CStr, c_char};

/// Borrowed bytes. `data` may be null if `len` is 0.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Slice {
    /// The first byte.
    pub data: *const u8,
    /// The number of bytes.
    pub len: usize,
}

pub(crate) fn usage(why: &str) -> Error {
    Error::Usage(why.into())
}

impl Slice {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr(), len: bytes.len() }
    }

    /// # Safety
    /// `data` points to `len` bytes that do not change during the call.
    pub(crate) unsafe fn bytes<'a>(self) -> Result<&'a [u8]> {
        if self.len == 0 {
            return Ok(&[]);
        }
        if self.data.is_null() {
            return Err(usage("bytes at a null pointer"));
        }
        // SAFETY: as the function requires.
        Ok(unsafe { std::slice::from_raw_parts(self.data, self.len) })
    }
}

/// # Safety
/// `handle` is null, or a handle that was made and not freed, and no other call uses it meanwhile.
pub(crate) unsafe fn exclusive<'a, T>(handle: *mut T) -> Result<&'a mut T> {
    // SAFETY: as the function requires.
    unsafe { handle.as_mut() }.ok_or_else(|| usage("a null handle"))
}

/// # Safety
/// `handle` is null, or a handle that was made and not freed, and only shared calls use it meanwhile.
pub(crate) unsafe fn shared<'a, T>(handle: *const T) -> Result<&'a T> {
    // SAFETY: as the function requires.
    unsafe { handle.as_ref() }.ok_or_else(|| usage("a null handle"))
}

/// Stores a new handle in `out`.
///
/// # Safety
/// `out` is null or writable.
pub(crate) unsafe fn hand_out<T>(out: *mut *mut T, value: T) -> Result<()> {
    // SAFETY: as the function requires.
    let out = unsafe { out.as_mut() }.ok_or_else(|| usage("a null place for the result"))?;
    *out = Box::into_raw(Box::new(value));
    Ok(())
}

/// Stores a result through the caller's pointer, unless that is null.
///
/// # Safety
/// `out` is null or writable.
pub(crate) unsafe fn store<T>(out: *mut T, value: T) {
    // SAFETY: as the function requires.
    if let Some(out) = unsafe { out.as_mut() } {
        *out = value;
    }
}

/// Frees a handle. A panic of what it drops does not cross the interface.
///
/// # Safety
/// `handle` is null, or was made by [`hand_out`] and not freed.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    call(|| {
        // SAFETY: as the function requires.
        drop((!handle.is_null()).then(|| unsafe { Box::from_raw(handle) }));
        Ok(Status::Ok)
    });
}

/// # Safety
/// `text` is null, or a text that ends with a zero byte.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Err(usage("a null text"));
    }
    // SAFETY: as the function requires.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|error| usage(&format!("a text that is not UTF-8: {error}")))
}

/// An enumeration of the interface. A C caller can pass any number, so it is checked before it becomes a value.
pub(crate) trait Enumeration: Copy + 'static {
    /// Its name in C.
    const NAME: &'static str;
    /// Its values, in the order of their numbers, from 0.
    const VALUES: &'static [Self];

    /// Returns the value with this number.
    fn of(number: u32) -> Result<Self> {
        let value = usize::try_from(number).ok().and_then(|at| Self::VALUES.get(at));
        value.copied().ok_or_else(|| usage(&format!("{number} is not a valid {}", Self::NAME)))
    }
}
