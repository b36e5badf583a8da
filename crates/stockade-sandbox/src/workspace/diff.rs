//! Showing changes as a unified diff.
//!
//! The output reads like git's, so that tools for such diffs work on it. What a sandbox wrote is shown as it was when the
//! list of changes was made: contents are read again and compared with the listed digest, and a file that changed in
//! between is said to have changed rather than shown. Names are quoted where they could mislead; on a terminal so are
//! contents. Nothing here decides what may be applied.

use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, DiffTag};
use stockade_core::escape::escape_bytes;
use stockade_core::result::ChangeKind;

use super::beneath::{self, Locked};
use super::change::{Entry, EntryType, LayerChange};
use super::digest::ContentDigest;
use super::layer::Layer;

/// The most of one side that is compared line by line.
const MAX_SHOWN: u64 = 1 << 20;
/// How long one file may take; beyond it the diff is correct but coarser.
const MAX_TIME: Duration = Duration::from_secs(2);
/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// Who reads the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// A program or a file: contents as they are.
    Pipe,
    /// A person's terminal: control characters are made visible.
    Terminal,
    /// A person's terminal that shows colours.
    ColourTerminal,
}

/// What the changes come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Changed paths.
    pub files: usize,
    /// Lines that are new.
    pub insertions: usize,
    /// Lines that are gone.
    pub deletions: usize,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        write!(f, "{} file{} changed", self.files, plural(self.files))?;
        if self.insertions > 0 {
            write!(f, ", {} insertion{}(+)", self.insertions, plural(self.insertions))?;
        }
        if self.deletions > 0 {
            write!(f, ", {} deletion{}(-)", self.deletions, plural(self.deletions))?;
        }
        Ok(())
    }
}

/// Writes the changes and says what they come to.
pub fn render(changes: &[LayerChange], layer: &Layer, out: &mut impl Write, audience: Audience) -> io::Result<Summary> {
    let mut writer = Writer { out, audience, layer, summary: Summary { files: changes.len(), ..Summary::default() } };
    for change in changes {
        writer.change(change)?;
    }
    Ok(writer.summary)
}

/// What the changes come to, without showing them.
pub fn summarize(changes: &[LayerChange], layer: &Layer) -> io::Result<Summary> {
    render(changes, layer, &mut io::sink(), Audience::Pipe)
}

#[derive(Clone, Copy)]
enum Paint {
    Plain,
    Bold,
    Red,
    Green,
    Cyan,
    Yellow,
}

impl Paint {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "\x1b[1m",
            Self::Red => "\x1b[31m",
            Self::Green => "\x1b[32m",
            Self::Cyan => "\x1b[36m",
            Self::Yellow => "\x1b[33m",
        }
    }
}

/// The contents of one side.
enum Side {
    /// There is none.
    Absent,
    /// Text or bytes to compare.
    Bytes(Vec<u8>),
    /// Too large to show.
    Large,
    /// Not what was listed any more, or not readable.
    Stale,
}

struct Writer<'a, W: Write> {
    out: &'a mut W,
    audience: Audience,
    layer: &'a Layer,
    summary: Summary,
}

