//! What can be wrong, and where.

use std::fmt;

use crate::canonical::NotCanonical;
use crate::note::BadNote;

/// The part that broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// The first line.
    Header,
    /// A receipt.
    Record {
        /// Its line in the file, from 1; its number in the ledger where there is no file.
        line: u64,
        /// The number it has, or should have, in the ledger.
        seq: Option<u64>,
        /// The id it claims.
        receipt_id: Option<String>,
    },
    /// The last line.
    Closing,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header => f.write_str("line 1 (header)"),
            Self::Record { line, seq, receipt_id } => {
                write!(f, "line {line} (receipt")?;
                if let Some(seq) = seq {
                    write!(f, " {seq}")?;
                }
                if let Some(id) = receipt_id {
                    write!(f, ", {id}")?;
                }
                f.write_str(")")
            }
            Self::Closing => f.write_str("the closing line"),
        }
    }
}

/// How it broke.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// Longer than any line of an export.
    #[error("the line is longer than {0} bytes")]
    Long(usize),
    /// No line break at the end.
    #[error("the line is cut: it does not end in a line break")]
    Cut,
    /// Not JSON.
    #[error("the line is not JSON")]
    NotJson,
    /// JSON in another spelling than the canonical one.
    #[error("the JSON is not in canonical form")]
    Spelling,
    /// JSON without canonical form.
    #[error("the JSON has no canonical form")]
    NoCanonicalForm(#[source] NotCanonical),
    /// A member is missing, or is not what it must be.
    #[error("`{0}` is missing or malformed")]
    Member(&'static str),
    /// Not this format, or not this version.
    #[error("this is no export of receipts in version 1")]
    Format,
    /// A note does not hold.
    #[error("the checkpoint does not hold: {0}")]
    Note(BadNote),
    /// None of the given keys signed it.
    #[error("none of the given keys is the ledger's")]
    UnknownKey,
    /// How keys followed each other does not hold.
    #[error("the change of keys does not hold")]
    Rotation,
    /// Signed with a key that was not in use at this place.
    #[error("it is signed with key `{0}`, which was not the ledger's key at this place")]
    WrongKey(String),
    /// The signature does not hold.
    #[error("the signature does not hold")]
    Signature,
    /// Another number was expected.
    #[error("receipt {expected} was expected, receipt {found} is here: receipts are missing, repeated or out of order")]
    Sequence {
        /// Whose turn it was.
        expected: u64,
        /// Who came.
        found: u64,
    },
    /// Not linked to the receipt before.
    #[error("`prev` is not the digest of the receipt before: that one, or this link, was changed")]
    Chain,
    /// Not where the checkpoint has it.
    #[error("its proof does not lead to the root of the checkpoint")]
    Proof,
    /// The checkpoint is of another tree.
    #[error("the tree over the receipts does not have the root of the checkpoint of {0} receipts")]
    Root(u64),
    /// The closing checkpoint is another than the one at the top.
    #[error("the closing checkpoint is of another ledger or another size than the header's")]
    OtherCheckpoint,
    /// The count is not the signed one.
    #[error("{found} receipts are here, {signed} were signed for")]
    Count {
        /// How many there are.
        found: u64,
        /// How many there should be.
        signed: u64,
    },
    /// Bytes before the closing line were changed where no receipt is.
    #[error("the digest over the lines before does not hold")]
    Digest,
    /// The file ends early.
    #[error("it is missing: the end of the export was cut off")]
    Missing,
    /// The file does not end here.
    #[error("more lines follow it")]
    Trailing,
}

/// The first thing that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {flaw}")]
pub struct Broken {
    /// Where.
    pub place: Place,
    /// How.
    pub flaw: Flaw,
}
