//! The rules by which receipts are checked, and the check of an export: no database, no network, no clock, only a public key.
//!
//! ```text
//!  header line    who kept the ledger, a signed checkpoint (size and root of the tree), how its keys followed each other
//!  record lines   one receipt each, with its place in the tree
//!  closing line   the same checkpoint, signed together with the number of records and the digest of every byte before it
//! ```
//!
//! The format is written down byte for byte in `docs/reference/receipts.md`; this is a second reading of that page, kept small so that it can be
//! read in one sitting. The ledger uses the same rules to write and to check itself.
//!
//! Threat assumption: the file is hostile, the key is not. Every length is bounded, nothing in the file is taken as a key, and whatever is not
//! exactly as written is an error that names the first line that broke. What it cannot see is a whole ledger forged, or rolled back, by whoever
//! holds the private key: that takes a witness.

pub mod canonical;
pub mod export;
pub mod flaw;
pub mod key;
pub mod merkle;
pub mod note;
pub mod record;
pub mod rotation;
pub mod text;
