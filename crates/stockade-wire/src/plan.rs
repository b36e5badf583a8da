//! The plan of a jail, and the report of what stands.
//!
//! A plan is plain data: the host builds it, tests compare it, anybody can print it, and the guest
//! walks it step by step. It holds no policy. Descriptors that only the host can make (idmapped mounts when
//! Stockade runs as root) are named by their index in the list that travels with the frame.

#![allow(missing_docs, reason = "variants and fields whose names say all carry no comment")]

use crate::codec::Bytes;
use crate::{wire_enum, wire_struct};

wire_enum! {
    /// Where a mount comes from.
    Source {
        /// A path of the host, resolved by the guest in its own copy of the mount table without following links.
        /// `dev` and `ino` are what the host saw (0 and 0: not compared).
        0 = Host { path: Bytes, dev: u64, ino: u64 },
        /// The n-th passed descriptor: a detached mount made by the host.
        1 = Passed { index: u8 },
        /// A directory of the sandbox's own scratch file system, made on demand with `mode`.
        2 = Scratch { name: Bytes, mode: u32 },
    }
}

wire_enum! {
    /// Whether a mount can be written.
    Access {
        0 = ReadOnly {},
        1 = ReadWrite {},
    }
}

wire_enum! {
    /// Whether files on a mount can be executed (or mapped executable).
    Execution {
        0 = Allowed {},
        1 = Denied {},
    }
}

wire_enum! {
    /// One thing in the new root, made in order. Targets are absolute paths of the sandbox.
    Item {
        0 = Directory { path: Bytes, mode: u32 },
        1 = Symlink { path: Bytes, target: Bytes },
        /// A small read-only file with these contents, mounted over the target.
        2 = File { path: Bytes, contents: Bytes, mode: u32 },
        3 = Bind { source: Source, target: Bytes, access: Access, execution: Execution },
        /// `layer` holds (or gets) the directories `upper` and `work`.
        4 = Overlay { lower: Source, layer: Source, target: Bytes, access: Access, execution: Execution },
        /// An empty file or directory over whatever is there, with this mode; nothing happens where nothing is.
        5 = Mask { path: Bytes, mode: u32 },
        /// A symbolic link mounted over an existing file: programs that replace the file by rename write to `link` instead.
        6 = Redirect { path: Bytes, link: Bytes },
        7 = Proc { path: Bytes },
        /// `/dev` with null, zero, full, random, urandom, tty, pts, shm, fd.
        8 = Devices { path: Bytes },
        /// A writable file put into a scratch directory (made with mode 0755 if missing).
        9 = Seed { directory: Bytes, name: Bytes, contents: Bytes, mode: u32 },
        /// A Unix socket on which the guest listens: connections to it go to egress as those for the agent of SSH. At most one, and only
        /// where there is a way out.
        10 = Agent { path: Bytes },
    }
}

wire_enum! {
    /// A resource limit of a process.
    Resource {
        0 = OpenFiles {},
        1 = Processes {},
        2 = CoreSize {},
        3 = FileSize {},
    }
}

wire_struct! {
    /// Landlock's part: what may be written and executed. Everything may be read that exists in the new root.
    Landlock {
        /// Directories and files beneath which writing is allowed.
        writable: Vec<Bytes>,
        /// The only files that may be executed; `None`: everything that can be read.
        executable: Option<Vec<Bytes>>,
        /// Sockets outside of `writable` that programs may connect to.
        connectable: Vec<Bytes>,
    }
}

wire_enum! {
    /// What to do when a layer cannot be had: only where a person wrote `--allow-degraded`.
    Layer {
        /// It must hold, or the jail fails.
        0 = Required {},
        /// It is tried; the report says whether it holds.
        1 = Wanted {},
    }
}

wire_enum! {
    /// Supplementary groups.
    Groups {
        /// They stay: the kernel lets an ordinary user drop none.
        0 = Kept {},
        1 = Dropped {},
    }
}

wire_struct! {
    /// What the guest can begin with while the host still looks at the machine.
    Basis {
        /// Host name inside.
        hostname: Bytes,
        /// User and group the sandbox runs as, as numbered inside.
        uid: u32,
        /// See `uid`.
        gid: u32,
        /// What becomes of the supplementary groups of whoever started the sandbox.
        groups: Groups,
        /// Bytes that the scratch file system (temporary files, home, caches, perhaps the overlay's upper layer) may hold.
        scratch_bytes: u64,
        /// The first of the new root, in order; nothing of it comes from the host's files.
        items: Vec<Item>,
    }
}

