//! Values by address, in address order.
//!
//! The replay does three things with an address: it finds the item before it, finds the item at or after it, and inserts one.
//! In a `BTreeMap`, each of these is a separate search, and these searches were a fifth of all instructions on the recording
//! of a medium-sized model. Here, one search finds the place, and the place serves all three. Keys are stored next to each
//! other in chunks, so a search is two short binary searches, and an insertion moves a few hundred bytes.

/// The most values in a chunk; a full one is split in half.
const CHUNK: usize = 64;

#[derive(Clone, Debug)]
pub struct AddressMap<V> {
    /// The first key of each chunk.
    firsts: Vec<u64>,
    /// In order; no chunk is empty.
    chunks: Vec<Chunk<V>>,
}

#[derive(Clone, Debug)]
struct Chunk<V> {
    keys: Vec<u64>,
    values: Vec<V>,
}

/// The position of an address. Valid until the map gains or loses an address.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    chunk: usize,
    /// Index in the chunk of the first key that is not below the address.
    index: usize,
}

impl<V> Default for AddressMap<V> {
    fn default() -> Self {
        Self { firsts: Vec::new(), chunks: Vec::new() }
    }
}

impl<V> AddressMap<V> {
    /// Finds the position of `addr`.
    #[inline]
    pub fn place(&self, addr: u64) -> Place {
        let chunk = self.firsts.partition_point(|&first| first <= addr).saturating_sub(1);
        let index = self.chunks.get(chunk).map_or(0, |chunk| chunk.keys.partition_point(|&key| key < addr));
        Place { chunk, index }
    }

    /// The nearest address below the one at `place`, and its value.
    #[inline]
    pub fn before(&self, place: Place) -> Option<(u64, &V)> {
        match place.index.checked_sub(1) {
            Some(index) => self.chunks.get(place.chunk)?.get(index),
            None => self.chunks.get(place.chunk.checked_sub(1)?)?.last(),
        }
    }

    /// The first address at or above the one at `place`, and its value.
    #[inline]
    pub fn from(&self, place: Place) -> Option<(u64, &V)> {
        let chunk = self.chunks.get(place.chunk)?;
        chunk.get(place.index).or_else(|| self.chunks.get(place.chunk + 1)?.get(0))
    }

    /// The nearest address up to and including `addr`, and its value.
    #[inline]
    pub fn up_to(&self, addr: u64) -> Option<(u64, &V)> {
        let place = self.place(addr);
        let here = self.chunks.get(place.chunk).and_then(|chunk| chunk.get(place.index));
        here.filter(|&(key, _)| key == addr).or_else(|| self.before(place))
    }

    pub fn get(&self, addr: u64) -> Option<&V> {
        self.from(self.place(addr)).filter(|&(key, _)| key == addr).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, addr: u64) -> Option<&mut V> {
        let place = self.place(addr);
        let chunk = self.chunks.get_mut(place.chunk)?;
        if chunk.keys.get(place.index) == Some(&addr) { chunk.values.get_mut(place.index) } else { None }
    }

    /// Inserts a value at `addr`, whose position is `place`, or replaces the value there.
    pub fn insert(&mut self, place: Place, addr: u64, value: V) {
        let Some(chunk) = self.chunks.get_mut(place.chunk) else {
            self.firsts.push(addr);
            self.chunks.push(Chunk { keys: vec![addr], values: vec![value] });
            return;
        };
        if chunk.keys.get(place.index) == Some(&addr) {
            chunk.values[place.index] = value;
            return;
        }
        chunk.keys.insert(place.index, addr);
        chunk.values.insert(place.index, value);
        self.firsts[place.chunk] = chunk.keys[0];
        if chunk.keys.len() > CHUNK {
            let upper = Chunk { keys: chunk.keys.split_off(CHUNK / 2), values: chunk.values.split_off(CHUNK / 2) };
            self.firsts.insert(place.chunk + 1, upper.keys[0]);
            self.chunks.insert(place.chunk + 1, upper);
        }
    }

    pub fn remove(&mut self, addr: u64) -> Option<V> {
        let place = self.place(addr);
        let chunk = self.chunks.get_mut(place.chunk)?;
        if chunk.keys.get(place.index) != Some(&addr) {
            return None;
        }
        chunk.keys.remove(place.index);
        let value = chunk.values.remove(place.index);
        if let Some(&first) = chunk.keys.first() {
            self.firsts[place.chunk] = first;
        } else {
            self.firsts.remove(place.chunk);
            self.chunks.remove(place.chunk);
        }
        Some(value)
    }

    /// The addresses from the one at `place` on, with their values, in order.
    pub fn iter_from(&self, place: Place) -> impl Iterator<Item = (u64, &V)> {
        let chunks = self.chunks.iter().skip(place.chunk);
        let all = chunks.flat_map(|chunk| chunk.keys.iter().copied().zip(&chunk.values));
        all.skip(place.index)
    }

    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.chunks.iter().flat_map(|chunk| &chunk.values)
    }
}

impl<V> Chunk<V> {
    #[inline]
    fn get(&self, index: usize) -> Option<(u64, &V)> {
        Some((*self.keys.get(index)?, self.values.get(index)?))
    }

    fn last(&self) -> Option<(u64, &V)> {
        Some((*self.keys.last()?, self.values.last()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn it_answers_as_an_ordered_map_does(
            changes in prop::collection::vec((prop::bool::weighted(0.7), 0..3000u64), 0..4000),
            asked in prop::collection::vec(0..3002u64, 50),
        ) {
            let (mut map, mut model) = (AddressMap::default(), BTreeMap::new());
            for (index, (is_added, addr)) in changes.into_iter().enumerate() {
                if is_added {
                    map.insert(map.place(addr), addr, index);
                    model.insert(addr, index);
                } else {
                    prop_assert_eq!(map.remove(addr), model.remove(&addr));
                }
            }
            prop_assert!(map.values().eq(model.values()));
            for addr in asked {
                let place = map.place(addr);
                let pair = |(&key, value)| (key, value);
                prop_assert_eq!(map.before(place), model.range(..addr).next_back().map(pair));
                prop_assert_eq!(map.from(place), model.range(addr..).next().map(pair));
                prop_assert_eq!(map.up_to(addr), model.range(..=addr).next_back().map(pair));
                prop_assert_eq!(map.get(addr), model.get(&addr));
                prop_assert_eq!(map.get_mut(addr).map(|value| *value), model.get(&addr).copied());
                prop_assert!(map.iter_from(place).eq(model.range(addr..).map(pair)));
            }
        }
    }
}
