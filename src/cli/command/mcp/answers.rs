//! Earlier questions by the IDs of their answers, and the answers as long as there is room for them.

use super::ask::Reply;
use super::tools::Question;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Number of questions that are stored.
const MOST_QUESTIONS: usize = 200;
/// Bytes of answers that are stored; others are computed again.
const MOST_BYTES: usize = 64 << 20;

names! {
    /// The form of an answer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Form {
        /// For reading.
        Text = "text",
        /// With all figures.
        Json = "json",
    }
}

/// Shows whether a file has changed: its size, and when it was written.
type Stamp = Option<(u64, SystemTime)>;

/// A question and its answers.
#[derive(Debug)]
struct Asked {
    number: u64,
    question: Question,
    stamps: Vec<Stamp>,
    replies: Vec<(Form, Arc<Reply>)>,
}

/// All earlier questions, the latest last.
#[derive(Debug, Default)]
pub struct Answers {
    asked: VecDeque<Asked>,
    last: u64,
}

impl Answers {
    /// The ID of a question's answer. The same question about unchanged files has the same ID.
    pub fn id_of(&mut self, question: &Question, folder: &Path) -> String {
        let stamps: Vec<Stamp> = question.files.iter().map(|file| stamp(&folder.join(file))).collect();
        let same = |asked: &Asked| asked.question == *question && asked.stamps == stamps;
        let earlier = self.asked.iter().position(same).and_then(|place| self.asked.remove(place));
        let asked = earlier.unwrap_or_else(|| {
            self.last += 1;
            Asked { number: self.last, question: question.clone(), stamps, replies: Vec::new() }
        });
        let id = format!("a{}", asked.number);
        self.asked.push_back(asked);
        if self.asked.len() > MOST_QUESTIONS {
            self.asked.pop_front();
        }
        id
    }

    /// The question with an ID, as long as its files are unchanged.
    /// Fails if there is none, or a file has changed.
    pub fn question(&self, id: &str, folder: &Path) -> Result<Question, String> {
        let asked = self
            .find(id)
            .ok_or_else(|| format!("id: expected the id of an earlier answer, found {id:?}; ask again"))?;
        let changed = |(file, stamp_then): &(&PathBuf, &Stamp)| stamp(&folder.join(file)) != **stamp_then;
        if let Some((file, _)) = asked.question.files.iter().zip(&asked.stamps).find(changed) {
            return Err(format!("{}: the file has changed since {id} was answered; ask again", file.display()));
        }
        Ok(asked.question.clone())
    }

    /// The answer with an ID, if it is stored.
    pub fn reply(&self, id: &str, form: Form) -> Option<Arc<Reply>> {
        let replies = &self.find(id)?.replies;
        replies.iter().find(|(has, _)| *has == form).map(|(_, reply)| Arc::clone(reply))
    }

    /// Stores an answer, and drops the oldest ones if there is no room.
    pub fn keep(&mut self, id: &str, form: Form, reply: &Arc<Reply>) {
        if let Some(asked) = self.asked.iter_mut().find(|asked| is(asked, id)) {
            asked.replies.push((form, Arc::clone(reply)));
        }
        let mut bytes: usize = self.asked.iter().map(Asked::bytes).sum();
        for asked in &mut self.asked {
            if bytes <= MOST_BYTES {
                break;
            }
            bytes -= asked.bytes();
            asked.replies.clear();
        }
    }

    fn find(&self, id: &str) -> Option<&Asked> {
        self.asked.iter().find(|asked| is(asked, id))
    }
}

impl Asked {
    fn bytes(&self) -> usize {
        self.replies.iter().map(|(_, reply)| reply.answer.len() + reply.complaints.len()).sum()
    }
}

fn is(asked: &Asked, id: &str) -> bool {
    id.strip_prefix('a').is_some_and(|number| number.parse() == Ok(asked.number))
}

fn stamp(file: &Path) -> Stamp {
    let metadata = file.metadata().ok()?;
    Some((metadata.len(), metadata.modified().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(word: &str, file: &str) -> Question {
        Question { arguments: vec![word.into()], files: vec![file.into()] }
    }

    #[test]
    fn the_same_question_has_the_same_answer() {
        let (mut answers, here) = (Answers::default(), Path::new(""));
        let first = answers.id_of(&question("peak", "Cargo.toml"), here);
        let other = answers.id_of(&question("oom", "Cargo.toml"), here);
        assert_eq!((first.as_str(), other.as_str()), ("a1", "a2"));
        assert_eq!(answers.id_of(&question("peak", "Cargo.toml"), here), first);
        let reply = Arc::new(Reply { answer: "x".to_owned(), complaints: String::new(), is_done: true });
        answers.keep(&first, Form::Text, &reply);
        assert_eq!(answers.reply("a1", Form::Text), Some(reply));
        assert_eq!(answers.reply("a1", Form::Json), None);
        assert!(answers.question("a3", here).is_err() && answers.question("2", here).is_err());
    }

    #[test]
    fn kept_answers_are_bounded() {
        let (mut answers, here) = (Answers::default(), Path::new(""));
        let large = Arc::new(Reply { answer: "x".repeat(MOST_BYTES / 3), complaints: String::new(), is_done: true });
        for number in 0..2 * MOST_QUESTIONS {
            let id = answers.id_of(&question(&number.to_string(), "Cargo.toml"), here);
            answers.keep(&id, Form::Text, &large);
            assert!(answers.asked.iter().map(Asked::bytes).sum::<usize>() <= MOST_BYTES);
        }
        assert_eq!(answers.asked.len(), MOST_QUESTIONS);
        assert!(answers.question("a1", here).is_err(), "long gone");
        let last = format!("a{}", 2 * MOST_QUESTIONS);
        assert!(answers.reply(&last, Form::Text).is_some());
    }

    #[test]
    fn a_file_that_has_changed_is_not_told_of() {
        let folder = std::env::temp_dir().join(format!("memviz-answers-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("x"), "one").unwrap();
        let mut answers = Answers::default();
        let id = answers.id_of(&question("peak", "x"), &folder);
        assert!(answers.question(&id, &folder).is_ok());
        std::fs::write(folder.join("x"), "three").unwrap();
        assert!(answers.question(&id, &folder).unwrap_err().contains("has changed"));
        assert_ne!(answers.id_of(&question("peak", "x"), &folder), id);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
