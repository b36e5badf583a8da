//! Workspaces, and the state beside them, on file systems that people have: overlayfs, tmpfs, btrfs, XFS.

use super::Surroundings;
use crate::wall::ground::finish;
use crate::wall::{Ground, Who, as_both};

/// Mounts at `$1/place`; what `$1` is stays on the machine's own file system.
const PLACES: [(&str, &str); 4] = [
    ("tmpfs", "mount -t tmpfs none \"$1/place\""),
    (
        "overlayfs",
        "mkdir \"$1/lower\" \"$1/upper\" \"$1/scratch\"
         mount -t overlay overlay -o \"lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/scratch\" \"$1/place\"",
    ),
    ("btrfs", "truncate --size 200M \"$1/image\"; mkfs.btrfs -q \"$1/image\" >/dev/null; mount -o loop \"$1/image\" \"$1/place\""),
    ("xfs", "truncate --size 320M \"$1/image\"; mkfs.xfs -q \"$1/image\"; mount -o loop \"$1/image\" \"$1/place\""),
];

/// What a person does in a workspace: look, change in an overlay, keep, apply, read-only, read-write. `$STOCKADE` is the program.
const SESSION: &str = r#"
cd "$PLACE/work"; export XDG_STATE_HOME="$PLACE/state"
echo before >file; echo gone >gone; mkdir directory; echo inner >directory/inner; ln -s file link
"$STOCKADE" run -- bash -c 'cat file directory/inner; echo changed >file; rm gone; mv directory other; echo new >new' 2>/dev/null
echo "after overlay: $(cat file gone directory/inner | tr '\n' ' ')$(ls | tr '\n' ' ')"
"$STOCKADE" run --apply -- bash -c 'echo applied >file; rm gone; echo new >new; mkdir -p deep/er; echo x >deep/er/x' 2>/dev/null
echo "after apply: $(cat file) $(ls | tr '\n' ' ')"
"$STOCKADE" run --workspace-mode ro -- bash -c 'cat file; echo x >file || echo refused' 2>/dev/null
"$STOCKADE" run --workspace-mode rw -- bash -c 'echo through >file' 2>"$PLACE/said" && echo "rw: $(cat file)" || echo "rw: $? $(tr '\n' ' ' <"$PLACE/said")"
"$STOCKADE" sandbox list --json 2>/dev/null | grep -o '"workspace"' | wc -l
"#;

const EXPECTED: &str = "before\ninner\n\
    after overlay: before gone inner directory file gone link \n\
    after apply: applied deep directory file link new \n\
    applied\nrefused\n";

#[test]
fn the_same_everywhere() {
    as_both(|ground| {
        for (name, mount) in PLACES {
            let outcome = session(ground, name, mount);
            let rest = outcome.stdout.strip_prefix(EXPECTED).unwrap_or_else(|| panic!("{name}: {outcome:?}"));
            let mut lines = rest.lines();
            let rw = lines.next().unwrap_or_default();
            // The one thing that depends: root on a file system without mapped owners cannot write through, and says so.
            let refused = rw.starts_with("rw: 125") && rw.contains("cannot map owners");
            assert!(rw == "rw: through" || ground.who == Who::Root && name == "overlayfs" && refused, "{name}: {outcome:?}");
            assert_eq!(lines.next(), Some("1"), "{name}: the first overlay is kept: {outcome:?}");
        }
    });
}

fn session(ground: &Ground, name: &str, mount: &str) -> crate::Outcome {
    let uid = ground.who.uid();
    let setup = format!(
        "mkdir -p \"$1/{name}/place\"; set -- \"$1/{name}\" \"$@\"; {mount}; export PLACE=\"$1/place\"; shift
         mkdir \"$PLACE/work\" \"$PLACE/state\"; chown -R {uid}:{uid} \"$PLACE\"; chmod 755 \"$PLACE\""
    );
    let mut command = Surroundings { setup: &setup, pretend: &[] }.command(ground);
    command.env("STOCKADE", &ground.binary).args(["bash", "-c", SESSION]);
    finish(&mut command)
}
