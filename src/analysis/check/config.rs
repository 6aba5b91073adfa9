//! `memviz.toml`: budgets that a repository commits.
//!
//! In: its text. Out: its entries, with every value read; or an error that names the line. Paths stay as they are
//! written: they are relative to the file's folder, which the caller knows.

use super::budget::{Budgets, Ceiling, ResidueLimit, SiteLimit, Tolerance, at_most_all};
use crate::error::{Error, Result};
use crate::model::DeviceId;
use crate::model::bytes::Bytes;
use crate::model::percent::Percent;
use regex_lite::Regex;
use serde::de::{Deserializer, Error as _, IgnoredAny, Visitor};
use serde::{Deserialize, de};
use std::fmt;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::str::FromStr;

#[derive(Clone, Debug)]
pub struct Entry {
    /// Which inputs: a glob.
    pub input: String,
    /// The recording, or the earlier answer, that growth is measured from.
    pub baseline: Option<PathBuf>,
    pub budgets: Budgets,
}

/// Reads the text of a `memviz.toml`. `capacity` replaces every capacity in it. A file with rehearsal options does not need
/// entries.
///
/// # Errors
/// If it is not TOML, has unknown keys or values that are not limits, or an entry without limits.
pub fn read(text: &str, capacity: Option<Bytes>) -> Result<Vec<Entry>> {
    let file: File = toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        let place = line.map(|line| format!("line {line}: ")).unwrap_or_default();
        Error::Request(format!("{place}{}", error.message().replace('\n', ", ")))
    })?;
    let fallback = capacity.or(file.capacity.map(|capacity| capacity.0.0));
    file.budget.into_iter().map(|table| table.into_entry(capacity, fallback)).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    capacity: Option<Typed<OfDevice>>,
    #[serde(default)]
    budget: Vec<Table>,
    /// What other commands read.
    #[serde(default, rename = "rehearse")]
    _rehearse: IgnoredAny,
    #[serde(default, rename = "categories")]
    _categories: IgnoredAny,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Table {
    name: Option<String>,
    input: String,
    #[serde(default)]
    device: OneOrMore<DeviceId>,
    capacity: Option<Typed<OfDevice>>,
    max_peak: Option<Typed<Ceiling>>,
    max_reserved: Option<Typed<Ceiling>>,
    max_fragmentation: Option<Typed<Share>>,
    max_leak: Option<Typed<OfBlocks>>,
    #[serde(default)]
    max_site: OneOrMore<Typed<SiteLimit>>,
    #[serde(default)]
    max_residue: OneOrMore<Typed<ResidueLimit>>,
    steps: Option<Typed<Regex>>,
    baseline: Option<PathBuf>,
    tolerance: Option<Typed<Tolerance>>,
    #[serde(default)]
    accept_late_start: bool,
    #[serde(default)]
    require_counters: bool,
}

impl Table {
    fn into_entry(self, asked: Option<Bytes>, fallback: Option<Bytes>) -> Result<Entry> {
        let name = self.name.unwrap_or_else(|| self.input.clone());
        let about = |error: Error| Error::Request(format!("budget {name:?}: {error}"));
        let capacity = asked.or(self.capacity.map(|capacity| capacity.0.0)).or(fallback);
        let bytes = |ceiling: Option<Typed<Ceiling>>| ceiling.map(|ceiling| ceiling.0.bytes(capacity)).transpose();
        let budgets = Budgets {
            devices: self.device.0,
            max_peak: bytes(self.max_peak).map_err(about)?,
            max_reserved: bytes(self.max_reserved).map_err(about)?,
            max_fragmentation: self.max_fragmentation.map(|share| share.0.0),
            max_leak: self.max_leak.map(|size| size.0.0.0),
            max_sites: self.max_site.0.into_iter().map(|limit| limit.0).collect(),
            max_residues: self.max_residue.0.into_iter().map(|limit| limit.0).collect(),
            steps: self.steps.map(|steps| steps.0),
            baseline: None,
            tolerance: self.tolerance.as_ref().map(|tolerance| tolerance.0).unwrap_or_default(),
            accept_late_start: self.accept_late_start,
            require_counters: self.require_counters,
            name: None,
        };
        if budgets.is_empty() && self.baseline.is_none() {
            return Err(about(Error::Request("expected a limit or a baseline, found neither".to_owned())));
        }
        if self.tolerance.is_some() && self.baseline.is_none() {
            return Err(about(Error::Request("expected a baseline with the tolerance, found none".to_owned())));
        }
        Ok(Entry { input: self.input, baseline: self.baseline, budgets: Budgets { name: Some(name), ..budgets } })
    }
}

/// A percentage of at most 100.
struct Share(Percent);

impl FromStr for Share {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        at_most_all(text).map(Self)
    }
}

/// A size that [`Bytes::of_device`] reads.
struct OfDevice(Bytes);

impl FromStr for OfDevice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Bytes::of_device(text).map(Self)
    }
}

/// A size that [`Bytes::of_blocks`] reads.
struct OfBlocks(Bytes);

impl FromStr for OfBlocks {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Bytes::of_blocks(text).map(Self)
    }
}

/// A value that is written like the flag of the same name, or as a bare number.
struct Typed<T>(T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Typed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct AsText<T>(PhantomData<T>);

        impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for AsText<T> {
            type Value = Typed<T>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("text such as \"40GiB\", or a whole number")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<Self::Value, E> {
                text.parse().map(Typed).map_err(|error: T::Err| E::custom(last_line(&error.to_string())))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> std::result::Result<Self::Value, E> {
                self.visit_str(&number.to_string())
            }
        }

        deserializer.deserialize_any(AsText(PhantomData))
    }
}