impl<W: Write> Writer<'_, W> {
    fn change(&mut self, change: &LayerChange) -> io::Result<()> {
        let (from, to) = (change.from.as_deref().unwrap_or(&change.path), change.path.as_path());
        let (a, b) = (quoted("a/", from), quoted("b/", to));
        if let Some(why) = change.protected {
            // On a line of its own: patch programs skip what stands before a header.
            self.line(Paint::Yellow, &format!("(protected) {}: {why}", quoted("", to)))?;
        }
        self.line(Paint::Bold, &format!("diff --git {a} {b}"))?;
        self.modes(change, from, to)?;
        for (entry, note) in [(&change.old, "old"), (&change.new, "new")] {
            if entry.as_ref().is_some_and(|entry| entry.kind == EntryType::Special) {
                return self.line(Paint::Bold, &format!("{note} entry is a FIFO, socket or device; it cannot be applied"));
            }
        }
        let same = matches!(change.kind, ChangeKind::Mode | ChangeKind::Renamed)
            || change
                .old
                .as_ref()
                .zip(change.new.as_ref())
                .is_some_and(|(old, new)| old.kind == new.kind && old.digest.is_some() && old.digest == new.digest);
        if same {
            return Ok(());
        }
        let old = side(&self.layer.lower, from, change.old.as_ref(), Locked::Leave);
        let new = side(&self.layer.upper, to, change.new.as_ref(), Locked::Lift);
        let a = if matches!(old, Side::Absent) { "/dev/null".into() } else { a };
        let b = if matches!(new, Side::Absent) { "/dev/null".into() } else { b };
        self.contents(change, &a, &b, &old, &new)
    }

    /// The lines between the header and the contents.
    fn modes(&mut self, change: &LayerChange, from: &Path, to: &Path) -> io::Result<()> {
        let directory = |entry: &Entry| if entry.kind == EntryType::Directory { "directory" } else { "file" };
        match (&change.old, &change.new) {
            (None, Some(new)) => self.line(Paint::Bold, &format!("new {} mode {}", directory(new), mode(new)))?,
            (Some(old), None) => self.line(Paint::Bold, &format!("deleted {} mode {}", directory(old), mode(old)))?,
            (Some(old), Some(new)) if mode(old) != mode(new) => {
                self.line(Paint::Bold, &format!("old mode {}", mode(old)))?;
                self.line(Paint::Bold, &format!("new mode {}", mode(new)))?;
            }
            _ => {}
        }
        if change.kind == ChangeKind::Renamed {
            self.line(Paint::Bold, "similarity index 100%")?;
            self.line(Paint::Bold, &format!("rename from {}", quoted("", from)))?;
            self.line(Paint::Bold, &format!("rename to {}", quoted("", to)))?;
        }
        if change.new.as_ref().is_some_and(|new| new.mode & 0o6000 != 0) {
            self.line(Paint::Bold, "setuid and setgid bits are dropped when applied")?;
        }
        Ok(())
    }

    fn contents(&mut self, change: &LayerChange, a: &str, b: &str, old: &Side, new: &Side) -> io::Result<()> {
        let sizes = [&change.old, &change.new].map(|entry| entry.as_ref().map_or(0, |entry| entry.size));
        let [old_size, new_size] = sizes;
        if matches!(old, Side::Stale) || matches!(new, Side::Stale) {
            return self.line(Paint::Bold, &format!("Files {a} and {b} differ, but cannot be shown: changed meanwhile or not readable"));
        }
        if matches!(old, Side::Large) || matches!(new, Side::Large) {
            return self.line(Paint::Bold, &format!("Files {a} and {b} differ (too large to show: {old_size} bytes, {new_size} bytes)"));
        }
        let bytes = |side: &Side| if let Side::Bytes(bytes) = side { bytes.clone() } else { Vec::new() };
        let (old, new) = (bytes(old), bytes(new));
        if is_binary(&old) || is_binary(&new) {
            return self.line(Paint::Bold, &format!("Binary files {a} and {b} differ ({old_size} bytes, {new_size} bytes)"));
        }
        if let Some(entry) = &change.new
            && entry.kind == EntryType::Symlink
            && leaves(&change.path, &new)
        {
            self.line(Paint::Yellow, "symbolic link leads out of the workspace")?;
        }
        if old.is_empty() && new.is_empty() {
            return Ok(());
        }
        self.line(Paint::Bold, &format!("--- {a}"))?;
        self.line(Paint::Bold, &format!("+++ {b}"))?;
        self.hunks(&lines(&old), &lines(&new))
    }

    fn hunks(&mut self, old: &[&[u8]], new: &[&[u8]]) -> io::Result<()> {
        let ops = similar::capture_diff_slices_deadline(Algorithm::Myers, old, new, Some(Instant::now() + MAX_TIME));
        for group in similar::group_diff_ops(ops, CONTEXT) {
            let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
            let range = |start: usize, end: usize| {
                let count = end - start;
                let line = if count == 0 { start } else { start + 1 };
                if count == 1 { format!("{line}") } else { format!("{line},{count}") }
            };
            let old_range = range(first.old_range().start, last.old_range().end);
            let new_range = range(first.new_range().start, last.new_range().end);
            self.line(Paint::Cyan, &format!("@@ -{old_range} +{new_range} @@"))?;
            for op in &group {
                self.operation(op, old, new)?;
            }
        }
        Ok(())
    }

    fn operation(&mut self, op: &DiffOp, old: &[&[u8]], new: &[&[u8]]) -> io::Result<()> {
        let (gone, come) = (old.get(op.old_range()).unwrap_or_default(), new.get(op.new_range()).unwrap_or_default());
        if op.tag() == DiffTag::Equal {
            return gone.iter().try_for_each(|line| self.text(Paint::Plain, b' ', line));
        }
        self.summary.deletions += gone.len();
        self.summary.insertions += come.len();
        gone.iter().try_for_each(|line| self.text(Paint::Red, b'-', line))?;
        come.iter().try_for_each(|line| self.text(Paint::Green, b'+', line))
    }

    /// One line of contents with its sign.
    fn text(&mut self, paint: Paint, sign: u8, line: &[u8]) -> io::Result<()> {
        let (body, ended) = line.strip_suffix(b"\n").map_or((line, false), |body| (body, true));
        let start = if self.audience == Audience::ColourTerminal { paint.code() } else { "" };
        self.out.write_all(start.as_bytes())?;
        self.out.write_all(&[sign])?;
        match self.audience {
            Audience::Pipe => self.out.write_all(body)?,
            Audience::Terminal | Audience::ColourTerminal => {
                let parts: Vec<String> = body.split(|byte| *byte == b'\t').map(escape_bytes).collect();
                self.out.write_all(parts.join("\t").as_bytes())?;
            }
        }
        self.out.write_all(if start.is_empty() { b"\n" } else { b"\x1b[0m\n" })?;
        if ended { Ok(()) } else { self.out.write_all(b"\\ No newline at end of file\n") }
    }

    /// One line of our own.
    fn line(&mut self, paint: Paint, text: &str) -> io::Result<()> {
        match self.audience {
            Audience::ColourTerminal => writeln!(self.out, "{}{text}\x1b[0m", paint.code()),
            Audience::Pipe | Audience::Terminal => writeln!(self.out, "{text}"),
        }
    }
}

