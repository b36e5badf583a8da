//! A witness that is a program: what it is given, that its signature is checked, and that its refusal is told.

use std::path::Path;

use stockade_ledger::witness::{CommandWitness, Witness};
use stockade_ledger::{Ledger, LedgerError, Options};
use stockade_verify::export::check;
use stockade_verify::key::PublicKey;
use stockade_verify::note::Note;
use stockade_verify::text::from_hex;

use crate::independent::packages;
use crate::support::{exported, write_calls};

/// A witness in Python: keeps the size it has seen in a file, and refuses anything that does not follow it.
const SCRIPT: &str = r#"
import base64, hashlib, os, sys, time
packages, memory = sys.argv[1:3]
if packages: sys.path.insert(0, packages)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
key = Ed25519PrivateKey.from_private_bytes(b"\x09" * 32)
public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
request = sys.stdin.read()
head, _, note = request.partition("\n\n")
old, proof = head.split("\n")[0], head.split("\n")[1:]
text = note.rpartition("\n\n")[0] + "\n"
size = int(text.split("\n")[1])
seen = int(open(memory).read()) if os.path.exists(memory) else 0
if old != f"old {seen}" or size < seen:
    sys.exit(f"seen {seen}, got {old} and a ledger of {size}")
assert all(len(base64.b64decode(line)) == 32 for line in proof) and bool(proof) == (0 < seen < size)
open(memory, "w").write(str(size))
name, now = "witness.example", int(time.time())
signature = key.sign(f"cosignature/v1\ntime {now}\n{text}".encode())
key_hash = hashlib.sha256(name.encode() + b"\n\x04" + public).digest()[:4]
print("\u2014", name, base64.b64encode(key_hash + now.to_bytes(8, "big") + signature).decode())
"#;
/// The public half of the script's key.
const PUBLIC: &str = "fd1724385aa0c75b64fb78cd602fa1d991fdebf76b13c58ed702eac835e9f618";

fn witness(memory: &Path, key: &PublicKey) -> Witness {
    let packages = packages().map(|path| path.to_str().unwrap().to_owned()).unwrap_or_default();
    let interpreter =
        std::env::split_paths(&std::env::var_os("PATH").unwrap()).map(|part| part.join("python3")).find(|path| path.is_file());
    let arguments = ["-B", "-c", SCRIPT, &packages, memory.to_str().unwrap()].map(str::to_owned).to_vec();
    let command = CommandWitness::new(interpreter.unwrap(), arguments, "witness.example".into(), key.clone());
    // However busy the machine is, an interpreter starts in this time.
    Witness::Command(Box::new(command.with_patience(std::time::Duration::from_mins(10))))
}

#[test]
fn a_program_signs_what_follows_what_it_has_seen() {
    let (root, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let memory = elsewhere.path().join("seen");
    let key = PublicKey::from_bytes(from_hex(PUBLIC).unwrap()).unwrap();
    let options = |key| Options { witness: Some(witness(&memory, key)), ..Options::default() };
    let ledger = Ledger::open(root.path(), options(&key)).unwrap();
    write_calls(&ledger, 2);
    ledger.checkpoint().unwrap();
    write_calls(&ledger, 2);
    ledger.checkpoint().unwrap();
    let summary = check(exported(&ledger).as_slice(), &[ledger.public_key()]).unwrap();
    assert!(Note::parse(&summary.note).unwrap().cosigned_by("witness.example", &key).is_ok());
    assert_eq!(std::fs::read_to_string(&memory).unwrap(), "8");

    // It has seen more than this ledger has.
    std::fs::write(&memory, "100").unwrap();
    write_calls(&ledger, 1);
    assert!(matches!(ledger.checkpoint(), Err(LedgerError::Witness(said)) if said.contains("seen 100")));
    drop(ledger);
    // What it prints counts only with the key that was named.
    std::fs::write(&memory, "8").unwrap();
    let ledger = Ledger::open(root.path(), options(&other_key())).unwrap();
    assert!(matches!(ledger.checkpoint(), Err(LedgerError::Witness(_))));
}

fn other_key() -> PublicKey {
    let root = tempfile::tempdir().unwrap();
    crate::support::open(root.path()).public_key()
}
