//! One event of a trace: its kind first, then only the parts that this kind needs.

use super::cursor::{Cursor, Parsed, Stop};
use crate::model::profile::SpanKind;

/// Kinds of events that memviz reads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Memory,
    Span(SpanKind),
    /// A kernel, copy or fill on a GPU. Nothing else is read of it.
    OnGpu,
}

impl Kind {
    fn of(category: &[u8]) -> Option<Self> {
        match category {
            // PyTorch 1.8 to 1.10 write "Operator".
            b"cpu_op" | b"Operator" => Some(Self::Span(SpanKind::Operator)),
            b"python_function" => Some(Self::Span(SpanKind::Python)),
            b"user_annotation" => Some(Self::Span(SpanKind::Annotation)),
            b"cpu_instant_event" => Some(Self::Memory),
            b"kernel" | b"gpu_memcpy" | b"gpu_memset" => Some(Self::OnGpu),
            _ => None,
        }
    }

    /// The kind of an event without one of these categories: PyTorch 1.8 to 1.12 give memory events no category.
    fn of_name(name: &[u8]) -> Option<Self> {
        matches!(name, b"[memory]" | b"[OutOfMemory]").then_some(Self::Memory)
    }

    fn has_args(self) -> bool {
        matches!(self, Self::Memory | Self::Span(SpanKind::Operator))
    }
}

/// The parts of an event that memviz needs.
pub struct Event<'a> {
    pub at: usize,
    pub kind: Kind,
    pub name: &'a [u8],
    pub pid: Option<i64>,
    pub tid: Option<i64>,
    /// Nanoseconds.
    pub ts: Option<i64>,
    /// Nanoseconds.
    pub dur: Option<i64>,
    pub args: Args<'a>,
}

#[derive(Default)]
pub struct Args<'a> {
    /// `Module Hierarchy`: the `TorchScript` modules around an operator, which `with_modules=True` records.
    pub modules: &'a [u8],
    pub sequence: Option<i64>,
    pub forward_thread: Option<i64>,
    pub bytes: Option<i64>,
    pub allocated: Option<i64>,
    pub reserved: Option<i64>,
    pub device_type: Option<i64>,
    pub device_id: Option<i64>,
    pub addr: Option<u64>,
}

impl<'a> Event<'a> {
    pub fn tells_of_memory(&self) -> bool {
        self.kind == Kind::Memory && (self.args.bytes.is_some() || self.args.allocated.is_some())
    }

    /// Reads the next event; `None` for an event that memviz does not need, which is skipped.
    pub fn read(cursor: &mut Cursor<'a>) -> Parsed<Option<Self>> {
        cursor.expect(b'{', "an event")?;
        let at = cursor.at() - 1;
        let mut event = Self {
            at,
            kind: Kind::Memory,
            name: b"",
            pid: None,
            tid: None,
            ts: None,
            dur: None,
            args: Args::default(),
        };
        let mut kind = None;
        let mut is_instant = false;
        // Position of arguments that came before the kind was known.
        let mut args_at = None;
        // A value of the wrong type, which is not an error in an event that memviz does not need.
        let mut wrong = None;
        let mut first = true;
        while let Some(key) = cursor.key(first)? {
            first = false;
            match &*key {
                b"ph" if cursor.peek()? == b'"' => {
                    let phase = cursor.string("a string")?;
                    is_instant = phase == b"i";
                    if !is_instant && phase != b"X" {
                        cursor.skip_to_end(1)?;
                        return Ok(None);
                    }
                }
                b"cat" if cursor.peek()? == b'"' => {
                    kind = Kind::of(cursor.string("a string")?);
                    if kind == Some(Kind::OnGpu) {
                        cursor.skip_to_end(1)?;
                        return Ok(Some(Self { kind: Kind::OnGpu, ..event }));
                    }
                    // The name may reveal the kind of an instant event.
                    if kind.is_none() && !is_instant {
                        cursor.skip_to_end(1)?;
                        return Ok(None);
                    }
                }
                b"name" => event.name = or_skip(cursor, &mut wrong, |cursor| cursor.string("a string for \"name\""))?,
                b"pid" => event.pid = thread_id(cursor, &mut wrong)?,
                b"tid" => event.tid = thread_id(cursor, &mut wrong)?,
                b"ts" => event.ts = or_skip(cursor, &mut wrong, |cursor| time(cursor, "a number for \"ts\""))?,
                b"dur" => event.dur = or_skip(cursor, &mut wrong, |cursor| time(cursor, "a number for \"dur\""))?,
                b"args" => match kind {
                    Some(kind) if kind.has_args() => event.args = Args::read(cursor)?,
                    Some(_) => cursor.skip()?,
                    None => {
                        args_at = Some(cursor.at());
                        cursor.skip()?;
                    }
                },
                _ => cursor.skip()?,
            }
        }
        let by_name = || Kind::of_name(event.name).filter(|_| is_instant);
        let Some(kind) = kind.or_else(by_name) else { return Ok(None) };
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        event.kind = kind;
        if let Some(args_at) = args_at.filter(|_| kind.has_args()) {
            event.args = Args::read(&mut cursor.back_to(args_at))?;
        }
        Ok(Some(event))
    }
}

