//! What each operator allocated and freed, as TensorBoard's memory view and `key_averages()` add it up.

use crate::model::{DeviceId, StrId};
use foldhash::fast::RandomState;
use indexmap::IndexMap;
use std::collections::HashMap;

/// Label of what was allocated or freed outside of every operator.
pub const NO_OPERATOR: &str = "(no operator)";

/// Memory that passed through one operator while the trace was recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes allocated minus bytes freed, by the operator and everything it called.
    pub increase: i64,
    /// Bytes allocated minus bytes freed by the operator itself.
    pub self_increase: i64,
    /// Number of allocations, by the operator and everything it called.
    pub allocations: u64,
    /// Number of allocations by the operator itself.
    pub self_allocations: u64,
    /// Bytes allocated, by the operator and everything it called.
    pub allocated: u64,
    /// Bytes allocated by the operator itself.
    pub self_allocated: u64,
}

impl Usage {
    pub(super) fn add(&mut self, bytes: i64, is_self: bool) {
        let allocated = u64::try_from(bytes).unwrap_or(0);
        let allocations = u64::from(bytes > 0);
        self.increase = self.increase.wrapping_add(bytes);
        self.allocated = self.allocated.wrapping_add(allocated);
        self.allocations += allocations;
        if is_self {
            self.self_increase = self.self_increase.wrapping_add(bytes);
            self.self_allocated = self.self_allocated.wrapping_add(allocated);
            self.self_allocations += allocations;
        }
    }
}

/// One operator on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorUsage {
    /// Name of the operator, or [`NO_OPERATOR`].
    pub name: String,
    /// Number of calls, wherever their memory lies.
    pub calls: u64,
    /// Its memory on the device.
    pub usage: Usage,
}

/// Operators of all devices.
#[derive(Clone, Debug, Default)]
pub struct Operators {
    calls: HashMap<StrId, u64, RandomState>,
    usages: IndexMap<(DeviceId, Option<StrId>), Usage, RandomState>,
}

impl Operators {
    /// Counts a call.
    pub(super) fn call(&mut self, name: StrId) {
        *self.calls.entry(name).or_default() += 1;
    }

    /// What an operator used on a device.
    pub(super) fn usage(&mut self, device: DeviceId, name: StrId) -> &mut Usage {
        self.usages.entry((device, Some(name))).or_default()
    }

    /// What was used outside of every operator.
    pub(super) fn outside(&mut self, device: DeviceId) -> &mut Usage {
        self.usages.entry((device, None)).or_default()
    }

    /// The operators that touched a device's memory, those that allocated most by themselves first.
    pub(super) fn of(&self, device: DeviceId, name_of: impl Fn(StrId) -> String) -> Vec<OperatorUsage> {
        let on_device = self.usages.iter().filter(|((on, _), _)| *on == device);
        let mut operators: Vec<OperatorUsage> = on_device
            .map(|(&(_, name), &usage)| OperatorUsage {
                name: name.map_or_else(|| NO_OPERATOR.to_owned(), &name_of),
                calls: name.and_then(|name| self.calls.get(&name).copied()).unwrap_or(0),
                usage,
            })
            .collect();
        operators.sort_by(|a, b| {
            let size = |operator: &OperatorUsage| (operator.usage.self_allocated, operator.usage.allocated);
            size(b).cmp(&size(a)).then_with(|| a.name.cmp(&b.name))
        });
        operators
    }
}