wire_struct! {
    /// The rest that the guest does before it runs anything.
    JailPlan {
        /// The rest of the new root, in order.
        items: Vec<Item>,
        /// Scratch directories whose descriptors are handed to the host in the frame of `Jailed`, in this order.
        export: Vec<Bytes>,
        /// Landlock rules.
        landlock: Landlock,
        /// Whether Landlock must hold.
        landlock_layer: Layer,
        /// Whether the system call filter must hold.
        seccomp_layer: Layer,
        /// Memory files cannot be made, so that none can be executed (exec list).
        no_memory_files: bool,
    }
}

wire_enum! {
    /// Where a sandbox's network namespace comes from.
    Network {
        /// The host made it, with loopback switched on; its descriptor is the first of those passed.
        0 = Passed {},
        /// The guest makes it.
        1 = Own {},
    }
}

/// The most ports on which a guest takes connections of programs that know no proxy. Each costs it two descriptors.
pub const MOST_PORTS: usize = 64;

wire_struct! {
    /// What programs inside reach besides each other. The channel to egress is a passed descriptor.
    WayOut {
        /// The proxy's port on loopback.
        proxy_port: u16,
        /// TCP ports that are taken at every address; neither the proxy's nor that of DNS.
        ports: Vec<u16>,
    }
}

wire_struct! {
    /// What the host made while the guest built its root, and where the guest goes when it stands. The descriptors that are passed with it are,
    /// in this order and no others: the network namespace if the host made it, the channel of the way out if there is one, and the files of
    /// cgroups.
    Place {
        /// The network namespace.
        network: Network,
        /// The way out; `None`: there is loopback, and no route.
        way_out: Option<WayOut>,
        /// How many of the passed descriptors, the last ones, are files into which a process writes `0` to join a cgroup.
        joins: u32,
        /// Limits per process.
        rlimits: Vec<(Resource, u64)>,
    }
}

wire_struct! {
    /// What a template builds once for all its clones. Each clone gets a [`JailPlan`] whose items are the rest.
    TemplatePlan {
        /// User and group of every clone, as numbered inside.
        uid: u32,
        /// See `uid`.
        gid: u32,
        /// What becomes of the supplementary groups; clones find them dropped or kept.
        groups: Groups,
        /// The part of the root that clones share, in order. It can be written by nobody.
        items: Vec<Item>,
        /// Sources that clones mount by themselves: the n-th is at `KEPT/n` for them, gone once their own root stands.
        kept: Vec<Source>,
    }
}

/// Where a clone finds the sources that its template kept.
pub const KEPT: &str = "/kept";

wire_struct! {
    /// What the guest does to itself where no namespace can be had: the layers that need none.
    BarePlan {
        /// Limits per process.
        rlimits: Vec<(Resource, u64)>,
        /// Files and directories that may be read, and executed where there is no list.
        readable: Vec<Bytes>,
        /// Files and directories that may be changed as well.
        writable: Vec<Bytes>,
        /// The only files that may be executed; `None`: everything that can be read.
        executable: Option<Vec<Bytes>>,
        /// Whether Landlock must hold.
        landlock_layer: Layer,
        /// A directory of ours that could be written but for Landlock.
        probe: Bytes,
    }
}

wire_struct! {
    /// What the guest read back from the kernel when the jail stood.
    JailReport {
        /// Each step and the microseconds it took.
        steps: Vec<(String, u32)>,
        /// Namespace name (`user`, `mnt`, …) and its inode number.
        namespaces: Vec<(String, u64)>,
        /// `NoNewPrivs` of `/proc/self/status`.
        no_new_privs: bool,
        /// `Seccomp` of `/proc/self/status` (2: filter).
        seccomp_mode: u32,
        /// A call that the filter refuses was refused.
        seccomp_probe: bool,
        /// `CapEff`, `CapPrm`, `CapBnd` or-ed together; 0 when nothing is left.
        capabilities: u64,
        /// The kernel's Landlock version; 0 when there is none.
        landlock_abi: u32,
        /// Every right that this version of Stockade knows and the kernel offers is handled.
        landlock_restricted: bool,
        /// Writing to a place outside the writable list was refused.
        landlock_probe: bool,
        /// The network namespace holds nothing but loopback.
        loopback_only: bool,
        /// The old root is gone: nothing but the new root is mounted.
        root_detached: bool,
        /// Real user id as the guest sees it.
        uid: u32,
    }
}
