//! What each instruction of a pickle does.

use super::Machine;
use crate::error::{Error, Result};
use crate::input::pickle::opcode as op;
use crate::input::pickle::text;
use crate::input::pickle::value::Value;
use std::io::Read;

impl<R: Read> Machine<R> {
    /// Executes one opcode other than STOP. `at` is its offset.
    #[allow(clippy::too_many_lines, reason = "one arm per opcode; a table of functions would hide the machine")]
    pub(super) fn step(&mut self, at: u64, opcode: u8) -> Result<()> {
        let value = match opcode {
            op::PROTO => {
                let protocol = self.window.byte()?;
                if protocol > 5 {
                    return Err(Error::malformed(
                        at,
                        format!("expected a pickle protocol of 0 to 5, found {protocol}"),
                    ));
                }
                self.protocol = protocol;
                return Ok(());
            }
            op::FRAME => {
                let length = u64::from_le_bytes(self.window.array()?);
                let end = self.window.offset().saturating_add(length);
                if let Some((start, end)) = self.frame.replace((at, end))
                    && end > at
                {
                    let message = format!("a frame claims to end at byte {end}, but the next begins at {at}");
                    return Err(Error::malformed(start, message));
                }
                return Ok(());
            }
            op::MARK => {
                self.marks.push(self.stack.len());
                return Ok(());
            }
            op::POP => {
                // Python's POP removes a mark if nothing is above it.
                if self.marks.last() == Some(&self.stack.len()) {
                    self.marks.pop();
                } else {
                    self.pop(at)?;
                }
                return Ok(());
            }
            op::POP_MARK => {
                let start = self.pop_mark(at)?;
                self.stack.truncate(start);
                return Ok(());
            }
            op::DUP => self.top(at)?,

            op::NONE => Value::None,
            op::NEWTRUE => Value::Bool(true),
            op::NEWFALSE => Value::Bool(false),
            op::BININT1 => Value::Int(i32::from(self.window.byte()?)),
            op::BININT2 => Value::Int(i32::from(u16::from_le_bytes(self.window.array()?))),
            op::BININT => Value::Int(i32::from_le_bytes(self.window.array()?)),
            op::LONG1 => {
                let length = self.window.byte()?;
                self.long(at, u64::from(length))?
            }
            op::LONG4 => {
                let length = i32::from_le_bytes(self.window.array()?);
                let length = u64::try_from(length)
                    .map_err(|_| Error::malformed(at, format!("expected a length, found {length}")))?;
                self.long(at, length)?
            }
            op::INT => match self.window.line(self.options.limits.string_bytes)? {
                b"00" => Value::Bool(false),
                b"01" => Value::Bool(true),
                line => {
                    let int = text::integer(line).ok_or_else(|| text::bad(at, "an integer", line))?;
                    self.heap.int(int)
                }
            },
            op::LONG => {
                let line = self.window.line(self.options.limits.string_bytes)?;
                let digits = line.strip_suffix(b"L").unwrap_or(line);
                let int = text::integer(digits).ok_or_else(|| text::bad(at, "an integer", line))?;
                self.heap.int(int)
            }
            op::FLOAT => {
                let line = self.window.line(self.options.limits.string_bytes)?;
                let float = text::float(line).ok_or_else(|| text::bad(at, "a float", line))?;
                self.heap.float(float)
            }
            op::BINFLOAT => {
                let float = f64::from_be_bytes(self.window.array()?);
                self.heap.float(float)
            }

            op::SHORT_BINUNICODE | op::SHORT_BINSTRING => {
                let length = self.window.byte()?;
                self.string(u64::from(length))?
            }
            op::BINUNICODE => {
                let length = u32::from_le_bytes(self.window.array()?);
                self.string(u64::from(length))?
            }
            op::BINUNICODE8 => {
                let length = u64::from_le_bytes(self.window.array()?);
                self.string(length)?
            }
            op::BINSTRING => {
                let length = i32::from_le_bytes(self.window.array()?);
                let length = u64::try_from(length)
                    .map_err(|_| Error::malformed(at, format!("expected a length, found {length}")))?;
                self.string(length)?
            }
            op::UNICODE => {
                let line = self.window.line(self.options.limits.string_bytes)?;
                let text = text::unescape_unicode(line);
                self.intern(&text)
            }
            op::STRING => {
                let line = self.window.line(self.options.limits.string_bytes)?;
                let text = text::unescape_repr(line).ok_or_else(|| text::bad(at, "a quoted string", line))?;
                self.intern(&text)
            }
            op::SHORT_BINBYTES => {
                let length = self.window.byte()?;
                self.bytes(u64::from(length))?
            }
            op::BINBYTES => {
                let length = u32::from_le_bytes(self.window.array()?);
                self.bytes(u64::from(length))?
            }
            op::BINBYTES8 | op::BYTEARRAY8 => {
                let length = u64::from_le_bytes(self.window.array()?);
                self.bytes(length)?
            }

            op::EMPTY_LIST => Value::List(self.heap.list(Vec::new())),
            op::EMPTY_SET => Value::Set(self.heap.list(Vec::new())),
            op::EMPTY_DICT => self.heap.dict(at, Vec::new()),
            op::EMPTY_TUPLE => self.heap.tuple(&[]),
            op::LIST => {
                let start = self.pop_mark(at)?;
                let mut items = self.stack.split_off(start);
                self.recognize(self.heap.lists.len() as u32, &mut items);
                Value::List(self.heap.list(items))
            }
            op::FROZENSET => {
                let start = self.pop_mark(at)?;
                let items = self.stack.split_off(start);
                Value::Set(self.heap.list(items))
            }
            op::TUPLE => {
                let start = self.pop_mark(at)?;
                let tuple = self.heap.tuple(&self.stack[start..]);
                self.stack.truncate(start);
                tuple
            }
            op::TUPLE1 | op::TUPLE2 | op::TUPLE3 => {
                let length = usize::from(opcode - op::TUPLE1) + 1;
                let start = self.below_top(at, length)?;
                let tuple = self.heap.tuple(&self.stack[start..]);
                self.stack.truncate(start);
                tuple
            }
            op::DICT => {
                let start = self.pop_mark(at)?;
                let pairs = self.take_pairs(at, start)?;
                self.heap.dict(at, pairs)
            }

            op::APPEND => {
                let start = self.below_top(at, 1)?;
                return self.extend_list(at, start);
            }
            op::APPENDS | op::ADDITEMS => {
                let start = self.pop_mark(at)?;
                return self.extend_list(at, start);
            }
            op::SETITEM => {
                let start = self.below_top(at, 2)?;
                return self.extend_dict(at, opcode, start);
            }
            op::SETITEMS => {
                let start = self.pop_mark(at)?;
                return self.extend_dict(at, opcode, start);
            }

            op::GET | op::BINGET | op::LONG_BINGET => {
                let slot = self.slot(at, opcode)?;
                self.memo
                    .get(slot)
                    .ok_or_else(|| Error::malformed(at, format!("expected a value in memo slot {slot}, found none")))?
            }
            op::PUT | op::BINPUT | op::LONG_BINPUT => {
                let slot = self.slot(at, opcode)?;
                return self.memoize(at, slot);
            }
            op::MEMOIZE => return self.memoize(at, self.memo.next()),

            op::GLOBAL | op::INST => {
                let module = text::lossy(self.window.line(self.options.limits.string_bytes)?);
                let name = text::lossy(self.window.line(self.options.limits.string_bytes)?);
                if opcode == op::INST {
                    let start = self.pop_mark(at)?;
                    self.stack.truncate(start);
                }
                self.opaque(&format!("{module}.{name}"))
            }
            op::STACK_GLOBAL => {
                let name = self.pop(at)?;
                let module = self.pop(at)?;
                let label = format!("{}.{}", self.text_of(module), self.text_of(name));
                self.opaque(&label)
            }
            op::REDUCE | op::NEWOBJ => {
                self.pop(at)?;
                let callable = self.pop(at)?;
                self.result_of(callable)
            }
            op::NEWOBJ_EX => {
                self.pop(at)?;
                self.pop(at)?;
                let callable = self.pop(at)?;
                self.result_of(callable)
            }
            op::OBJ => {
                let start = self.pop_mark(at)?;
                let callable = self.stack.get(start).copied().unwrap_or(Value::None);
                self.stack.truncate(start);
                self.result_of(callable)
            }
            op::BUILD => {
                // The state belongs to the object; an opaque object does not need it.
                self.pop(at)?;
                self.top(at)?;
                return Ok(());
            }
            op::PERSID => {
                self.window.line(self.options.limits.string_bytes)?;
                self.opaque("a persistent id")
            }
            op::BINPERSID => {
                self.pop(at)?;
                self.opaque("a persistent id")
            }
            op::EXT1 => {
                self.window.array::<1>()?;
                self.opaque("an extension object")
            }
            op::EXT2 => {
                self.window.array::<2>()?;
                self.opaque("an extension object")
            }
            op::EXT4 => {
                self.window.array::<4>()?;
                self.opaque("an extension object")
            }
            op::NEXT_BUFFER => self.opaque("an out-of-band buffer"),
            op::READONLY_BUFFER => {
                self.top(at)?;
                return Ok(());
            }
            _ => {
                let message = match at {
                    0 => format!("expected a pickle, found byte 0x{opcode:02x}"),
                    _ => format!("expected a pickle instruction, found byte 0x{opcode:02x}"),
                };
                return Err(Error::malformed(at, message));
            }
        };
        self.stack.push(value);
        Ok(())
    }

