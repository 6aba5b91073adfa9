//! The columns of a table, from the statement that created it.

use crate::error::{Error, Result};

/// Words that start a constraint of the whole table.
const TABLE_CONSTRAINTS: [&str; 5] = ["CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN"];
/// Words that end the type of a column.
const COLUMN_CONSTRAINTS: [&str; 11] =
    ["CONSTRAINT", "PRIMARY", "NOT", "NULL", "UNIQUE", "CHECK", "DEFAULT", "COLLATE", "REFERENCES", "GENERATED", "AS"];

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Table {
    /// The columns, in the order in which rows have them.
    pub columns: Vec<String>,
    /// The column that is an alias of the row's ID, and that rows do not store.
    pub row_id: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Quoted(String),
    Symbol(char),
}

impl Token {
    fn is(&self, keyword: &str) -> bool {
        matches!(self, Self::Word(word) if word.eq_ignore_ascii_case(keyword))
    }

    fn is_any(&self, keywords: &[&str]) -> bool {
        keywords.iter().any(|keyword| self.is(keyword))
    }

    fn name(&self) -> Option<&str> {
        match self {
            Self::Word(name) | Self::Quoted(name) => Some(name),
            Self::Symbol(_) => None,
        }
    }
}

impl Table {
    pub(super) fn parse(name: &str, statement: &str) -> Result<Self> {
        let refuse =
            |found: &str| Error::NotASnapshot(format!("table {name}: expected an ordinary table, found {found}"));
        let tokens = tokens(statement);
        let begin = tokens.iter().position(|token| *token == Token::Symbol('('));
        let begin = begin.ok_or_else(|| refuse("a statement without columns"))?;
        let (definitions, rest) = definitions(&tokens[begin + 1..]);
        if rest.windows(2).any(|pair| pair[0].is("WITHOUT") && pair[1].is("ROWID")) {
            return Err(refuse("one without row IDs (WITHOUT ROWID)"));
        }
        let mut table = Self { columns: Vec::new(), row_id: None };
        let (mut whole_numbers, mut key) = (Vec::new(), None);
        for definition in definitions {
            let Some((first, rest)) = definition.split_first() else { continue };
            if first.is_any(&TABLE_CONSTRAINTS) {
                key = key.or_else(|| key_of_table(definition));
                continue;
            }
            let column = first.name().ok_or_else(|| refuse("a column without a name"))?;
            // A row may not contain it, since it may be computed when it is read.
            if rest.iter().any(|token| token.is_any(&["GENERATED", "AS"])) {
                return Err(refuse(&format!("a computed column, {column}")));
            }
            let types: Vec<&Token> = rest.iter().take_while(|token| !token.is_any(&COLUMN_CONSTRAINTS)).collect();
            let is_integer = matches!(types[..], [only] if only.is("INTEGER"));
            let is_key = rest.windows(2).position(|pair| pair[0].is("PRIMARY") && pair[1].is("KEY"));
            let is_descending = is_key.is_some_and(|at| rest.get(at + 2).is_some_and(|token| token.is("DESC")));
            if is_integer && is_key.is_some() && !is_descending {
                table.row_id = Some(table.columns.len());
            }
            whole_numbers.push(is_integer);
            table.columns.push(column.to_owned());
        }
        let key = key.and_then(|key| table.column(&key)).filter(|&place| whole_numbers[place]);
        table.row_id = table.row_id.or(key);
        Ok(table)
    }

    /// The place of a column; names are not case-sensitive.
    pub(super) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.eq_ignore_ascii_case(name))
    }
}

/// The only column in `PRIMARY KEY (column)`.
fn key_of_table(definition: &[Token]) -> Option<String> {
    let at = definition.iter().position(|token| token.is("PRIMARY"))?;
    let inside = definition.get(at + 2..)?;
    let end = inside.iter().position(|token| *token == Token::Symbol(')'))?;
    match &inside[..end] {
        [Token::Symbol('('), column] => column.name().map(str::to_owned),
        _ => None,
    }
}

