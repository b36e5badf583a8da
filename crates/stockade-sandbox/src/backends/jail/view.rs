//! What the sandbox sees of this machine: system directories, toolchains that `PATH` leads to, package caches, masked files.
//!
//! Gathers facts (which of the known paths exist, what is a link) and decides nothing about mounts: that is `plan.rs`.
//! The rule is a short list of what goes in, never a list of what is kept out; masks only cover what lies inside it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Directories of the system that every program needs.
const SYSTEM: [&str; 10] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/nix/store", "/gnu/store"];

/// Files below `/etc` that hold secrets. An ordinary user could not read most of them anyway; they do not exist inside at all.
const PRIVATE: [&str; 23] = [
    "/etc/shadow",
    "/etc/shadow-",
    "/etc/gshadow",
    "/etc/gshadow-",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/security/opasswd",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/letsencrypt",
    "/etc/krb5.keytab",
    "/etc/wireguard",
    "/etc/openvpn",
    "/etc/ipsec.secrets",
    "/etc/NetworkManager/system-connections",
    "/etc/ppp/chap-secrets",
    "/etc/ppp/pap-secrets",
    "/etc/docker",
    "/etc/kubernetes",
    "/etc/rancher",
    "/etc/mysql/debian.cnf",
    "/etc/stockade",
    "/etc/netrc",
];

/// Directories below home that are a toolchain as a whole; a `PATH` entry inside one brings all of it.
const TOOLCHAINS: [&str; 33] = [
    ".cargo",
    ".rustup",
    ".nvm",
    ".pyenv",
    ".rbenv",
    ".nodenv",
    ".goenv",
    ".asdf",
    ".sdkman",
    ".volta",
    ".bun",
    ".deno",
    ".fnm",
    ".local/share/mise",
    ".local/share/fnm",
    ".local/share/pnpm",
    ".local/share/uv",
    ".juliaup",
    ".julia",
    ".ghcup",
    ".cabal",
    ".stack",
    ".opam",
    ".dotnet",
    ".foundry",
    ".krew",
    ".pixi",
    "miniconda3",
    "anaconda3",
    "miniforge3",
    "mambaforge",
    "go",
    ".linuxbrew",
];

/// A toolchain that is useless without another.
const COMPANIONS: [(&str, &str); 2] = [(".cargo", ".rustup"), (".juliaup", ".julia")];

/// Files inside toolchain roots that hold credentials.
const TOOLCHAIN_PRIVATE: [&str; 14] = [
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".nvm/.npmrc",
    ".volta/.npmrc",
    ".bun/.npmrc",
    ".cabal/config",
    ".stack/config.yaml",
    ".julia/servers",
    ".julia/config",
    ".dotnet/corefx",
    ".krew/receipts",
    "miniconda3/.condarc",
    "anaconda3/.condarc",
    "miniforge3/.condarc",
];

/// Package caches below home: read from the host, writes stay in the sandbox.
const CACHES: [&str; 15] = [
    ".cargo/registry",
    ".cargo/git",
    ".npm/_cacache",
    ".cache/pip",
    ".cache/uv",
    ".cache/yarn",
    ".cache/pnpm",
    ".cache/go-build",
    ".cache/composer",
    "go/pkg/mod",
    ".m2/repository",
    ".gradle/caches",
    ".gradle/wrapper",
    ".ivy2/cache",
    ".ccache",
];

/// One path of the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SystemEntry {
    /// A directory to show read-only.
    Directory(PathBuf),
    /// A link to repeat.
    Link(PathBuf, PathBuf),
}

