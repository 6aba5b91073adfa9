//! What each operator allocated and freed, summed as in TensorBoard's memory view and `key_averages()`.

use crate::model::{DeviceId, StrId};
use crate::replay::operator_usage::{NO_OPERATOR, OperatorUsage, Usage};
use foldhash::fast::RandomState;
use indexmap::IndexMap;
use std::collections::HashMap;

#[derive(Clone, Debug, Default)]
pub struct Operators {
    calls: HashMap<StrId, u64, RandomState>,
    usages: IndexMap<(DeviceId, Option<StrId>), Usage, RandomState>,
}

impl Operators {
    pub(super) fn call(&mut self, name: StrId) {
        *self.calls.entry(name).or_default() += 1;
    }

    pub(super) fn usage(&mut self, device: DeviceId, name: StrId) -> &mut Usage {
        self.usages.entry((device, Some(name))).or_default()
    }

    pub(super) fn outside(&mut self, device: DeviceId) -> &mut Usage {
        self.usages.entry((device, None)).or_default()
    }

    /// The operators that used a device's memory. Those that allocated most by themselves are first.
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
