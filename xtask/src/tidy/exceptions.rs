//! What the house rules let pass, as data with a reason each. An entry that is no longer needed is itself a violation.

/// A path that a rule lets pass, and why.
pub(super) struct Exception {
    /// Relative to the repository.
    pub(super) path: &'static str,
    /// Why it is right here.
    pub(super) reason: &'static str,
}

/// Files over the length limit.
pub(super) const LONG_FILES: &[Exception] = &[];

/// Places outside tests that start a host program with `std::process::Command`.
pub(super) const STARTS_PROGRAMS: &[Exception] = &[
    Exception {
        path: "crates/stockade/build.rs",
        reason: "asks the C compiler where its static libraries are; runs at build time, on the developer's machine",
    },
    Exception {
        path: "crates/stockade-shim-image/build.rs",
        reason: "builds the guest program with cargo; runs at build time, on the developer's machine",
    },
    Exception {
        path: "crates/stockade-broker/src/sources/command.rs",
        reason: "runs the program that the person's own settings name as the source of a secret",
    },
    Exception {
        path: "crates/stockade-ledger/src/witness/command.rs",
        reason: "runs the program that the person's own settings name as the witness of their ledger",
    },
    Exception { path: "soak/src/cage.rs", reason: "starts itself in namespaces of its own; never installed" },
    Exception { path: "soak/src/ground.rs", reason: "starts the program under test, and what starves it; never installed" },
    Exception {
        path: "crates/stockade/src/commands/doctor/act.rs",
        reason: "`doctor --fix` loads what it wrote with the administrator's own tools, as root and after a yes",
    },
    Exception {
        path: "crates/stockade/src/commands/sandbox/create.rs",
        reason: "starts this very program as the supervisor of a created sandbox",
    },
    Exception {
        path: "crates/stockade/src/approval/notify.rs",
        reason: "runs the program that a person's own settings name to tell them that something waits; its words are arguments, never a shell's",
    },
    Exception {
        path: "crates/stockade/src/agent/worktree.rs",
        reason: "runs the person's own git in their own repository, for `agent run --worktree`; never in a tree that an agent was in",
    },
    Exception {
        path: "crates/stockade/src/commands/agent/detach.rs",
        reason: "starts this very program as the owner of an agent in the background",
    },
    Exception {
        path: "crates/stockade/src/commands/secret/adopt/check.rs",
        reason: "starts this very program, to see whether a login that `secret adopt` took over works through it",
    },
    Exception {
        path: "crates/stockade/src/egress/processes.rs",
        reason: "starts this very program as the broker and the egress of one sandbox",
    },
    Exception {
        path: "crates/stockade/src/daemon/launcher.rs",
        reason: "starts this very program as the launcher, which makes jails for whoever may not or would wait for them",
    },
    Exception {
        path: "crates/stockade/src/daemon/steward/ask.rs",
        reason: "starts this very program as the steward, which starts its other roles for a server that may start none",
    },
    Exception {
        path: "crates/stockade/src/daemon/prompter.rs",
        reason: "starts this very program to ask at the terminal of `serve --foreground`",
    },
    Exception {
        path: "crates/stockade/src/daemon/start.rs",
        reason: "starts this very program as the daemon, because settings or `serve --listen` say so",
    },
    Exception {
        path: "crates/stockade/src/daemon/proof.rs",
        reason: "tries to start one in a confined server, which must fail; and starts this very program to have it tried for `doctor`",
    },
];

/// The crates that may hold `unsafe`.
pub(super) const UNSAFE_CRATES: &[Exception] = &[
    Exception { path: "crates/stockade-sys/", reason: "the only unsafe on the host: system calls that rustix has no safe form of" },
    Exception { path: "crates/stockade-shim/", reason: "the guest's own system calls, after the clone and before the exec" },
    Exception {
        path: "conformance/probe/",
        reason: "plays the attacker: system calls that no safe form offers; nothing that users install",
    },
];

