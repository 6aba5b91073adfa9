//! Compares the pickle machine with another implementation, and tests it on damaged files.
//!
//! serde-pickle writes random objects, and the machine must read them back unchanged. Damaged snapshots may be refused or
//! read as something else, but nothing may panic.

use super::pickle::decoded::DecodedPickle;
use super::pickle::findings::Rows;
use super::pickle::machine::{DecodeOptions, decode};
use super::pickle::value::{DictBody, Items, Value};
use crate::error::{Error, Result};
use crate::input::{Input, Limits, ReadOptions, read_stream};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use serde_pickle::{DeOptions, HashableValue, SerOptions, Value as Other};
use std::io::{Cursor, Read};

proptest! {
    #[test]
    fn objects_come_out_as_they_went_in(object in objects()) {
        for protocol in [2, 3] {
            prop_assert_eq!(Tree::decoded(&encode(&object, protocol)), Tree::expected(&object, protocol));
        }
    }

    #[test]
    fn damaged_snapshots_are_survived(
        damages in vec(damage(), 1..8),
        allow_truncated in any::<bool>(),
    ) {
        let mut bytes = snapshot();
        for damage in damages {
            damage.apply(&mut bytes);
        }
        prop_assert!(survives(&read(bytes, allow_truncated)));
    }

    #[test]
    fn senseless_programs_are_survived(
        instructions in vec((any::<prop::sample::Index>(), vec(0..4u8, 0..3)), 0..40),
        allow_truncated in any::<bool>(),
    ) {
        let bytes = instructions.iter().flat_map(|(index, operand)| {
            [*index.get(OPCODES)].into_iter().chain(operand.iter().copied())
        });
        prop_assert!(survives(&read(bytes.collect(), allow_truncated)));
    }
}

/// Instructions that pop from the stack, read it, or open a container.
const OPCODES: &[u8] = b"(((}}]])0122abdeghjlopqrstuNKMRQ.\x81\x85\x86\x87\x88\x8c\x8f\x90\x91\x92\x93\x94\x97\x98";

#[test]
fn long_lists_come_out_as_they_went_in() {
    // Writers append in batches of a thousand items.
    let list = Other::List((0..2500).map(Other::I64).collect());
    let dict = Other::Dict((0..2500).map(|key| (HashableValue::I64(key), Other::I64(-key))).collect());
    for object in [list, dict] {
        assert_eq!(Tree::decoded(&encode(&object, 3)), Tree::expected(&object, 3));
    }
}

#[test]
fn snapshots_cut_off_anywhere_are_survived() {
    let whole = snapshot();
    for length in 0..whole.len() {
        assert!(read(whole[..length].to_vec(), false).is_err(), "{length} bytes");
        let rest = read(whole[..length].to_vec(), true);
        assert!(survives(&rest), "{length} bytes");
        assert!(rest.is_ok() || length < 12, "{length} bytes: {rest:?}");
    }
    assert!(read(whole, false).is_ok());
}

/// An object as plain data; two are equal if their parts are.
#[derive(Clone, Debug, PartialEq)]
enum Tree {
    None,
    Bool(bool),
    Int(i128),
    /// The bits of a float, so that NaN equals itself and 0 differs from -0.
    Float(u64),
    Text(String),
    Bytes(Vec<u8>),
    List(Vec<Tree>),
    Tuple(Vec<Tree>),
    /// In the order of the file.
    Dict(Vec<(Tree, Tree)>),
    /// The machine's value for an object that only running code can build: its name.
    Opaque(String),
}

