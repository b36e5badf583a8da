//! What a sandbox left on disk: its record, the guard of its protected files, and what its supervisor was told. A run that was killed, a
//! full disk or a careless hand may have left any of them broken.
//!
//! Promises: a broken file never keeps Stockade from listing, finding, sweeping or making other sandboxes; a file that can be read is written
//! back the same.

use std::fs;
use std::path::Path;
use std::time::Duration;

use stockade_core::id::SandboxId;
use stockade_core::spec::MountMode;
use stockade_sandbox::guard::Guard;
use stockade_sandbox::keeper::Charge;
use stockade_sandbox::state::{KEEP, Kind, Record, Sandboxes, write_record};

use crate::input::Input;
use crate::scratch::Scratch;
use crate::shown::assert_honest;

/// The sandbox that the files belong to.
const ID: &str = "00000000deadbeef";

/// The first byte says which file the rest is.
pub fn body(data: &[u8]) {
    let mut input = Input(data);
    let scratch = Scratch::new();
    match input.byte() % 3 {
        0 => record(&scratch.path(), input.0),
        1 => guard(&scratch, input.0),
        _ => charge(&scratch, input.0),
    }
}

fn record(state: &Path, bytes: &[u8]) {
    let sandboxes = Sandboxes::open(state).expect("room for the state");
    let directory = state.join("sandboxes").join(ID);
    fs::create_dir(&directory).expect("room for a sandbox");
    fs::write(directory.join("lock"), "").expect("room for a lock");
    fs::write(directory.join("record.json"), bytes).expect("room for a record");
    // One that is whole, beside it.
    let whole = sandboxes.create().expect("room for another sandbox");
    let id = whole.id.clone();
    let good = Record::new(id.clone(), Kind::Run, "jail", Path::new("/work"), MountMode::Overlay);
    whole.write_record(&good).expect("room for its record");

    let found = sandboxes.list().expect("listing works, whatever a record says");
    assert!(found.iter().any(|found| found.record == good), "the whole one is listed");
    for (_, error) in sandboxes.damaged().expect("so does looking for damage") {
        assert_honest(&error.to_string(), &[]);
    }
    if let Ok(found) = sandboxes.find(ID) {
        drop(found.record.workspace_path());
        write_record(&found.directory, &found.record).expect("what was read can be written");
        let again = sandboxes.find(ID).expect("and be read again");
        assert_eq!(again.record, found.record);
    }
    assert_eq!(sandboxes.find(id.as_str()).expect("the whole one is found").record, good);
    for keep in [KEEP, Duration::ZERO] {
        let swept = sandboxes.sweep(keep).expect("sweeping works too");
        assert!(!swept.removed.contains(&id), "a living sandbox was swept");
    }
    assert!(whole.directory.is_dir());
}

fn guard(scratch: &Scratch, bytes: &[u8]) {
    let (one, two) = (scratch.directory("one"), scratch.directory("two"));
    fs::write(one.join("guard.json"), bytes).expect("room for a guard");
    let Some(guard) = Guard::read(&one) else { return };
    guard.write(&two).expect("what was read can be written");
    assert_eq!(Guard::read(&two).unwrap_or_default(), guard);
}

fn charge(scratch: &Scratch, bytes: &[u8]) {
    let (one, two) = (scratch.directory("one"), scratch.directory("two"));
    fs::write(one.join("charge.json"), bytes).expect("room for a charge");
    let Ok(charge) = Charge::read(&one) else { return };
    charge.write(&two).expect("what was read can be written");
    assert_eq!(Charge::read(&two).expect("and be read again").spec, charge.spec);
}

/// Files as Stockade writes them.
pub fn seeds() -> Vec<Vec<u8>> {
    let id: SandboxId = ID.parse().expect("an id");
    let mut record = Record::new(id, Kind::Created, "jail", Path::new("/work"), MountMode::Overlay);
    record.command = vec!["sh".into(), "-c".into(), "true".into()];
    record.environment = vec![("PATH".into(), "/usr/bin".into())];
    record.time = Some(Duration::from_secs(3));
    let mut seeds = vec![[vec![0], serde_json::to_vec(&record).expect("data")].concat()];
    record.kept = Some(Vec::new());
    seeds.push([vec![0], serde_json::to_vec(&record).expect("data")].concat());
    record.started.seconds = i64::MAX - 1;
    seeds.push([vec![0], serde_json::to_vec(&record).expect("data")].concat());
    let found = r#"[[{"Unix":[46,101,110,118,114,99]},{"why":"x","link":null,"is_file":true}]]"#;
    seeds.push(format!("\u{1}{{\"roots\":[[{{\"workspace\":{{\"Unix\":[47,119]}},\"found\":{found}}},\"/w\"]]}}").into_bytes());
    seeds.push(
        concat!(
            "\u{2}",
            r#"{"spec":{"workspace":{"path":{"Unix":[47,119]},"mode":"overlay","git_common":null},"mounts":[],"env":[["A",{"Unix":[98]}]],"#,
            r#""cwd":{"Unix":[47]},"home":{"Unix":[47,104]},"exec_list":null,"limits":{"cpu_millis":null,"memory":{"value":1,"origin":"asked"},"#,
            r#""pids":null,"disk":null,"output":null,"time":null,"open_files":null},"allow_degraded":[],"path_dirs":["/bin"]},"#,
            r#""home":"/h","toolchain_roots":[{"Unix":[47]}],"backend":"jail"}"#
        )
        .as_bytes()
        .to_vec(),
    );
    seeds
}
