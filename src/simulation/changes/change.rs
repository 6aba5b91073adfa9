//! The changes to a program, by name.

use super::optimizer::Optimizer;
use std::fmt;

/// A change to a program.
///
/// Changes take effect in the order of the variants, regardless of the order in which they are named.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Change {
    /// Non-reentrant `torch.utils.checkpoint` around the first call of a function in a forward pass and every N-th
    /// after it.
    Checkpoint {
        /// The function: its label in [`crate::analysis::checkpoint::Candidate::label`], or a unique part of it.
        site: String,
        /// 1 for every call.
        every: usize,
    },
    /// Shards parameters, gradients and optimizer states over ranks (ZeRO-3, `fully_shard`). The result is the program of one
    /// rank.
    ShardParameters {
        /// Number of ranks.
        ranks: u32,
    },
    /// Shards gradients and optimizer states over ranks (ZeRO-2). The result is the program of one rank.
    ShardGradients {
        /// Number of ranks.
        ranks: u32,
    },
    /// Shards optimizer states over ranks (ZeRO-1). The result is the program of one rank.
    ShardOptimizer {
        /// Number of ranks.
        ranks: u32,
        /// Whether each rank's optimizer frees only its own gradients, so the others stay live, as with the `zero_grad`
        /// of an optimizer that has some of the parameters. `ZeroRedundancyOptimizer` frees all.
        keeps_gradients: bool,
    },
    Optimizer(Optimizer),
    OffloadOptimizer,
    /// Tensors saved for backward on the CPU: `torch.autograd.graph.save_on_cpu`.
    OffloadActivations,
    /// Only forward passes, under `eval` and `no_grad`.
    Inference,
    /// Logits and loss computed in chunks of tokens, each checkpointed.
    ChunkLoss {
        pieces: u32,
    },
    /// Several forward and backward passes for each optimizer step. The program is that of one pass; [`crate::analysis::fit`]
    /// provides passes with a batch that is this many times smaller.
    Accumulate {
        passes: u32,
    },
}

/// The expected form of a change's name.
const EXPECTED: &str =
    "expected a change such as checkpoint:SITE, optimizer:sgd, shard-optimizer:4 or offload:optimizer";

impl fmt::Display for Change {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint { site, every: 1 } => write!(out, "checkpoint:{site}"),
            Self::Checkpoint { site, every } => write!(out, "checkpoint:{site}:every={every}"),
            Self::ShardParameters { ranks } => write!(out, "shard-parameters:{ranks}"),
            Self::ShardGradients { ranks } => write!(out, "shard-gradients:{ranks}"),
            Self::ShardOptimizer { ranks, keeps_gradients: false } => write!(out, "shard-optimizer:{ranks}"),
            Self::ShardOptimizer { ranks, keeps_gradients: true } => {
                write!(out, "shard-optimizer:{ranks}:keep-gradients")
            }
            Self::Optimizer(optimizer) => write!(out, "optimizer:{}", optimizer.name()),
            Self::OffloadOptimizer => out.write_str("offload:optimizer"),
            Self::OffloadActivations => out.write_str("offload:activations"),
            Self::Inference => out.write_str("inference"),
            Self::ChunkLoss { pieces } => write!(out, "chunk-loss:{pieces}"),
            Self::Accumulate { passes } => write!(out, "accumulate:{passes}"),
        }
    }
}

impl Change {
    /// `SITE` or `SITE:every=N`.
    ///
    /// # Errors
    /// A message if the text has another form.
    pub fn checkpoint(text: &str) -> Result<Self, String> {
        let (site, every) = match text.rsplit_once(":every=") {
            Some((site, every)) => (site, every.parse().ok().filter(|&every| every > 0)),
            None => (text, Some(1)),
        };
        let every = every.filter(|_| !site.trim().is_empty());
        let every = every.ok_or_else(|| format!("expected SITE or SITE:every=N, found {text:?}"))?;
        Ok(Self::Checkpoint { site: site.trim().to_owned(), every })
    }