impl Tree {
    /// The expected result for an object. Sets, and bytes in protocol 2, are written as calls.
    fn expected(object: &Other, protocol: u8) -> Self {
        let builtins = if protocol == 2 { "__builtin__" } else { "builtins" };
        let all = |items: &[Other]| items.iter().map(|item| Self::expected(item, protocol)).collect();
        match object {
            Other::None => Self::None,
            Other::Bool(value) => Self::Bool(*value),
            Other::I64(value) => Self::Int(i128::from(*value)),
            Other::Int(value) => {
                Self::Int(value.to_string().parse().expect("integers of up to 16 bytes are made here"))
            }
            Other::F64(value) => Self::Float(value.to_bits()),
            Other::Bytes(_) if protocol == 2 => Self::Opaque("_codecs.encode".to_owned()),
            Other::Bytes(value) => Self::Bytes(value.clone()),
            Other::String(text) => Self::Text(text.clone()),
            Other::List(items) => Self::List(all(items)),
            Other::Tuple(items) => Self::Tuple(all(items)),
            Other::Set(_) => Self::Opaque(format!("{builtins}.set")),
            Other::FrozenSet(_) => Self::Opaque(format!("{builtins}.frozenset")),
            Other::Dict(pairs) => Self::Dict(
                pairs
                    .iter()
                    .map(|(key, value)| {
                        (Self::expected(&key.clone().into_value(), protocol), Self::expected(value, protocol))
                    })
                    .collect(),
            ),
        }
    }

    /// The machine's result for a pickle.
    fn decoded(bytes: &[u8]) -> Self {
        let options = DecodeOptions { limits: Limits::default(), recognize: false, allow_truncated: false };
        let decoded = decode(bytes, options, Rows::default()).expect("serde-pickle's output can be decoded");
        Self::of(&decoded, decoded.root)
    }

    fn of(decoded: &DecodedPickle, value: Value) -> Self {
        let heap = &decoded.heap;
        let text = |id| decoded.findings.strings.get(id).to_owned();
        let all = |items: &[Value]| items.iter().map(|&item| Self::of(decoded, item)).collect();
        match value {
            Value::None => Self::None,
            Value::Bool(value) => Self::Bool(value),
            Value::Int(value) => Self::Int(i128::from(value)),
            Value::Long(index) => Self::Int(heap.longs[index as usize]),
            Value::Float(index) => Self::Float(heap.floats[index as usize].to_bits()),
            Value::Str(id) => Self::Text(text(id)),
            Value::Bytes(index) => Self::Bytes(heap.bytes[index as usize].to_vec()),
            Value::List(index) => match &heap.lists[index as usize] {
                Items::Values(items) => Self::List(all(items)),
                Items::Entries(rows) => panic!("entries {rows:?} were recognized"),
            },
            Value::Tuple(index) => Self::Tuple(all(&heap.tuples[index as usize])),
            Value::Dict(index) => match &heap.dicts[index as usize].body {
                DictBody::Pairs(pairs) => Self::Dict(
                    pairs.iter().map(|&(key, value)| (Self::of(decoded, key), Self::of(decoded, value))).collect(),
                ),
                DictBody::Moved(moved) => panic!("a dictionary was recognized as {moved:?}"),
            },
            Value::Opaque(label) => Self::Opaque(text(label)),
            Value::Missing | Value::Set(_) | Value::Entry(_) | Value::Frame(_) | Value::Stack(_) => {
                panic!("serde-pickle writes nothing that becomes {value:?}")
            }
        }
    }
}

fn encode(object: &Other, protocol: u8) -> Vec<u8> {
    let options = if protocol == 2 { SerOptions::new().proto_v2() } else { SerOptions::new() };
    serde_pickle::value_to_vec(object, options).expect("every value can be written")
}

fn objects() -> impl Strategy<Value = Other> {
    let leaf = prop_oneof![
        Just(Other::None),
        any::<bool>().prop_map(Other::Bool),
        any::<i64>().prop_map(Other::I64),
        (-70_000..70_000i64).prop_map(Other::I64),
        integers(),
        prop::num::f64::ANY.prop_map(Other::F64),
        any::<String>().prop_map(Other::String),
        vec(any::<u8>(), 0..300).prop_map(Other::Bytes),
        btree_set(keys(), 0..4).prop_map(Other::Set),
        btree_set(keys(), 0..4).prop_map(Other::FrozenSet),
        lookalikes(),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Other::List),
            vec(inner.clone(), 0..6).prop_map(Other::Tuple),
            btree_map(keys(), inner, 0..6).prop_map(Other::Dict),
        ]
    })
}