/// The facts about this machine that a jail's plan is built from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct View {
    /// System directories and links.
    pub system: Vec<SystemEntry>,
    /// Paths to hide.
    pub masks: Vec<PathBuf>,
    /// Toolchain roots (real paths).
    pub toolchains: Vec<PathBuf>,
    /// Package caches (real paths).
    pub caches: Vec<PathBuf>,
    /// Links on the way to home or to a toolchain, which programs follow inside as they do outside.
    pub links: BTreeMap<PathBuf, PathBuf>,
    /// Names of users and groups inside.
    pub passwd: Vec<u8>,
    /// See `passwd`.
    pub group: Vec<u8>,
    /// The resolver's settings, a file or a link, where there are any.
    pub resolver: Option<PathBuf>,
    /// The list of known hosts, where there is one.
    pub hosts: Option<PathBuf>,
    /// The person's git identity, as a `.gitconfig`.
    pub gitconfig: Vec<u8>,
}

/// Who asks, and where.
pub struct Asker<'a> {
    /// Home directory outside.
    pub home: &'a Path,
    /// Directories of `PATH`.
    pub path_dirs: &'a [PathBuf],
    /// Values of variables that name toolchain roots.
    pub roots: &'a [OsString],
    /// The workspace; what lies beneath it is visible anyway.
    pub workspace: &'a Path,
    /// User and group inside.
    pub ids: (u32, u32),
    /// The ids are the asker's own, so the machine's name for them is right.
    pub named: bool,
}

impl View {
    /// Looks at this machine.
    pub fn gather(asker: &Asker<'_>) -> Self {
        let mut view = Self::default();
        for path in SYSTEM {
            view.add_system(Path::new(path));
        }
        view.masks.extend(PRIVATE.iter().map(PathBuf::from));
        view.masks.extend(host_keys(Path::new("/etc/ssh")));
        view.note_links(asker.home);
        let home = fs::canonicalize(asker.home).unwrap_or_else(|_| asker.home.to_owned());
        view.add_toolchains(asker, &home);
        for toolchain in &view.toolchains {
            // Credentials are named from the directory that holds the toolchain, which is mostly home.
            let around = toolchain.parent().unwrap_or(&home);
            view.masks.extend(TOOLCHAIN_PRIVATE.iter().map(|name| around.join(name)).filter(|path| path.starts_with(toolchain)));
        }
        for name in CACHES {
            let path = home.join(name);
            if is_real_directory(&path) && !path.starts_with(asker.workspace) {
                view.caches.push(path);
            }
        }
        view.passwd = passwd(asker);
        // Below a directory that is shown, so that it can be mounted over.
        let resolver = PathBuf::from("/etc/resolv.conf");
        if view.system.contains(&SystemEntry::Directory("/etc".into())) && fs::symlink_metadata(&resolver).is_ok() {
            view.resolver = Some(resolver);
        }
        let hosts = PathBuf::from("/etc/hosts");
        if view.system.contains(&SystemEntry::Directory("/etc".into())) && fs::symlink_metadata(&hosts).is_ok() {
            view.hosts = Some(hosts);
        }
        view.group = group(asker);
        view.gitconfig = git_identity(asker.home);
        view
    }

    /// Whether a path of the host can be seen inside through one of these entries.
    pub fn shows(&self, path: &Path) -> bool {
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        self.toolchains.iter().any(|t| real.starts_with(t)) || self.shows_system(&real)
    }

    /// Whether a program inside could read what lies at a path without links: it is shown, nothing covers it, and the sandbox's user may.
    pub fn reveals(&self, real: &Path) -> bool {
        let is_within = |root: &PathBuf| real.starts_with(root) || fs::canonicalize(root).is_ok_and(|root| real.starts_with(root));
        if self.masks.iter().any(is_within) {
            return false;
        }
        let is_own = self.toolchains.iter().chain(&self.caches).any(|root| real.starts_with(root));
        // Root's sandboxes run as users that own nothing of the system.
        is_own || self.shows_system(real) && (!rustix::process::geteuid().is_root() || anybody_reads(real))
    }

    /// Whether that is so of all that lies beneath it too.
    pub fn reveals_all(&self, real: &Path) -> bool {
        let is_beneath = |mask: &PathBuf| mask.starts_with(real) || fs::canonicalize(mask).is_ok_and(|mask| mask.starts_with(real));
        // Files that only root reads are everywhere in there, and nobody looks at each.
        let is_roots = rustix::process::geteuid().is_root() && real.starts_with("/etc");
        self.reveals(real) && !is_roots && !self.masks.iter().any(is_beneath)
    }

