//! Requests to AWS. Inside, a program signs with keys that were made up; here the signature is made anew with the real ones.
//!
//! The signature of a program proves nothing and is not looked at. What counts is that the request names the placeholder as its key and goes
//! to a host that the secret is for.

pub mod keys;
pub(crate) mod resign;