fn keys() -> impl Strategy<Value = HashableValue> {
    let leaf = prop_oneof![
        Just(HashableValue::None),
        any::<bool>().prop_map(HashableValue::Bool),
        any::<i64>().prop_map(HashableValue::I64),
        any::<String>().prop_map(HashableValue::String),
        vec(any::<u8>(), 0..10).prop_map(HashableValue::Bytes),
    ];
    leaf.prop_recursive(2, 6, 3, |inner| vec(inner, 0..4).prop_map(HashableValue::Tuple))
}

/// Integers of one to sixteen bytes. serde-pickle does not export its type for the longer ones, but its reader creates them.
fn integers() -> impl Strategy<Value = Other> {
    (any::<i128>(), 0..128u32).prop_map(|(value, shift)| {
        let bytes = [&[0x80, 2, 0x8a, 16][..], &(value >> shift).to_le_bytes(), b"."].concat();
        serde_pickle::value_from_slice(&bytes, DeOptions::new()).expect("a pickle of one integer")
    })
}

/// Lists that look like a stack or a trace.
fn lookalikes() -> impl Strategy<Value = Other> {
    let dict = |text: [&str; 2], numbers: Vec<&str>| {
        let texts = text.map(|key| (HashableValue::String(key.to_owned()), Other::String("alloc".to_owned())));
        let numbers = numbers.into_iter().map(|key| (HashableValue::String(key.to_owned()), Other::I64(1)));
        Other::Dict(texts.into_iter().chain(numbers).collect())
    };
    let frame = dict(["filename", "name"], vec!["line"]);
    let entry = dict(["action", "compile_context"], vec!["addr", "size", "stream", "time_us"]);
    vec(prop::sample::select(vec![frame, entry]), 0..4).prop_map(Other::List)
}

/// Damage to a file. Positions are modulo the file's length.
#[derive(Clone, Debug)]
enum Damage {
    Flip { place: usize, bit: u8 },
    Insert { place: usize, bytes: Vec<u8> },
    Delete { place: usize, length: usize },
    Repeat { place: usize, length: usize },
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let span = |place: usize, length: usize, bytes: &[u8]| {
            let start = place % (bytes.len() + 1);
            start..(start + length).min(bytes.len())
        };
        match self {
            Self::Flip { place, bit } => {
                let span = span(*place, 1, bytes);
                bytes[span].iter_mut().for_each(|byte| *byte ^= 1 << bit);
            }
            Self::Insert { place, bytes: inserted } => {
                let span = span(*place, 0, bytes);
                bytes.splice(span, inserted.iter().copied());
            }
            Self::Delete { place, length } => drop(bytes.drain(span(*place, *length, bytes))),
            Self::Repeat { place, length } => {
                let span = span(*place, *length, bytes);
                let repeated = bytes[span.clone()].to_vec();
                bytes.splice(span.end..span.end, repeated);
            }
        }
    }
}

fn damage() -> impl Strategy<Value = Damage> {
    let place = any::<usize>();
    prop_oneof![
        4 => (place, 0..8u8).prop_map(|(place, bit)| Damage::Flip { place, bit }),
        2 => (place, vec(any::<u8>(), 1..6)).prop_map(|(place, bytes)| Damage::Insert { place, bytes }),
        2 => (place, 1..40usize).prop_map(|(place, length)| Damage::Delete { place, length }),
        1 => (place, 1..200usize).prop_map(|(place, length)| Damage::Repeat { place, length }),
    ]
}

/// The pickle of a small real snapshot.
fn snapshot() -> Vec<u8> {
    let compressed = include_bytes!("../../../../fixtures/snapshots/tiny/snapshot.pickle.gz");
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(&compressed[..]).read_to_end(&mut bytes).expect("the fixture is gzip");
    bytes
}

fn read(bytes: Vec<u8>, allow_truncated: bool) -> Result<Input> {
    read_stream(Cursor::new(bytes), &ReadOptions { allow_truncated, ..ReadOptions::default() })
}

/// Whether reading ended correctly. A panic of the second thread would be an error of this kind.
fn survives(result: &Result<Input>) -> bool {
    !matches!(result, Err(Error::Request(_)))
}
