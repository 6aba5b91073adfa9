//! Real snapshots, changed instruction by instruction, so that most of what follows a change still makes sense.

use arbitrary::Arbitrary;
use flate2::read::GzDecoder;
use std::io::Read;
use std::sync::LazyLock;

/// Small snapshots of every layout.
pub(super) const FILES: [&[u8]; 7] = [
    include_bytes!("../../fixtures/snapshots/tiny/snapshot.pickle.gz"),
    include_bytes!("../../fixtures/snapshots/tiny_t201/snapshot.pickle.gz"),
    include_bytes!("../../fixtures/snapshots/tiny_t231/snapshot.pickle.gz"),
    include_bytes!("../../fixtures/snapshots/tiny_t215/snapshot.pickle.gz"),
    include_bytes!("../../fixtures/snapshots/private_pool/snapshot.pickle.gz"),
    include_bytes!("../../fixtures/snapshots/pinned_only_t215/snapshot.pickle.gz"),
    include_bytes!("../../fixtures/snapshots/cuda_graph_t231/snapshot.pickle.gz"),
];

/// An instruction with its operand.
type Instruction = Vec<u8>;

/// The instructions of each file.
static PROGRAMS: LazyLock<Vec<Vec<Instruction>>> = LazyLock::new(|| {
    let unpacked = FILES.map(|file| {
        let mut bytes = Vec::new();
        GzDecoder::new(file).read_to_end(&mut bytes).expect("the fixtures are gzip");
        bytes
    });
    unpacked.iter().map(|bytes| instructions(bytes)).collect()
});

/// What is changed in which file.
#[derive(Arbitrary, Debug)]
pub struct Plan {
    file: u8,
    edits: Vec<Edit>,
    allow_truncated: bool,
}

/// A change. Places count modulo the number of instructions.
#[derive(Arbitrary, Debug)]
enum Edit {
    Remove {
        place: u16,
        count: u8,
    },
    Copy {
        from: u16,
        count: u8,
        to: u16,
    },
    Swap {
        left: u16,
        right: u16,
    },
    /// Another operand for an instruction, least significant byte first.
    Operand {
        place: u16,
        value: u64,
    },
    /// An integer in place of an instruction.
    Integer {
        place: u16,
        value: i128,
    },
    /// A reference to the memo in place of an instruction.
    Reference {
        place: u16,
        slot: u8,
    },
    Insert {
        place: u16,
        bytes: Vec<u8>,
    },
    CutOff {
        place: u16,
    },
}

impl Edit {
    fn apply(&self, program: &mut Vec<Instruction>) {
        let length = program.len();
        let at = |place: u16| usize::from(place) % length;
        let span = |place: u16, count: u8| at(place)..(at(place) + usize::from(count)).min(length);
        match *self {
            Self::Remove { place, count } => drop(program.drain(span(place, count))),
            Self::Copy { from, count, to } => {
                let copied = program[span(from, count)].to_vec();
                program.splice(at(to)..at(to), copied);
            }
            Self::Swap { left, right } => program.swap(at(left), at(right)),
            Self::Operand { place, value } => {
                let operand = program[at(place)].iter_mut().skip(1);
                operand.zip(value.to_le_bytes()).for_each(|(byte, new)| *byte = new);
            }
            Self::Integer { place, value } => {
                program[at(place)] = [&[0x8a, 16][..], &value.to_le_bytes()].concat();
            }
            Self::Reference { place, slot } => program[at(place)] = vec![b'h', slot],
            Self::Insert { place, ref bytes } => program.insert(at(place), bytes.clone()),
            Self::CutOff { place } => program.truncate(at(place)),
        }
    }
}

/// Takes a pickle of the kind that snapshots are apart.
fn instructions(mut bytes: &[u8]) -> Vec<Instruction> {
    let mut program = Vec::new();
    while let Some(&opcode) = bytes.first() {
        let number = |width: usize| {
            let digits = bytes[1..=width].iter().rev();
            digits.fold(0usize, |number, &digit| (number << 8) | usize::from(digit))
        };
        let operand = match opcode {
            // PROTO, BININT1, BINGET, BINPUT
            0x80 | b'K' | b'h' | b'q' => 1,
            // BININT2
            b'M' => 2,
            // BININT, LONG_BINGET, LONG_BINPUT
            b'J' | b'j' | b'r' => 4,
            // FRAME, BINFLOAT
            0x95 | b'G' => 8,
            // LONG1, SHORT_BINUNICODE
            0x8a | 0x8c => 1 + number(1),
            // BINUNICODE
            b'X' => 4 + number(4),
            _ => 0,
        };
        let (instruction, rest) = bytes.split_at(1 + operand);
        program.push(instruction.to_vec());
        bytes = rest;
    }
    program
}

impl Plan {
    /// The changed file.
    pub fn file(&self) -> Vec<u8> {
        let mut program = PROGRAMS[usize::from(self.file) % PROGRAMS.len()].clone();
        // Frames claim a length, which hardly any change would leave true.
        program.retain(|instruction| instruction[0] != 0x95);
        for edit in &self.edits {
            if !program.is_empty() {
                edit.apply(&mut program);
            }
        }
        program.concat()
    }
}

/// Changes a file, and reads what came of it.
pub fn run(plan: &Plan) {
    super::read_and_replay(plan.file(), plan.allow_truncated);
}