/// The definitions up to the closing bracket, and what follows it.
fn definitions(tokens: &[Token]) -> (Vec<&[Token]>, &[Token]) {
    let (mut depth, mut start, mut found) = (0_usize, 0, Vec::new());
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Symbol('(') => depth += 1,
            Token::Symbol(')') if depth == 0 => {
                found.push(&tokens[start..at]);
                return (found, &tokens[at + 1..]);
            }
            Token::Symbol(')') => depth -= 1,
            Token::Symbol(',') if depth == 0 => {
                found.push(&tokens[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found.push(&tokens[start..]);
    (found, &[])
}

fn tokens(statement: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = statement;
    while let Some(first) = rest.chars().next() {
        let behind = &rest[first.len_utf8()..];
        if let Some(comment) = rest.strip_prefix("--") {
            rest = comment.split_once('\n').map_or("", |(_, rest)| rest);
        } else if let Some(comment) = rest.strip_prefix("/*") {
            rest = comment.split_once("*/").map_or("", |(_, rest)| rest);
        } else if let Some(end) = closing(first) {
            let (name, after) = quoted(behind, end);
            tokens.push(Token::Quoted(name));
            rest = after;
        } else if is_of_a_word(first) {
            let end = rest.find(|next| !is_of_a_word(next)).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        } else {
            if !first.is_whitespace() {
                tokens.push(Token::Symbol(first));
            }
            rest = behind;
        }
    }
    tokens
}

fn is_of_a_word(next: char) -> bool {
    next.is_alphanumeric() || matches!(next, '_' | '$')
}

fn closing(first: char) -> Option<char> {
    match first {
        '"' | '\'' | '`' => Some(first),
        '[' => Some(']'),
        _ => None,
    }
}

/// A name up to the character that ends it, which is escaped by doubling, and the rest.
fn quoted(text: &str, end: char) -> (String, &str) {
    let mut name = String::new();
    let mut rest = text;
    while let Some((part, behind)) = rest.split_once(end) {
        name.push_str(part);
        match behind.strip_prefix(end).filter(|_| end != ']') {
            Some(after) => {
                name.push(end);
                rest = after;
            }
            None => return (name, behind),
        }
    }
    name.push_str(rest);
    (name, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(statement: &str) -> (Vec<String>, Option<usize>) {
        let table = Table::parse("t", statement).unwrap();
        (table.columns, table.row_id)
    }

    #[test]
    fn columns_are_found_in_any_writing() {
        let nsight = "CREATE TABLE A (\n    -- Text, with a (bracket\n    id  INTEGER NOT NULL PRIMARY KEY, -- a, b\n \
                      'value' TEXT DEFAULT 'a,b'' (', [with space] DECIMAL(10, 2), \"quote\"\"d\" INT, \
                      CONSTRAINT x UNIQUE (id, value))";
        assert_eq!(parse(nsight), (["id", "value", "with space", "quote\"d"].map(String::from).to_vec(), Some(0)));
        assert_eq!(parse("CREATE TABLE sqlite_sequence(name,seq)"), (vec!["name".to_owned(), "seq".to_owned()], None));
    }

    #[test]
    fn only_whole_numbers_as_keys_are_row_ids() {
        assert_eq!(parse("CREATE TABLE t (a INTEGER, b TEXT, PRIMARY KEY (a))").1, Some(0));
        for other in [
            "CREATE TABLE t (a INT PRIMARY KEY)",
            "CREATE TABLE t (a INTEGER PRIMARY KEY DESC)",
            "CREATE TABLE t (a INTEGER, b INTEGER, PRIMARY KEY (a, b))",
            "CREATE TABLE t (a INTEGER(8) PRIMARY KEY)",
        ] {
            assert_eq!(parse(other).1, None, "{other}");
        }
    }

    #[test]
    fn other_tables_are_refused() {
        for (statement, part) in [
            ("CREATE TABLE t (a INT PRIMARY KEY) WITHOUT ROWID", "WITHOUT ROWID"),
            ("CREATE TABLE t (a INT, b INT GENERATED ALWAYS AS (a + 1))", "a computed column, b"),
            ("CREATE TABLE t", "without columns"),
            ("CREATE TABLE t (a, , )", "ordinary"),
        ] {
            match Table::parse("t", statement) {
                Err(error) => assert!(error.to_string().contains(part), "{error}"),
                Ok(table) => assert_eq!(table.columns, ["a"], "{statement}"),
            }
        }
    }
}
