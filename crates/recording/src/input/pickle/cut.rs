//! What a file that was cut off still contains.

use super::machine::Machine;
use super::opcode as op;
use super::value::Value;
use crate::error::Result;
use std::collections::HashSet;
use std::io::Read;

impl<R: Read> Machine<R> {
    /// Closes every open container as if the file had done so here, and returns the root and the lists that were open.
    ///
    /// A dictionary that was cut is dropped if it is in a list: it is an entry, a block or a segment of which only a part is
    /// known.
    pub(super) fn close_at_cut(&mut self) -> Result<(Value, HashSet<u32>)> {
        let at = self.window.offset();
        let mut open_lists = HashSet::new();
        while let Some(start) = self.marks.pop() {
            let container = start.checked_sub(1).and_then(|below| self.stack.get(below)).copied();
            match container {
                Some(Value::List(index)) => {
                    open_lists.insert(index);
                    self.close_last_item_at_cut(at, start, &mut open_lists)?;
                    self.extend_list(at, start)?;
                }
                Some(Value::Dict(_)) => self.close_dict_at_cut(at, start, &mut open_lists)?,
                _ => self.stack.truncate(start),
            }
        }
        // Protocol 0 fills dictionaries pair by pair, without a mark.
        if matches!(self.stack.first(), Some(Value::Dict(_))) {
            self.close_dict_at_cut(at, 1, &mut open_lists)?;
        }
        let root = self.stack.first().copied();
        root.map(|root| (root, open_lists)).ok_or_else(|| self.window.truncated("the first instruction"))
    }

    /// Closes the last of the items from `start` on, all of which belong to one list. If it is a list, its next batch was
    /// about to come, or it was a single item, which is written without a mark.
    fn close_last_item_at_cut(&mut self, at: u64, start: usize, open_lists: &mut HashSet<u32>) -> Result<()> {
        let last = |machine: &Self| machine.stack[start..].last().map(|&last| machine.heap.resolve(last));
        if matches!(last(self), Some(Value::Dict(_))) {
            self.stack.pop();
        }
        if matches!(last(self), Some(Value::Entry(_) | Value::Stack(_)))
            && matches!(self.stack[start..], [.., Value::List(_), _])
        {
            self.extend_list(at, self.stack.len() - 1)?;
        }
        if let Some(&Value::List(index)) = self.stack[start..].last() {
            open_lists.insert(index);
        }
        Ok(())
    }

    /// Closes the dictionary below `start` with the keys and values from there on.
    ///
    /// A list of one item is written without a mark, so the last complete pair may be followed by a list, an item of that
    /// list, and so on inwards, where a key is expected.
    fn close_dict_at_cut(&mut self, at: u64, start: usize, open_lists: &mut HashSet<u32>) -> Result<()> {
        let keys = self.stack[start..].iter().step_by(2);
        let complete = keys.take_while(|key| matches!(key, Value::Str(_))).count() * 2;
        let chain = (start + complete).min(self.stack.len());
        // Lists without a mark may have been between two batches of items.
        for value in &self.stack[chain.saturating_sub(1).max(start)..] {
            if let &Value::List(index) = value {
                open_lists.insert(index);
            }
        }
        while self.stack.len() > chain {
            let item = self.stack.last().map(|&item| self.heap.resolve(item));
            let parent = self.stack.len().checked_sub(2).and_then(|below| self.stack.get(below)).copied();
            match (parent, item) {
                (Some(Value::List(index)), Some(Value::List(_) | Value::Entry(_) | Value::Stack(_))) => {
                    open_lists.insert(index);
                    self.extend_list(at, self.stack.len() - 1)?;
                }
                _ => self.stack.truncate(self.stack.len() - 1),
            }
        }
        if (self.stack.len() - start) % 2 == 1 {
            self.stack.pop();
        }
        self.extend_dict(at, op::SETITEM, start)
    }
}