/// Reads a value, or skips it and stores the error if it has the wrong type.
fn or_skip<'a, T: Default>(
    cursor: &mut Cursor<'a>,
    wrong: &mut Option<Stop>,
    read: impl Fn(&mut Cursor<'a>) -> Parsed<T>,
) -> Parsed<T> {
    let start = cursor.at();
    match read(cursor) {
        Err(Stop::Bad(bad)) => {
            wrong.get_or_insert(Stop::Bad(bad));
            *cursor = cursor.back_to(start);
            cursor.skip()?;
            Ok(T::default())
        }
        result => result,
    }
}

fn time(cursor: &mut Cursor<'_>, expected: &str) -> Parsed<Option<i64>> {
    cursor.microseconds(expected).map(Some)
}

/// A process or thread: a number, which PyTorch 1.8 writes as a string. Other strings (`Spans`, `Traces`) name rows that run
/// no code.
fn thread_id(cursor: &mut Cursor<'_>, wrong: &mut Option<Stop>) -> Parsed<Option<i64>> {
    if cursor.peek()? == b'"' {
        let text = cursor.string("a string")?;
        return Ok(std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()));
    }
    or_skip(cursor, wrong, |cursor| cursor.integer("an integer for \"pid\" or \"tid\"").map(Some))
}

impl<'a> Args<'a> {
    fn read(cursor: &mut Cursor<'a>) -> Parsed<Self> {
        cursor.expect(b'{', "an object for \"args\"")?;
        let mut args = Self::default();
        let mut first = true;
        while let Some(key) = cursor.key(first)? {
            first = false;
            let (slot, expected) = match &*key {
                b"Sequence number" => (&mut args.sequence, "an integer for \"Sequence number\""),
                b"Fwd thread id" => (&mut args.forward_thread, "an integer for \"Fwd thread id\""),
                b"Bytes" => (&mut args.bytes, "an integer for \"Bytes\""),
                b"Total Allocated" => (&mut args.allocated, "an integer for \"Total Allocated\""),
                b"Total Reserved" => (&mut args.reserved, "an integer for \"Total Reserved\""),
                b"Device Type" => (&mut args.device_type, "an integer for \"Device Type\""),
                b"Device Id" => (&mut args.device_id, "an integer for \"Device Id\""),
                b"Module Hierarchy" if cursor.peek()? == b'"' => {
                    args.modules = cursor.string("a string")?;
                    continue;
                }
                b"Addr" => {
                    args.addr = Some(cursor.address("an integer for \"Addr\"")?);
                    continue;
                }
                _ => {
                    cursor.skip()?;
                    continue;
                }
            };
            *slot = Some(cursor.integer(expected)?);
        }
        Ok(args)
    }
}
