//! The field: other sandboxes that can be had from the registries, each with the profile that comes nearest to a read-only root, a
//! private `/tmp` and no network.
//!
//! Which ones, where from, and what each does not do is data here; how they are installed is in [`install`]. `benches/README.md` says more
//! about the profiles.

pub(crate) mod docker;
pub(crate) mod install;
pub(crate) mod mitmproxy;
pub(crate) mod oci;
pub(crate) mod relay;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use install::{Source, Store};

/// The one that the promise of a cold start is measured against.
pub(crate) const REFERENCE: &str = "bubblewrap";

/// How a peer is started and what is known of it.
pub(crate) struct Recipe {
    /// Its name in tables.
    pub(crate) name: &'static str,
    /// Where it comes from.
    pub(crate) source: Source,
    /// Its arguments, up to and with `/bin/true`.
    arguments: fn(&Path) -> Vec<OsString>,
    /// Who can start it.
    pub(crate) starters: Starters,
    /// What it does not do in this profile, next to what `stockade run` does.
    pub(crate) lacks: &'static str,
}

/// Who can start a peer here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Starters {
    /// Root, and an ordinary user.
    Everybody,
    /// Whoever runs the harness: its files lie in a home directory, or it needs root.
    Runner,
}

/// A peer that was looked for: the command, or why there is none.
pub(crate) struct Peer {
    /// What is known of it.
    pub(crate) recipe: &'static Recipe,
    /// Its version.
    pub(crate) version: String,
    /// Its program.
    pub(crate) program: Result<PathBuf, String>,
}

impl Peer {
    /// Program and arguments; `ground` holds the files that some need.
    pub(crate) fn argv(&self, program: &Path, ground: &Path) -> Vec<OsString> {
        std::iter::once(program.as_os_str().to_owned()).chain((self.recipe.arguments)(ground)).collect()
    }
}

/// The one that promises compare with, alone, as it is started.
pub(crate) fn reference(store: &Store, ground: &Path) -> Result<Vec<OsString>, String> {
    let recipe = RECIPES.iter().find(|recipe| recipe.name == REFERENCE).ok_or("there is none")?;
    let program = store.bring(&recipe.source)?;
    Ok(std::iter::once(program.into_os_string()).chain((recipe.arguments)(ground)).collect())
}