    fn shows_system(&self, real: &Path) -> bool {
        self.system.iter().any(|e| match e {
            SystemEntry::Directory(d) => real.starts_with(d),
            SystemEntry::Link(..) => false,
        })
    }

    fn add_system(&mut self, path: &Path) {
        match fs::symlink_metadata(path) {
            Ok(meta) if meta.is_dir() => self.system.push(SystemEntry::Directory(path.to_owned())),
            Ok(meta) if meta.is_symlink() => {
                if let Ok(target) = fs::read_link(path) {
                    self.system.push(SystemEntry::Link(path.to_owned(), target));
                }
            }
            Ok(_) | Err(_) => {}
        }
    }

    fn add_toolchains(&mut self, asker: &Asker<'_>, home: &Path) {
        let mut found: BTreeSet<PathBuf> = BTreeSet::new();
        let from_path = asker.path_dirs.iter().map(|d| (d.clone(), false));
        let from_roots = asker.roots.iter().flat_map(|r| std::env::split_paths(r).collect::<Vec<_>>()).map(|d| (d, true));
        for (directory, is_root) in from_path.chain(from_roots) {
            if !directory.is_absolute() {
                continue;
            }
            let Ok(real) = fs::canonicalize(&directory) else { continue };
            if !real.is_dir() || self.shows_system(&real) || real.starts_with(asker.workspace) {
                continue;
            }
            let root = if is_root { real.clone() } else { toolchain_root(&real, home) };
            // Never home itself, nor anything that contains it, nor the kernel's own trees.
            let too_wide = home.starts_with(&root) || asker.workspace.starts_with(&root) && root.components().count() < 3;
            if too_wide
                || ["/proc", "/sys", "/dev", "/run", "/tmp", "/var/tmp"]
                    .iter()
                    .any(|p| root == Path::new(p) || (root.starts_with(p) && *p != "/tmp" && *p != "/var/tmp"))
            {
                continue;
            }
            self.note_links(&directory);
            for (name, companion) in COMPANIONS {
                let companion = root.with_file_name(companion);
                if root.file_name().is_some_and(|n| n == name) && is_real_directory(&companion) {
                    found.insert(companion);
                }
            }
            found.insert(root);
        }
        // A root inside another root is already there.
        let all: Vec<PathBuf> = found.into_iter().collect();
        self.toolchains = all.iter().filter(|p| !all.iter().any(|q| *p != q && p.starts_with(q))).cloned().collect();
    }

    /// Remembers every link among the components of a path.
    fn note_links(&mut self, path: &Path) {
        let mut current = PathBuf::new();
        for component in path.components() {
            current.push(component);
            if let Ok(target) = fs::read_link(&current) {
                if !self.shows_system(&current) && !self.system.iter().any(|e| matches!(e, SystemEntry::Link(p, _) if *p == current)) {
                    self.links.insert(current.clone(), target.clone());
                }
                // What follows lies beneath the link's target.
                let Some(parent) = current.parent() else { break };
                current = fs::canonicalize(parent.join(target)).unwrap_or(current);
            }
        }
    }
}

/// The known toolchain that a directory belongs to, else the directory alone. A toolchain of another home (`sudo` that keeps
/// `PATH`) is known by its name.
fn toolchain_root(real: &Path, home: &Path) -> PathBuf {
    if real.starts_with("/opt") {
        // Programs there come in trees of their own; other trees beside them are not shown.
        return real.components().take(3).collect();
    }
    let own = TOOLCHAINS.iter().map(|name| home.join(name)).find(|root| real.starts_with(root));
    let is_known = |path: &&Path| path.file_name().is_some_and(|n| TOOLCHAINS.iter().any(|t| t.starts_with('.') && n == *t));
    own.or_else(|| real.ancestors().find(is_known).map(Path::to_owned)).unwrap_or_else(|| real.to_owned())
}

