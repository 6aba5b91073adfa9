//! The structures that runtime functions fill in, written as bytes at offsets, since they differ between CUDA versions.
//!
//! Offsets are those of `driver_types.h` of CUDA 11.8, 12.4 and 13.0, on 64-bit Linux.

use crate::config::Config;

/// A structure under construction. Bytes that are not written are zero.
pub struct Fields(Vec<u8>);

impl Fields {
    /// A structure of `size` bytes.
    pub fn new(size: usize) -> Self {
        Self(vec![0; size])
    }

    fn bytes(&mut self, at: usize, bytes: &[u8]) {
        if let Some(field) = self.0.get_mut(at..at + bytes.len()) {
            field.copy_from_slice(bytes);
        }
    }

    /// Writes a field of 4 bytes.
    pub fn int(&mut self, at: usize, value: i32) {
        self.bytes(at, &value.to_ne_bytes());
    }

    /// Writes a field of 8 bytes: a size or an address.
    pub fn size(&mut self, at: usize, value: usize) {
        self.bytes(at, &value.to_ne_bytes());
    }

    /// Writes text that ends with a zero, truncated to the length of its field.
    pub fn text(&mut self, at: usize, length: usize, value: &str) {
        let value = value.as_bytes();
        self.bytes(at, &value[..value.len().min(length - 1)]);
    }

    /// The structure.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// `cudaDeviceProp` of a device.
pub fn device_properties(config: &Config, device: usize) -> Vec<u8> {
    // Fields after `totalConstMem` moved when CUDA 13 removed the clock rates.
    let is_13 = config.cuda >= 13_000;
    let at = |before: usize, from_13: usize| if is_13 { from_13 } else { before };
    let size = match config.cuda {
        13_000.. => 1008,
        12_000.. => 1032,
        _ => 728,
    };
    let number = i32::try_from(device).unwrap_or(0);
    let mut fields = Fields::new(size);
    fields.text(0, 256, &config.name);
    for byte in 0..16 {
        fields.bytes(256 + byte, &[(0x10 * (device + 1) + byte) as u8]);
    }
    fields.size(288, config.memory);
    fields.size(296, 48 << 10); // sharedMemPerBlock
    fields.int(304, 65536); // regsPerBlock
    fields.int(308, 32); // warpSize
    fields.size(312, i32::MAX as usize); // memPitch
    fields.int(320, 1024); // maxThreadsPerBlock
    for (index, most) in [1024, 1024, 64, i32::MAX, 65535, 65535].into_iter().enumerate() {
        fields.int(324 + 4 * index, most); // maxThreadsDim, maxGridSize
    }
    fields.size(352, 64 << 10); // totalConstMem
    fields.int(360, config.capability / 10);
    fields.int(364, config.capability % 10);
    fields.size(368, 512); // textureAlignment
    fields.int(at(388, 384), config.multiprocessors);
    fields.int(at(400, 392), 1); // canMapHostMemory
    fields.int(at(576, 560), 1); // concurrentKernels
    fields.int(at(584, 568), number + 1); // pciBusID
    fields.int(at(600, 584), 3); // asyncEngineCount
    fields.int(at(604, 588), 1); // unifiedAddressing
    fields.int(at(612, 592), config.bus);
    fields.int(at(616, 596), config.cache);
    fields.int(at(624, 604), config.threads_per_multiprocessor);
    fields.int(at(628, 608), 1); // streamPrioritiesSupported
    fields.size(at(640, 624), config.shared_per_multiprocessor as usize);
    fields.int(at(648, 632), 65536); // regsPerMultiprocessor
    fields.int(at(652, 636), 1); // managedMemory
    fields.int(at(688, 668), 1); // cooperativeLaunch
    fields.size(at(696, 672), config.shared_per_block as usize);
    fields.int(at(712, 688), config.blocks_per_multiprocessor);
    fields.size(at(720, 696), 1024); // reservedSharedMemPerBlock
    fields.finish()
}

/// `cudaFuncAttributes` of any kernel.
pub fn function_attributes(config: &Config) -> Vec<u8> {
    let mut fields = Fields::new(if config.cuda >= 12_000 { 144 } else { 56 });
    fields.int(24, 1024); // maxThreadsPerBlock
    fields.int(28, 32); // numRegs
    fields.int(32, config.code()); // ptxVersion
    fields.int(36, config.code()); // binaryVersion
    fields.int(44, config.shared_per_block); // maxDynamicSharedSizeBytes
    fields.finish()
}

/// The kind of memory at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// Memory unknown to CUDA.
    Host,
    /// Pinned host memory.
    Pinned,
    /// Device memory.
    Device(usize),
}

/// `cudaPointerAttributes` of an address.
pub fn pointer_attributes(config: &Config, address: usize, memory: Memory) -> Vec<u8> {
    let mut fields = Fields::new(if config.cuda >= 13_000 { 88 } else { 24 });
    let (kind, device) = match memory {
        Memory::Host => (0, -1),
        Memory::Pinned => (1, 0),
        Memory::Device(device) => (2, i32::try_from(device).unwrap_or(0)),
    };
    fields.int(0, kind);
    fields.int(4, device);
    if memory != Memory::Host {
        fields.size(8, address);
    }
    if !matches!(memory, Memory::Device(_)) {
        fields.size(16, address);
    }
    fields.finish()
}