    fn slot(&mut self, at: u64, opcode: u8) -> Result<usize> {
        Ok(match opcode {
            op::BINGET | op::BINPUT => usize::from(self.window.byte()?),
            op::LONG_BINGET | op::LONG_BINPUT => u32::from_le_bytes(self.window.array()?) as usize,
            _ => {
                let line = self.window.line(self.options.limits.string_bytes)?;
                let slot = text::integer(line).and_then(|slot| usize::try_from(slot).ok());
                slot.ok_or_else(|| text::bad(at, "a memo slot", line))?
            }
        })
    }

    fn memoize(&mut self, at: u64, slot: usize) -> Result<()> {
        let value = self.top(at)?;
        // A writer numbers its slots consecutively and uses at least a byte for each object, so no writer produces a slot
        // beyond the offset, and the memo stays smaller than the file.
        if slot as u64 > at {
            let message = format!("expected a memo slot below {at}, found {slot}");
            return Err(Error::malformed(at, message));
        }
        if self.memo.put(slot, value) {
            self.decoder.lists.forget();
            self.templates.forget();
        }
        Ok(())
    }

    fn long(&mut self, at: u64, length: u64) -> Result<Value> {
        let bytes = self.window.slice(length, self.options.limits.string_bytes)?;
        if bytes.len() > size_of::<i128>() {
            let message = format!("expected an integer of at most 16 bytes, found one of {length}");
            return Err(Error::malformed(at, message));
        }
        let negative = bytes.last().is_some_and(|&last| last >= 0x80);
        let mut word = if negative { [0xff; 16] } else { [0; 16] };
        word[..bytes.len()].copy_from_slice(bytes);
        Ok(self.heap.int(i128::from_le_bytes(word)))
    }

    fn string(&mut self, length: u64) -> Result<Value> {
        let bytes = self.window.slice(length, self.options.limits.string_bytes)?;
        let text = String::from_utf8_lossy(bytes);
        Ok(Value::Str(self.findings.strings.intern(&text)))
    }

    fn bytes(&mut self, length: u64) -> Result<Value> {
        let bytes = self.window.slice(length, self.options.limits.string_bytes)?;
        Ok(self.heap.byte_string(bytes))
    }

    fn intern(&mut self, text: &str) -> Value {
        Value::Str(self.findings.strings.intern(text))
    }

    fn opaque(&mut self, label: &str) -> Value {
        Value::Opaque(self.findings.strings.intern(label))
    }

    /// A stand-in for the result of calling `callable`.
    fn result_of(&mut self, callable: Value) -> Value {
        match callable {
            Value::Opaque(label) => Value::Opaque(label),
            other => self.opaque(other.describe()),
        }
    }

    fn text_of(&self, value: Value) -> &str {
        match value {
            Value::Str(id) => self.findings.strings.get(id),
            other => other.describe(),
        }
    }
}