fn is_real_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|m| m.is_dir())
}

/// Whether a user who owns nothing on the way may read it. What is not there keeps nothing from anybody.
fn anybody_reads(path: &Path) -> bool {
    let grants = |path: &Path, bit: u32| fs::metadata(path).map_or(true, |meta| meta.permissions().mode() & bit != 0);
    grants(path, 0o004) && path.ancestors().skip(1).all(|directory| grants(directory, 0o001))
}

fn host_keys(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut keys: Vec<PathBuf> = entries
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.file_name().is_some_and(|n| n.as_bytes().starts_with(b"ssh_host_") && !n.as_bytes().ends_with(b".pub")))
        .collect();
    keys.sort();
    keys
}

/// System users, the person, nobody: other people are not named inside.
fn passwd(asker: &Asker<'_>) -> Vec<u8> {
    let (uid, gid) = asker.ids;
    let mut out = database("/etc/passwd", uid);
    let mine = [format!("stockade:x:{uid}:{gid}:sandbox:").as_bytes(), asker.home.as_os_str().as_bytes(), b":/bin/sh\n"].concat();
    let known = asker.named.then(|| fs::read("/etc/passwd").ok().and_then(|text| find_line(&text, uid))).flatten();
    out.extend(known.unwrap_or(mine));
    out
}

fn group(asker: &Asker<'_>) -> Vec<u8> {
    let mut out = database("/etc/group", asker.ids.1);
    let known = asker.named.then(|| fs::read("/etc/group").ok().and_then(|text| find_line(&text, asker.ids.1))).flatten();
    out.extend(known.unwrap_or_else(|| format!("stockade:x:{}:\n", asker.ids.1).into_bytes()));
    out
}

/// Lines whose id (third field) belongs to the system, without the person's own.
fn database(path: &str, own: u32) -> Vec<u8> {
    let text = fs::read(path).unwrap_or_default();
    let mut out = Vec::new();
    for line in text.split(|b| *b == b'\n') {
        if id_of(line).is_some_and(|id| id != own && (id < 1000 || id == 65534)) {
            out.extend_from_slice(line);
            out.push(b'\n');
        }
    }
    out
}

fn find_line(text: &[u8], id: u32) -> Option<Vec<u8>> {
    text.split(|b| *b == b'\n').find(|line| id_of(line) == Some(id)).map(|line| [line, b"\n"].concat())
}

fn id_of(line: &[u8]) -> Option<u32> {
    std::str::from_utf8(line.split(|b| *b == b':').nth(2)?).ok()?.parse().ok()
}