/// The line of a message that says what is wrong; the lines above it show the regular expression.
fn last_line(message: &str) -> &str {
    message.lines().last().unwrap_or_default().trim()
}

struct OneOrMore<T>(Vec<T>);

impl<T> Default for OneOrMore<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMore<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Values<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Values<T> {
            type Value = OneOrMore<T>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a value or a list of values")
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut values: A) -> std::result::Result<Self::Value, A::Error> {
                let mut list = Vec::new();
                while let Some(value) = values.next_element()? {
                    list.push(value);
                }
                if list.is_empty() {
                    return Err(A::Error::custom("expected at least one value, found an empty list"));
                }
                Ok(OneOrMore(list))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> std::result::Result<Self::Value, E> {
                T::deserialize(de::value::StrDeserializer::new(text)).map(|value| OneOrMore(vec![value]))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> std::result::Result<Self::Value, E> {
                T::deserialize(de::value::I64Deserializer::new(number)).map(|value| OneOrMore(vec![value]))
            }
        }

        deserializer.deserialize_any(Values(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_flags_are() {
        let text = r#"
            capacity = "80GiB"
            [rehearse]
            gpu = "a100-80gb"
            [[budget]]
            name = "step"
            input = "runs/*.pickle"
            device = [0, 1]
            max-peak = "90%"
            max-reserved = 1073741824
            max-fragmentation = "30%"
            max-leak = "1 MiB"
            max-site = ["attention=2GiB", "a=b=1GB"]
            steps = "^step_"
            baseline = "base.json"
            tolerance = "2%"
            [[budget]]
            input = "*"
            device = 1
            capacity = "10 bytes"
            max-peak = "50%"
        "#;
        let entries = read(text, None).unwrap();
        let [first, second] = &entries[..] else { panic!("{entries:?}") };
        let budgets = &first.budgets;
        assert_eq!((first.input.as_str(), budgets.name.as_deref()), ("runs/*.pickle", Some("step")));
        assert_eq!(budgets.devices, [0, 1]);
        assert_eq!((budgets.max_peak, budgets.max_reserved), (Some(72 << 30), Some(1 << 30)));
        assert_eq!(budgets.max_fragmentation, "30%".parse().ok());
        assert_eq!(budgets.max_leak, Some(1 << 20));
        let sites: Vec<_> = budgets.max_sites.iter().map(|site| (site.pattern.as_str(), site.limit.0)).collect();
        assert_eq!(sites, [("attention", 2 << 30), ("a=b", 1_000_000_000)]);
        assert_eq!(budgets.steps.as_ref().map(Regex::as_str), Some("^step_"));
        assert_eq!((first.baseline.clone(), budgets.tolerance), (Some("base.json".into()), "2%".parse().unwrap()));
        assert_eq!((second.budgets.name.as_deref(), second.budgets.max_peak), (Some("*"), Some(5)));
        // A capacity on the command line applies to all.
        let [first, second] = &read(text, Some(Bytes(1000))).unwrap()[..] else { panic!() };
        assert_eq!((first.budgets.max_peak, second.budgets.max_peak), (Some(900), Some(500)));
    }

    #[test]
    fn mistakes_are_named_in_one_line() {
        for (text, parts) in [
            ("max-peak = \"5GiB\"", &["line 1", "max-peak"] as &[&str]),
            ("[[budget]]\ninput = \"*\"\nmax-peek = 5", &["line 3", "max-peek", "max-peak"]),
            ("[[budget]]\nmax-peak = \"5GiB\"", &["line 1", "input"]),
            ("[[budget]]\ninput = \"*\"\nmax-peak = 5", &["line 3", "5GiB or 5MiB"]),
            ("[[budget]]\ninput = \"*\"", &["\"*\"", "a limit or a baseline"]),
            ("[[budget]]\ninput = \"*\"\nmax-peak = \"10XB\"", &["line 3", "10XB", "40GiB"]),
            ("[[budget]]\ninput = \"*\"\nmax-peak = -1", &["line 3", "-1"]),
            ("[[budget]]\ninput = \"*\"\nmax-peak = 1.5", &["line 3", "1.5"]),
            ("[[budget]]\ninput = \"*\"\nmax-peak = \"99999999TiB\"", &["line 3", "99999999TiB"]),
            ("[[budget]]\ninput = \"*\"\nmax-peak = \"90%\"", &["90%", "capacity"]),
            ("[[budget]]\ninput = \"*\"\nmax-fragmentation = \"130%\"", &["line 3", "130%"]),
            ("[[budget]]\ninput = \"*\"\nmax-site = \"(=5\"", &["line 3", "regular expression"]),
            ("[[budget]]\ninput = \"*\"\nmax-site = []", &["line 3", "at least one"]),
            ("[[budget]]\ninput = \"*\"\nmax-leak = 512\nsteps = \"(\"", &["line 4", "open group without closing"]),
            ("[[budget]]\ninput = \"*\"\nmax-leak = 5000\ntolerance = 5000", &["baseline"]),
            ("[[budget]]\ninput = \"*\"\nmax-leak = 512\ndevice = \"one\"", &["line 4"]),
            ("[[budget]]\ninput = \"*\"\nmax-leak = 5", &["line 3", "5GiB or 5MiB"]),
            ("capacity = 80\n[[budget]]\ninput = \"*\"\nmax-peak = \"90%\"", &["line 1", "80GiB or 80MiB"]),
            ("[[budget]]\ninput = \"*\nmax-leak = 5", &["line 2"]),
            ("[[budget]\n", &["line 1"]),
        ] {
            let error = read(text, None).map(|entries| format!("{entries:?}")).expect_err(text).to_string();
            assert!(!error.contains('\n'), "{error:?}");
            for part in parts {
                assert!(error.contains(part), "{text:?} does not mention {part:?}: {error}");
            }
        }
    }
}
