//! A stand-in for CUDA, under which PyTorch's CUDA build runs on a machine without a GPU.
//!
//! PyTorch's allocator, autograd and profiler are the real ones. Below them, the functions of this library have the names of
//! those of the CUDA runtime, the driver, cuBLAS, cuDNN, NCCL, CUPTI and NVML. Device memory is a range of addresses that nobody can
//! read or write: requests are accounted for, and refused where the device has no more. Kernels do nothing, and every value that
//! is read back is 0.
//!
//! Python loads it with its symbols visible to all before it imports PyTorch, and describes the device in the environment
//! ([`config`]).
//!
//! # Unsafe code
//! Functions called by C have to be written with it. They rely on one thing: PyTorch passes what CUDA's interface asks for, so a
//! pointer is null where CUDA allows it, and otherwise points to what the function reads or writes. What can be done without raw
//! pointers (addresses, accounts, the description of the device) is safe code in modules of its own.

#![warn(unsafe_op_in_unsafe_fn)]

#[macro_use]
mod exports;

mod addresses;
mod attributes;
mod blas;
mod config;
mod control;
mod cudnn;
mod cupti;
mod driver;
mod graphs;
mod kernels;
mod layout;
mod memory;
mod nccl;
mod nvml;
mod reads;
mod runtime;
mod state;
mod streams;
mod stubs;