/// Our crates, and which of ours each may depend on. Arrows point down only.
pub(super) const DIRECTIONS: &[Direction] = &[
    Direction { name: "stockade-core", may_use: &[], may_not_use: &["libc", "rustix", "tokio"] },
    Direction { name: "stockade-wire", may_use: &[], may_not_use: &["libc", "rustix", "tokio", "serde_json"] },
    Direction { name: "stockade-sys", may_use: &[], may_not_use: &["tokio", "serde", "serde_json"] },
    Direction { name: "stockade-shim", may_use: &["stockade-wire"], may_not_use: &["tokio", "serde_json"] },
    Direction { name: "stockade-shim-image", may_use: &[], may_not_use: &["tokio"] },
    Direction {
        name: "stockade-sandbox",
        may_use: &["stockade-core", "stockade-wire", "stockade-sys", "stockade-shim-image"],
        may_not_use: &["anyhow", "clap"],
    },
    // Pure: what it decides depends on what it is given and on nothing else.
    Direction {
        name: "stockade-policy",
        may_use: &["stockade-core"],
        may_not_use: &["libc", "rustix", "tokio", "tempfile", "anyhow", "clap"],
    },
    Direction { name: "stockade-private-dir", may_use: &["stockade-core"], may_not_use: &["anyhow", "clap", "libc", "tokio"] },
    Direction {
        name: "stockade-store",
        may_use: &["stockade-core", "stockade-policy", "stockade-private-dir"],
        may_not_use: &["anyhow", "clap"],
    },
    // Pure: it is given the moment and the keys.
    Direction { name: "stockade-sigv4", may_use: &[], may_not_use: &["anyhow", "clap", "jiff", "libc", "rustix", "tokio"] },
    Direction {
        name: "stockade-broker",
        may_use: &["stockade-core", "stockade-sigv4", "stockade-store"],
        may_not_use: &["anyhow", "clap", "libc"],
    },
    // It holds secrets on their way: nothing above it, and no other wall, is known to it.
    Direction {
        name: "stockade-egress",
        may_use: &["stockade-core", "stockade-sigv4", "stockade-wire"],
        may_not_use: &["anyhow", "clap", "libc", "ring", "openssl"],
    },
    // Read in one sitting by those who trust nothing else here: no database, no clock, nothing of ours.
    Direction { name: "stockade-verify", may_use: &[], may_not_use: &["anyhow", "clap", "jiff", "libc", "rusqlite", "rustix", "tokio"] },
    Direction {
        name: "stockade-ledger",
        may_use: &["stockade-core", "stockade-private-dir", "stockade-verify"],
        may_not_use: &["anyhow", "clap", "libc", "tokio"],
    },
    // It decides who may approve: no wall, no network and no command line is known to it.
    Direction {
        name: "stockade-gateway",
        may_use: &["stockade-core", "stockade-policy", "stockade-private-dir", "stockade-store"],
        may_not_use: &["anyhow", "clap", "libc", "tokio"],
    },
    // It faces the network: nothing that decides, runs or remembers is known to it.
    Direction { name: "stockade-http", may_use: &["stockade-private-dir"], may_not_use: &["anyhow", "clap", "libc", "ring", "openssl"] },
    Direction { name: "stockade-probe", may_use: &[], may_not_use: &["tokio", "serde", "serde_json", "rustix"] },
    Direction {
        name: "stockade-conformance",
        may_use: &["stockade-core", "stockade-wire", "stockade-sandbox", "stockade-egress"],
        may_not_use: &["anyhow", "clap", "libc", "tokio"],
    },
    // Of its roles two have an async runtime: egress, whose own affair that is, and the MCP server (`src/mcp`, `src/http`), whose SDK wants one.
    Direction {
        name: "stockade",
        may_use: &[
            "stockade-broker",
            "stockade-core",
            "stockade-egress",
            "stockade-gateway",
            "stockade-http",
            "stockade-ledger",
            "stockade-policy",
            "stockade-sandbox",
            "stockade-store",
            "stockade-verify",
        ],
        may_not_use: &["hyper"],
    },
    Direction {
        name: "benches",
        may_use: &[
            "stockade-broker",
            "stockade-core",
            "stockade-egress",
            "stockade-ledger",
            "stockade-policy",
            "stockade-sandbox",
            "stockade-store",
        ],
        may_not_use: &["criterion", "clap"],
    },
    Direction { name: "stockade-fuzz", may_use: &[], may_not_use: &[] },
    Direction { name: "fuzz", may_use: &["stockade-fuzz"], may_not_use: &[] },
    // Knows Stockade only as a program, as people do.
    Direction { name: "soak", may_use: &[], may_not_use: &["anyhow", "clap", "tokio"] },
];

/// One crate's place in the order.
pub(super) struct Direction {
    /// The crate.
    pub(super) name: &'static str,
    /// Crates of ours it may depend on.
    pub(super) may_use: &'static [&'static str],
    /// Crates of others that would break what it is for.
    pub(super) may_not_use: &'static [&'static str],
}
