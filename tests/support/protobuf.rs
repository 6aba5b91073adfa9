//! Protocol buffers, read in another way than memviz writes them: each field by its number, in the order of the file.

/// A message.
#[derive(Clone, Debug, Default)]
pub struct Fields(Vec<(u64, Field)>);

/// The value of a field.
#[derive(Clone, Debug)]
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

impl Fields {
    /// Reads a message, and fails if it is none.
    pub fn read(mut bytes: &[u8]) -> Self {
        let mut fields = Vec::new();
        while !bytes.is_empty() {
            let tag = varint(&mut bytes);
            let field = match tag % 8 {
                0 => Field::Number(varint(&mut bytes)),
                2 => {
                    let length = varint(&mut bytes) as usize;
                    let (field, rest) = bytes.split_at(length);
                    bytes = rest;
                    Field::Bytes(field.to_vec())
                }
                kind => panic!("a field of kind {kind}"),
            };
            fields.push((tag / 8, field));
        }
        Self(fields)
    }

    /// The numbers of a field that are not packed.
    pub fn numbers(&self, number: u64) -> impl Iterator<Item = u64> + '_ {
        self.of(number).map(move |field| match field {
            Field::Number(value) => *value,
            Field::Bytes(_) => panic!("field {number} is no number"),
        })
    }

    /// The last number of a field; 0 if it is missing.
    pub fn number(&self, number: u64) -> u64 {
        self.numbers(number).last().unwrap_or(0)
    }

    /// The numbers that are packed into a field.
    pub fn packed(&self, number: u64) -> Vec<u64> {
        let bytes: Vec<u8> = self.bytes(number).flatten().copied().collect();
        let mut rest = bytes.as_slice();
        std::iter::from_fn(|| (!rest.is_empty()).then(|| varint(&mut rest))).collect()
    }

    /// The texts of a field.
    pub fn texts(&self, number: u64) -> impl Iterator<Item = String> + '_ {
        self.bytes(number).map(|bytes| String::from_utf8(bytes.clone()).expect("text is UTF-8"))
    }

    /// The messages of a field.
    pub fn messages(&self, number: u64) -> impl Iterator<Item = Self> + '_ {
        self.bytes(number).map(|bytes| Self::read(bytes))
    }

    fn bytes(&self, number: u64) -> impl Iterator<Item = &Vec<u8>> {
        self.of(number).map(move |field| match field {
            Field::Bytes(bytes) => bytes,
            Field::Number(_) => panic!("field {number} is a number"),
        })
    }

    fn of(&self, number: u64) -> impl Iterator<Item = &Field> {
        self.0.iter().filter(move |(known, _)| *known == number).map(|(_, field)| field)
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0u128;
    for (place, &byte) in bytes.iter().enumerate() {
        value |= u128::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            *bytes = &bytes[place + 1..];
            return u64::try_from(value).expect("64 bits");
        }
    }
    panic!("the message ends inside of a number")
}
