//! A stand-in for CUDA, under which PyTorch's CUDA build runs on a machine without a GPU.
//!
//! PyTorch's allocator, autograd and profiler are the real ones. Below them, this library replaces the functions of the
//! CUDA runtime, the driver, cuBLAS, cuDNN, NCCL, CUPTI and NVML. Device memory is a range of addresses that cannot be
//! read or written. Requests are accounted for, and fail if the device has no memory left. Kernels do nothing, and
//! every value read back is 0. Workspaces of cuDNN are those that the user's own cuDNN plans, if it can ([`plans`]).
//!
//! Python loads this library with global symbols before it imports PyTorch, and describes the device in the environment
//! ([`config`]).
//!
//! # Unsafe code
//! Functions called from C require it. They rely on one assumption: PyTorch follows CUDA's interface, so a pointer is
//! null only if CUDA allows it, and otherwise points to what the function reads or writes. Everything that works
//! without raw pointers (addresses, accounts, the description of the device) is safe code in separate modules.

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
mod plans;
mod reads;
mod runtime;
mod state;
mod streams;
mod stubs;