fn side(root: &Path, path: &Path, entry: Option<&Entry>, locked: Locked) -> Side {
    let Some(entry) = entry else { return Side::Absent };
    if entry.kind == EntryType::Directory {
        return Side::Bytes(Vec::new());
    }
    if entry.size > MAX_SHOWN {
        return Side::Large;
    }
    match read(root, path, entry, locked) {
        Some(bytes) if Some(ContentDigest::of(&bytes)) == entry.digest => Side::Bytes(bytes),
        _ => Side::Stale,
    }
}

/// Reads a small file or a link's text again, beneath its tree.
fn read(root: &Path, path: &Path, entry: &Entry, locked: Locked) -> Option<Vec<u8>> {
    let root = beneath::open_root(root).ok()?;
    let (parent, name) = beneath::split(path)?;
    let parent = beneath::descend(root.as_fd(), parent, locked).ok()?;
    if entry.kind == EntryType::Symlink {
        return beneath::read_link(&parent, name).ok();
    }
    let (fd, _) = beneath::open_file(&parent, name, locked).ok()?;
    let mut bytes = Vec::new();
    std::fs::File::from(fd).take(MAX_SHOWN + 1).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Lines with their ends.
fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').collect()
}

/// As git tells: a NUL near the beginning.
fn is_binary(bytes: &[u8]) -> bool {
    bytes.iter().take(8000).any(|byte| *byte == 0)
}

/// A mode as git writes it: type and permissions.
fn mode(entry: &Entry) -> String {
    let kind = match entry.kind {
        EntryType::File => 0o100_000,
        EntryType::Directory => 0o040_000,
        EntryType::Symlink => return "120000".into(),
        EntryType::Special => 0,
    };
    format!("{:06o}", kind | entry.mode)
}

/// Whether a link's text leads out of the workspace, as text: nothing is followed.
fn leaves(path: &Path, target: &[u8]) -> bool {
    let target = Path::new(std::ffi::OsStr::from_bytes(target));
    let mut depth = path.components().count().saturating_sub(1);
    for component in target.components() {
        match component {
            Component::RootDir | Component::Prefix(_) => return true,
            Component::CurDir => {}
            Component::Normal(_) => depth += 1,
            Component::ParentDir => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return true,
            },
        }
    }
    false
}

