//! Packs from strangers: manifests, signatures and archives are read or refused, and what is read stays within its bounds.
//!
//! The first byte says what the rest is: a capability, a pack's manifest, a signature, an archive, or an archive before it was compressed.

use serde_json::{Map, Value};
use stockade_policy::Faults;
use stockade_policy::capability::{Capability, Lexical};
use stockade_policy::pack::{Envelope, Listing, MAX_FILE, MAX_FILES, MAX_TOTAL, Manifest, Pack, PackFiles, SigningKey};
use stockade_store::packs::{unpack, write_archive};

use crate::shown::assert_honest;

/// Tries one input.
pub fn body(data: &[u8]) {
    let Some((kind, rest)) = data.split_first() else { return };
    match kind % 5 {
        0 => capability(&String::from_utf8_lossy(rest)),
        1 => drop(Manifest::parse("pack.toml", &String::from_utf8_lossy(rest)).map_err(|faults| honest(&faults))),
        2 => signature(rest),
        3 => archive(rest),
        _ => archive(&zstd::stream::encode_all(rest, 1).unwrap()),
    }
}

fn honest(faults: &Faults) {
    assert!(!faults.0.is_empty());
    faults.0.iter().for_each(|fault| assert_honest(&fault.headline(), &[]));
}

/// What is read makes at most one argument of one value, whatever the value is.
fn capability(text: &str) {
    let capability = match Capability::parse("x.toml", text) {
        Ok(capability) => capability,
        Err(faults) => return honest(&faults),
    };
    if capability.input.check().is_err() {
        return;
    }
    let hostile = "a b;\n$(c)\"'*--";
    let given: Map<String, Value> = capability.input.properties().keys().map(|name| (name.clone(), Value::from(hostile))).collect();
    for given in [Map::new(), given] {
        if let Ok(prepared) = capability.prepare(given, &Lexical { workspace: "/w" }) {
            // No list takes a string, so no item became more than one argument.
            assert!(prepared.args.len() <= capability.args.len() + defaults(capability.input.schema()));
            assert!(prepared.args.iter().all(|argument| !argument.contains('\0')));
        }
    }
}

/// How many members defaults have, which are the author's own.
fn defaults(schema: &Value) -> usize {
    let members = schema.get("properties").and_then(Value::as_object);
    let lists = members.into_iter().flat_map(Map::values).filter_map(|member| member.get("default")?.as_array().map(Vec::len));
    lists.sum::<usize>() * 200
}

/// No key vouches for what it did not sign.
fn signature(bytes: &[u8]) {
    let Ok(envelope) = Envelope::parse(bytes) else { return };
    let stranger = SigningKey::from_seed([9; 32]).public().unwrap();
    assert_eq!(envelope.verified_by(&stranger), None);
    assert_eq!(Envelope::parse(&envelope.to_bytes()).unwrap(), envelope);
    if let Ok(listing) = Listing::parse(envelope.unverified()) {
        assert!(
            listing.check(&PackFiles::default(), &"x".parse().unwrap(), "0.0.0".parse().unwrap()).is_err()
                || listing.digest("pack.toml").is_none()
        );
    }
}

/// What comes out of an archive is bounded, and is the same after another way through one.
fn archive(bytes: &[u8]) {
    let Ok(files) = unpack(bytes) else { return };
    let total: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    assert!(files.iter().count() <= MAX_FILES && total <= MAX_TOTAL && files.iter().all(|(_, bytes)| bytes.len() <= MAX_FILE));
    assert!(files.iter().all(|(path, _)| !path.as_str().starts_with('/') && !path.as_str().contains("..") && path.as_str().is_ascii()));
    let mut again = Vec::new();
    write_archive(&files, &mut again).unwrap();
    assert_eq!(unpack(again.as_slice()).unwrap(), files);
    if let Err(faults) = Pack::read(&files, "") {
        honest(&faults);
    }
}

/// Real manifests, a signature, and an archive in both forms.
pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        include_str!("../../../../packs/git/capabilities/git.log.toml"),
        include_str!("../../../../packs/http/capabilities/http.get.toml"),
        include_str!("../../../../packs/npm/capabilities/npm.run.toml"),
    ];
    let manifest = include_str!("../../../../packs/git/pack.toml");
    let key = SigningKey::from_seed([1; 32]);
    let listing = Listing::of(&PackFiles::default(), &"git".parse().unwrap(), "1.0.0".parse().unwrap());
    let signature = Envelope::sign(listing.to_bytes(), &key, key.public().unwrap().id()).to_bytes();
    let mut builder = tar::Builder::new(Vec::new());
    for (path, text) in [("pack.toml", manifest), ("capabilities/git.log.toml", texts[0])] {
        let mut header = tar::Header::new_ustar();
        header.set_size(text.len() as u64);
        builder.append_data(&mut header, path, text.as_bytes()).unwrap();
    }
    let plain = builder.into_inner().unwrap();
    let pressed = zstd::stream::encode_all(plain.as_slice(), 1).unwrap();
    let all = texts.iter().map(|text| (0, text.as_bytes().to_vec())).chain([
        (1, manifest.as_bytes().to_vec()),
        (2, signature),
        (3, pressed),
        (4, plain),
    ]);
    all.map(|(kind, bytes)| [&[kind][..], &bytes].concat()).collect()
}