/// `user.name` and `user.email` of the person's own git settings, and nothing else of them.
fn git_identity(home: &Path) -> Vec<u8> {
    let mut name = None;
    let mut email = None;
    for file in [home.join(".config/git/config"), home.join(".gitconfig")] {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let mut in_user = false;
        for line in text.lines().take(2000) {
            let line = line.trim();
            if line.starts_with('[') {
                in_user = line.to_ascii_lowercase().replace(' ', "") == "[user]";
            } else if in_user && let Some((key, value)) = line.split_once('=') {
                let value = value.trim().trim_matches('"').to_owned();
                match key.trim().to_ascii_lowercase().as_str() {
                    "name" => name = Some(value),
                    "email" => email = Some(value),
                    _ => {}
                }
            }
        }
    }
    let quoted = |v: &str| v.replace('\\', "\\\\").replace('"', "\\\"");
    let mut out = String::new();
    if name.is_some() || email.is_some() {
        out.push_str("[user]\n");
    }
    for (key, value) in [("name", name), ("email", email)] {
        if let Some(value) = value.filter(|v| !v.chars().any(char::is_control)) {
            out.extend(["\t", key, " = \"", &quoted(&value), "\"\n"]);
        }
    }
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker<'a>(home: &'a Path, dirs: &'a [PathBuf], workspace: &'a Path) -> Asker<'a> {
        Asker { home, path_dirs: dirs, roots: &[], workspace, ids: (1000, 1000), named: true }
    }

    #[test]
    fn a_path_entry_brings_its_toolchain_and_nothing_wider() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let base = fs::canonicalize(home.path()).unwrap();
        for d in [".cargo/bin", ".rustup", ".ssh", "bin", "odd/tools", "work"] {
            fs::create_dir_all(base.join(d)).unwrap();
        }
        let dirs = [base.join(".cargo/bin"), base.join("odd/tools"), base.clone(), "/usr/bin".into(), "relative".into(), "/".into()];
        let view = View::gather(&asker(&base, &dirs, &base.join("work")));
        assert_eq!(view.toolchains, [base.join(".cargo"), base.join(".rustup"), base.join("odd/tools")]);
        assert!(view.masks.contains(&base.join(".cargo/credentials.toml")));
        assert!(view.shows(Path::new("/usr/bin/env")) && !view.shows(&base.join(".ssh")));
    }

    #[test]
    fn a_toolchain_of_another_home_is_known_by_its_name() {
        let place = tempfile::tempdir_in("/var/tmp").unwrap();
        let base = fs::canonicalize(place.path()).unwrap();
        for d in ["other/.pyenv/shims", "other/.pyenv/bin", "home/work"] {
            fs::create_dir_all(base.join(d)).unwrap();
        }
        let dirs = [base.join("other/.pyenv/shims"), base.join("other/.pyenv/bin")];
        let view = View::gather(&asker(&base.join("home"), &dirs, &base.join("home/work")));
        assert_eq!(view.toolchains, [base.join("other/.pyenv")]);
    }

    #[test]
    fn what_is_covered_or_not_shown_is_not_revealed() {
        let home = tempfile::tempdir_in("/var/tmp").unwrap();
        let base = fs::canonicalize(home.path()).unwrap();
        for d in [".cargo/bin", ".cargo/registry", ".cache/pip", ".ssh", "work"] {
            fs::create_dir_all(base.join(d)).unwrap();
        }
        let dirs = [base.join(".cargo/bin")];
        let view = View::gather(&asker(&base, &dirs, &base.join("work")));
        for path in
            ["/usr/bin/env", "/etc/passwd"].map(PathBuf::from).into_iter().chain([".cargo/env", ".cache/pip/x"].map(|p| base.join(p)))
        {
            assert!(view.reveals(&fs::canonicalize(&path).unwrap_or(path.clone())), "{}", path.display());
        }
        let hidden = ["/etc/shadow", "/etc/ssl/private/x", "/etc/stockade/policy/x", "/root/.ssh/id_rsa", "/tmp/x", "/proc/1/environ", "/"];
        for path in hidden.map(PathBuf::from).into_iter().chain([".ssh/id", ".cargo/credentials.toml", ".cache/x"].map(|p| base.join(p))) {
            assert!(!view.reveals(&path), "{}", path.display());
        }
    }

    #[test]
    fn what_only_root_reads_is_known() {
        let place = tempfile::tempdir_in("/var/tmp").unwrap();
        let file = place.path().join("key");
        fs::write(&file, "x").unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        for (directory, mode, is_open) in [(0o755, 0o644, true), (0o755, 0o640, false), (0o700, 0o644, false)] {
            set(place.path(), directory);
            set(&file, mode);
            assert_eq!(anybody_reads(&file), is_open, "{directory:o} {mode:o}");
        }
    }

    #[test]
    fn git_identity_takes_two_values_only() {
        let home = tempfile::tempdir().unwrap();
        fs::write(
            home.path().join(".gitconfig"),
            "[core]\n\tsshCommand = evil\n[user]\n name = A \"q\"\n\temail = a@b.c\n signingkey = K\n[alias]\n x = !sh\n",
        )
        .unwrap();
        assert_eq!(String::from_utf8(git_identity(home.path())).unwrap(), "[user]\n\tname = \"A \\\"q\"\n\temail = \"a@b.c\"\n");
    }
}
