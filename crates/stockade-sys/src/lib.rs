//! The only unsafe code on the host side: one system call per function, owned descriptors in and out.
//!
//! Everything that rustix offers safely is used from rustix directly; here is what it lacks: `clone3` with namespaces and the
//! short life of the child until `execveat`, user namespaces to map ids with, and idmapped mounts.
//!
//! Threat assumption: callers are our own crates. On kernels without `clone3` (before 5.3) starting a guest fails with
//! `ENOSYS`; idmapped mounts need 5.12, and callers fall back to copying where the kernel or file system refuses.

#[cfg(target_os = "linux")]
pub mod background;
#[cfg(target_os = "linux")]
pub mod confine;
#[cfg(target_os = "linux")]
pub mod guest;
#[cfg(target_os = "linux")]
pub mod idmap;
#[cfg(target_os = "linux")]
pub mod memory;
#[cfg(target_os = "linux")]
pub mod network;
#[cfg(target_os = "linux")]
mod raw;
#[cfg(target_os = "linux")]
mod sharing;
#[cfg(target_os = "linux")]
pub mod signals;
#[cfg(target_os = "linux")]
pub mod variables;