/// Peers that are started as one command each. Docker is apart: it has a daemon.
pub(crate) const RECIPES: &[Recipe] = &[
    Recipe {
        name: REFERENCE,
        source: Source::Debian { package: "bubblewrap", program: "/usr/bin/bwrap", also: &[] },
        arguments: |_| words("--unshare-all --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp /bin/true"),
        starters: Starters::Everybody,
        lacks: "no system call filter, no Landlock, no limits; every file and socket of the host stays readable, the environment too; \
                nothing can be written, so there is no diff",
    },
    Recipe {
        name: "unshare (namespaces alone)",
        source: Source::Debian { package: "util-linux", program: "/usr/bin/unshare", also: &[] },
        arguments: |_| words("--user --map-root-user --mount --pid --net --ipc --uts --cgroup --fork /bin/true"),
        starters: Starters::Everybody,
        lacks: "no wall at all: namespaces and nothing in them; here to show what the kernel takes for these",
    },
    Recipe {
        name: "firejail",
        source: Source::Debian { package: "firejail", program: "/usr/bin/firejail", also: &[] },
        arguments: |_| words("--quiet --noprofile --net=none --private-tmp --read-only=/ --caps.drop=all --nonewprivs --seccomp /bin/true"),
        starters: Starters::Runner,
        lacks: "setuid root; the host's files stay readable, System V memory shared; a deny-list of system calls; no Landlock, no limits, no diff",
    },
    Recipe {
        name: "runc",
        source: Source::Debian { package: "runc", program: "/usr/sbin/runc", also: &[] },
        arguments: |ground| oci::arguments(ground, "runc"),
        starters: Starters::Runner,
        lacks: "its own small root instead of the host's tools; no user namespace, no system call filter, no Landlock, no limits in this bundle; root starts it",
    },
    Recipe {
        name: "crun",
        source: Source::Debian { package: "crun", program: "/usr/bin/crun", also: &[] },
        arguments: |ground| oci::arguments(ground, "crun"),
        starters: Starters::Runner,
        lacks: "the same as runc; runs where cgroup v2 is hidden, because it refuses this machine's mixed layout",
    },
    Recipe {
        name: "sandlock",
        source: Source::Crate { package: "sandlock-cli", version: "0.9.0", program: "sandlock" },
        arguments: |_| words("run -r /usr -r /lib -r /lib64 -r /bin -r /etc -- /bin/true"),
        starters: Starters::Everybody,
        lacks: "no namespaces: Landlock and a system call filter with a supervisor; no diff in this profile, no limits unless asked",
    },
    Recipe {
        name: "nono wrap",
        source: Source::Crate { package: "nono-cli", version: "0.81.0", program: "nono" },
        arguments: |_| words("--silent wrap --allow . -- /bin/true"),
        starters: Starters::Everybody,
        lacks: "no namespaces, no system call filter, network open: Landlock alone, then exec; no limits, no diff, environment passed through",
    },
    Recipe {
        name: "nono run",
        source: Source::Crate { package: "nono-cli", version: "0.81.0", program: "nono" },
        arguments: |_| words("--silent run --allow . --block-net -- /bin/true"),
        starters: Starters::Everybody,
        lacks: "no namespaces: host processes are listed, /tmp and sockets shared; no limits, no diff, environment passed through",
    },
    Recipe {
        name: "codex sandbox",
        source: Source::Npm {
            package: "@openai/codex",
            version: "0.166.0",
            program: "node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
        },
        arguments: |_| words("sandbox -- /bin/true"),
        starters: Starters::Runner,
        lacks: "the whole root stays readable, the environment passed through, nested user namespaces open; no limits, no diff. The native \
                program, without its launcher in node",
    },
    Recipe {
        name: "srt",
        source: Source::Npm { package: "@anthropic-ai/sandbox-runtime", version: "0.0.83", program: "node_modules/.bin/srt" },
        arguments: |ground| vec!["--settings".into(), ground.join(SRT_SETTINGS).into(), "/bin/true".into()],
        starters: Starters::Runner,
        lacks: "the whole root stays readable, System V memory shared, the environment passed through; no Landlock, no limits, no diff. It \
                starts two proxies, which the others do not",
    },
];

/// Where srt's settings lie on the ground.
const SRT_SETTINGS: &str = "srt.json";
/// No hosts, and writes to the current directory alone.
const SRT_TEXT: &str =
    r#"{"network":{"allowedDomains":[],"deniedDomains":[]},"filesystem":{"denyRead":[],"allowWrite":["."],"denyWrite":[]}}"#;

/// Looks for all peers, and installs what is missing where the store may.
pub(crate) fn gather(store: &Store, ground: &Path) -> Vec<Peer> {
    let settings = std::fs::write(ground.join(SRT_SETTINGS), SRT_TEXT).map_err(|e| e.to_string());
    let bundle = oci::make_bundle(ground);
    RECIPES
        .iter()
        .map(|recipe| {
            let mut program = store.bring(&recipe.source);
            match recipe.name {
                // It calls all three.
                "srt" => {
                    let needed = [("bubblewrap", "/usr/bin/bwrap"), ("socat", "/usr/bin/socat"), ("ripgrep", "/usr/bin/rg")];
                    let missing = needed.into_iter().find_map(|(package, at)| store.need(package, at).err());
                    program = settings.clone().and(missing.map_or(Ok(()), Err)).and(program);
                }
                "runc" | "crun" => program = bundle.clone().and(program),
                _ => {}
            }
            let version = recipe.source.version();
            Peer { recipe, version, program }
        })
        .collect()
}

/// Words of a command line without quotes or spaces in them.
pub(crate) fn words(text: &str) -> Vec<OsString> {
    text.split_whitespace().map(OsString::from).collect()
}