/// A name, in quotes where it holds anything that could mislead or break a line.
fn quoted(prefix: &str, path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let text = escape_bytes(bytes);
    if text.as_bytes() == bytes && !text.contains(['"', '\\']) {
        format!("{prefix}{text}")
    } else {
        format!("\"{prefix}{}\"", text.replace('"', "\\\""))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::workspace::testing::{Overlay, run};

    fn rendered(overlay: &Overlay, audience: Audience) -> (String, Summary) {
        let layer = overlay.layer();
        let mut out = Vec::new();
        let summary = render(&layer.changes().unwrap(), &layer, &mut out, audience).unwrap();
        (String::from_utf8(out).unwrap(), summary)
    }

    #[test]
    fn changes_read_like_a_unified_diff() {
        let overlay = Overlay::new("printf '1\\n2\\n3\\n4\\n5\\n' >a; echo gone >b; echo same >c; echo moved >d; ln -s a l");
        overlay.inside("sed -i s/3/three/ a; rm b; chmod 755 c; mv d e; printf new >n; ln -sfn ../out l; printf '\\0x' >bin; mkdir dir");
        let (text, summary) = rendered(&overlay, Audience::Pipe);
        let expected = "\
diff --git a/a b/a
--- a/a
+++ b/a
@@ -1,5 +1,5 @@
 1
 2
-3
+three
 4
 5
diff --git a/b b/b
deleted file mode 100644
--- a/b
+++ /dev/null
@@ -1 +0,0 @@
-gone
diff --git a/bin b/bin
new file mode 100644
Binary files /dev/null and b/bin differ (0 bytes, 2 bytes)
diff --git a/c b/c
old mode 100644
new mode 100755
diff --git a/dir b/dir
new directory mode 040755
diff --git a/d b/e
similarity index 100%
rename from d
rename to e
diff --git a/l b/l
symbolic link leads out of the workspace
--- a/l
+++ b/l
@@ -1 +1 @@
-a
\\ No newline at end of file
+../out
\\ No newline at end of file
diff --git a/n b/n
new file mode 100644
--- /dev/null
+++ b/n
@@ -0,0 +1 @@
+new
\\ No newline at end of file
";
        assert_eq!(text, expected);
        assert_eq!(summary.to_string(), "8 files changed, 3 insertions(+), 3 deletions(-)");
    }

    #[test]
    fn git_can_read_it() {
        let overlay = Overlay::new("seq 1 40 >a; echo x >b; mkdir d; echo y >d/c");
        overlay.inside("sed -i -e 5d -e 's/30/thirty/' a; rm b; mv d/c d/e; echo 'new file' >n");
        let (text, _) = rendered(&overlay, Audience::Pipe);
        let patch = overlay.base.path().join("patch");
        fs::write(&patch, text).unwrap();
        run("bash", &["-ec", &format!("cd '{}' && git init -q . && git apply ../patch && rm -r .git", overlay.lower.display())]);
        assert_eq!(overlay.listed(), [] as [&str; 0]);
    }

    #[test]
    fn protected_paths_and_special_files_are_marked() {
        let overlay = Overlay::new("mkdir -p .git/hooks");
        overlay.inside("echo evil >.git/hooks/pre-commit; chmod 4755 .git/hooks/pre-commit; mkfifo pipe");
        let (text, _) = rendered(&overlay, Audience::Pipe);
        assert!(text.contains("(protected) .git/hooks/pre-commit: git runs hooks\n"), "{text}");
        assert!(text.contains("setuid and setgid bits are dropped"), "{text}");
        assert!(text.contains("FIFO, socket or device"), "{text}");
    }

    #[test]
    fn names_and_contents_cannot_repaint_a_terminal() {
        let overlay = Overlay::new("true");
        overlay.inside("printf 'a\\x1b[2Jb\\tc\\n' >$'x\\n+++ b\\x1b'; printf x >'q\"'");
        let (text, _) = rendered(&overlay, Audience::Terminal);
        assert!(!text.contains('\x1b'), "{text:?}");
        assert!(text.contains("+a\\u{1b}[2Jb\tc\n") && text.contains("+++ \"b/x\\n+++ b\\u{1b}\"\n"), "{text}");
        let (raw, _) = rendered(&overlay, Audience::Pipe);
        assert!(raw.contains("+a\x1b[2Jb\tc\n") && !raw.contains("\n+++ b\x1b"), "{raw:?}");
        let (colour, _) = rendered(&overlay, Audience::ColourTerminal);
        assert!(colour.contains("\x1b[32m+a\\u{1b}[2Jb\tc\x1b[0m\n"), "{colour:?}");
    }

    #[test]
    fn large_files_are_listed_and_changed_ones_not_shown() {
        let overlay = Overlay::new("true");
        overlay.inside("head -c 1048577 /dev/zero >big; echo shown >small");
        let layer = overlay.layer();
        let changes = layer.changes().unwrap();
        fs::write(overlay.upper.join("small"), b"other\n").unwrap();
        let mut out = Vec::new();
        render(&changes, &layer, &mut out, Audience::Pipe).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("too large to show: 0 bytes, 1048577 bytes"), "{text}");
        assert!(text.contains("cannot be shown: changed meanwhile") && !text.contains("other"), "{text}");
    }

    #[test]
    fn bytes_that_are_not_text_are_compared_all_the_same() {
        let overlay = Overlay::new("printf 'a\\xff\\nb\\n' >f");
        overlay.inside("printf 'a\\xfe\\nb\\n' >f");
        assert!(rendered(&overlay, Audience::Terminal).0.contains("-a\\xff\n+a\\xfe\n b\n"));
    }
}
