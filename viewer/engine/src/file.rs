//! A file of the page, read piece by piece, so that it is never in memory as a whole.

use js_sys::{Function, Uint8Array};
use std::cell::RefCell;
use std::io::{self, Read};
use wasm_bindgen::{JsCast, JsValue};

/// Bytes per request.
const PIECE: usize = 1 << 20;

thread_local! {
    /// The reader of the file. The library may pass a reader to another thread, which a JavaScript function cannot do;
    /// here, there is only one thread, and only one file is read at a time.
    static READ: RefCell<Option<Function>> = const { RefCell::new(None) };
}

/// The file that is being read.
pub struct File {
    piece: Vec<u8>,
    /// Bytes of the piece that were read.
    taken: usize,
    /// Where the next piece starts.
    at: f64,
}

impl File {
    /// The file that `read` reads.
    pub fn new(read: Function) -> Self {
        READ.replace(Some(read));
        Self { piece: Vec::new(), taken: 0, at: 0.0 }
    }

    fn next_piece(&mut self) -> io::Result<()> {
        let failed = |error: JsValue| {
            let error = js_sys::Object::from(error).to_string();
            io::Error::other(String::from(error))
        };
        let missing = || io::Error::other("nothing reads the file");
        let read = READ.with_borrow(Clone::clone).ok_or_else(missing)?;
        let piece = read.call2(&JsValue::NULL, &self.at.into(), &(PIECE as f64).into()).map_err(failed)?;
        let piece: Uint8Array = piece.dyn_into().map_err(|_| io::Error::other("expected a Uint8Array"))?;
        self.taken = 0;
        self.piece.resize(piece.length() as usize, 0);
        piece.copy_to(&mut self.piece);
        self.at += self.piece.len() as f64;
        Ok(())
    }
}

impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.piece.len() {
            self.next_piece()?;
        }
        let count = buffer.len().min(self.piece.len() - self.taken);
        buffer[..count].copy_from_slice(&self.piece[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        READ.replace(None);
    }
}
