//! `FILE@WHEN`: an input and an instant.

use super::outcome::Failure;
use crate::facts::time::when::When;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtInstant {
    pub file: PathBuf,
    pub at: Option<When>,
}

impl AtInstant {
    /// Parses what was typed. A file whose own name contains an `@` is a file.
    /// Fails if the part after the name of a file is not an instant.
    pub fn of(typed: &Path) -> Result<Self, Failure> {
        let whole = Self { file: typed.to_owned(), at: None };
        let Some(text) = typed.to_str().filter(|_| !typed.exists()) else { return Ok(whole) };
        let mut mistake = None;
        for (place, _) in text.match_indices('@') {
            let (file, when) = (&text[..place], &text[place + 1..]);
            match when.parse() {
                Ok(when) => return Ok(Self { file: file.into(), at: Some(when) }),
                Err(error) if file == "-" || Path::new(file).is_file() => mistake = Some((file, error)),
                Err(_) => {}
            }
        }
        match mistake {
            Some((file, error)) => Err(Failure::Message(format!("{file}@: {error}"))),
            None => Ok(whole),
        }
    }

    /// Whether both refer to the same file.
    pub fn is_same_file(&self, other: &Self) -> bool {
        let [one, another] = [self, other].map(|side| side.file.canonicalize());
        self.file == other.file || one.is_ok_and(|one| another.is_ok_and(|another| one == another))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::time::when::Edge;

    #[test]
    fn an_instant_follows_the_last_part_of_a_name() {
        let parts = |text: &str| AtInstant::of(Path::new(text)).ok().map(|it| (it.file, it.at));
        let read = |file: &str, at: Option<When>| Some((PathBuf::from(file), at));
        assert_eq!(parts("a.pickle"), read("a.pickle", None));
        assert_eq!(parts("a.pickle@peak"), read("a.pickle", Some(When::Peak)));
        assert_eq!(parts("-@step:3:end"), read("-", Some(When::Step(3, Some(Edge::End)))));
        assert_eq!(parts("me@host/a.pickle@end"), read("me@host/a.pickle", Some(When::End)));
        assert_eq!(parts("a@annotation:b@c:start"), read("a", Some(When::Annotation("b@c:start".to_owned()))));
        assert_eq!(parts("me@host/a.pickle"), read("me@host/a.pickle", None), "no such file, which reading says");
        assert_eq!(parts("Cargo.toml@tomorrow"), None);
    }
}