    /// The name of an optimizer.
    /// Fails if the name is unknown, in words.
    pub fn optimizer(text: &str) -> Result<Self, String> {
        let known = Optimizer::ALL.into_iter().find(|optimizer| optimizer.name() == text.to_ascii_lowercase());
        let names = || Optimizer::ALL.map(Optimizer::name).join(", ");
        known.map(Self::Optimizer).ok_or_else(|| format!("expected one of {}, found {text:?}", names()))
    }

    /// `RANKS` or `RANKS:keep-gradients`.
    ///
    /// # Errors
    /// A message if the text has another form.
    pub fn shard_optimizer(text: &str) -> Result<Self, String> {
        let (number, keeps_gradients) = match text.strip_suffix(":keep-gradients") {
            Some(number) => (number, true),
            None => (text, false),
        };
        Ok(Self::ShardOptimizer { ranks: ranks(number)?, keeps_gradients })
    }

    /// `RANKS`.
    ///
    /// # Errors
    /// A message if the text has another form.
    pub fn shard_gradients(text: &str) -> Result<Self, String> {
        Ok(Self::ShardGradients { ranks: ranks(text)? })
    }

    /// `RANKS`.
    ///
    /// # Errors
    /// A message if the text has another form.
    pub fn shard_parameters(text: &str) -> Result<Self, String> {
        Ok(Self::ShardParameters { ranks: ranks(text)? })
    }

    /// A number of pieces.
    ///
    /// # Errors
    /// A message if the text has another form.
    pub fn chunk_loss(text: &str) -> Result<Self, String> {
        Ok(Self::ChunkLoss { pieces: number(text, "chunks", MOST_PIECES)? })
    }

    /// A number of passes.
    ///
    /// # Errors
    /// A message if the text has another form.
    pub fn accumulate(text: &str) -> Result<Self, String> {
        Ok(Self::Accumulate { passes: number(text, "passes", MOST_PIECES)? })
    }

    /// `optimizer` or `activations`.
    ///
    /// # Errors
    /// A message if the text has another form.
    pub fn offload(text: &str) -> Result<Self, String> {
        match text {
            "optimizer" => Ok(Self::OffloadOptimizer),
            "activations" => Ok(Self::OffloadActivations),
            _ => Err(format!("expected optimizer or activations, found {text:?}")),
        }
    }
}

/// The maximum number of ranks.
const MOST_RANKS: u32 = 1 << 12;

/// The maximum number of pieces or passes.
const MOST_PIECES: u32 = 1 << 10;

fn ranks(text: &str) -> Result<u32, String> {
    number(text, "ranks", MOST_RANKS)
}

fn number(text: &str, of: &str, most: u32) -> Result<u32, String> {
    let number = text.trim().parse().ok().filter(|number| (2..=most).contains(number));
    number.ok_or_else(|| format!("expected a number of {of} from 2 to {most}, found {text:?}"))
}

impl std::str::FromStr for Change {
    type Err = String;

    /// Reads what [`Display`](fmt::Display) writes.
    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match kind {
            "checkpoint" => Self::checkpoint(rest),
            "optimizer" => Self::optimizer(rest),
            "shard-optimizer" => Self::shard_optimizer(rest),
            "shard-gradients" => Self::shard_gradients(rest),
            "shard-parameters" => Self::shard_parameters(rest),
            "offload" => Self::offload(rest),
            "chunk-loss" => Self::chunk_loss(rest),
            "accumulate" => Self::accumulate(rest),
            "inference" if rest.is_empty() => Ok(Self::Inference),
            _ => Err(format!("{EXPECTED}, found {text:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for text in [
            "checkpoint:model.py:53 forward",
            "checkpoint:model.py:53 forward:every=2",
            "optimizer:adam8bit",
            "shard-optimizer:8",
            "shard-optimizer:8:keep-gradients",
            "shard-gradients:4",
            "shard-parameters:4",
            "offload:optimizer",
            "offload:activations",
            "inference",
            "chunk-loss:4",
            "accumulate:2",
        ] {
            assert_eq!(text.parse::<Change>().map(|change| change.to_string()), Ok(text.to_owned()));
        }
        for text in ["checkpoint:", "checkpoint:a:every=0", "optimizer:lion", "shard-optimizer:1", "offload", "x"] {
            assert!(text.parse::<Change>().is_err(), "{text}");
        }
    }
}
