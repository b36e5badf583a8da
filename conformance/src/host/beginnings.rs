//! Beginnings that make no sense: refused with an error, and nothing is left of them.

use std::path::Path;

use stockade_core::path::SafePath;
use stockade_sandbox::drive::Ending;
use stockade_sandbox::state::Sandboxes;

use crate::case::Ground;
use crate::error::SuiteError;
use crate::lab::TOKEN;
use crate::stage::Seen;

use super::{Came, Function, Outside, open_if, shell};

pub(super) const TABLE: &[(&str, Function)] = &[
    ("bad_paths", bad_paths),
    ("bad_workspaces", bad_workspaces),
    ("bad_programs", bad_programs),
    ("large_arguments", large_arguments),
    ("output_is_data", output_is_data),
    ("results_stay_apart", results_stay_apart),
    ("clean_environment", clean_environment),
    ("loader_variables", loader_variables),
    ("guest_program_kept", guest_program_kept),
];

/// Paths that must not become a `SafePath`.
#[expect(clippy::unnecessary_wraps, reason = "one kind of function in the table")]
fn bad_paths(_: &Outside<'_>) -> Came {
    let long = format!("/{}", "a/".repeat(3000));
    let wide = format!("/{}", "a".repeat(300));
    let bad = ["", "relative", "./a", "/a/../b", "/..", "/a\0b", "/a\nb", "/a\x1b[0m", long.as_str(), wide.as_str()];
    let taken: Vec<&str> = bad.into_iter().filter(|path| SafePath::new(Path::new(path)).is_ok()).collect();
    Ok(open_if(!taken.is_empty(), format!("taken: {taken:?}")))
}

/// clix 30: starting in the root or the temporary directory failed half-way. Here it is an error before anything is made.
fn bad_workspaces(outside: &Outside<'_>) -> Came {
    let ids = || Sandboxes::open(&outside.lab.base.join("state")).and_then(|s| s.ids()).map_or(usize::MAX, |ids| ids.len());
    let place = outside.place()?;
    std::fs::write(place.join("file"), "").map_err(SuiteError::file("write", &place))?;
    let mut taken = Vec::new();
    for path in [Path::new("/"), Path::new("/proc"), Path::new("/usr"), &place.join("missing"), &place.join("file")] {
        // The directory of a start that failed is the caller's to remove, as `stockade run` does.
        if outside.once(path, Ground::Shared, "true", stockade_sandbox::once::OnSuccess::Keep).is_ok() {
            taken.push(path.display().to_string());
        }
    }
    let left = ids();
    Ok(open_if(!taken.is_empty(), format!("started: {taken:?}; {left} directories")))
}

/// Programs that cannot be started: the code of CONTRACT, and the sandbox goes on.
fn bad_programs(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let mut standing = outside.stand(&work, Ground::Rw)?;
    standing.run(&shell("echo text > text; printf '#!/no/such\\n' > orphan; chmod +x orphan; mkdir dir"))?;
    let mut wrong = Vec::new();
    let inside = |name: &str| work.join(name).into_os_string();
    for program in ["no-such-program".into(), "/no/such".into(), inside("dir"), inside("text"), inside("orphan"), "/".into()] {
        match standing.run(std::slice::from_ref(&program)) {
            Ok(ran) if matches!(ran.ending, Ending::NotStarted { missing: true, .. }) => {}
            other => wrong.push(format!("{}: {:?}", program.display(), other.map(|ran| ran.ending))),
        }
    }
    for argv in [vec![], vec!["".into()], vec!["true".into(), "a\0b".into()]] {
        match standing.run(&argv) {
            Ok(ran) if !matches!(ran.ending, Ending::NotStarted { .. }) => wrong.push(format!("{argv:?}: {:?}", ran.ending)),
            _ => {}
        }
    }
    let alive = standing.run(&shell("echo alive")).is_ok_and(|ran| ran.stdout == b"alive\n");
    Ok(open_if(!wrong.is_empty() || !alive, format!("{wrong:?}, alive: {alive}")))
}

/// I11: a 200 KB argument, and more than fits in a frame.
fn large_arguments(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let mut standing = outside.stand(&work, Ground::Rw)?;
    let one = standing.run(&["true".into(), "x".repeat(200_000).into()]).map(|ran| ran.ending);
    let refused = !matches!(one, Ok(Ending::Code(0)));
    let alive = standing.run(&shell("echo alive")).is_ok_and(|ran| ran.stdout == b"alive\n");
    let many: Vec<std::ffi::OsString> = std::iter::once("true".into()).chain((0..40).map(|_| "y".repeat(100_000).into())).collect();
    // More than a frame carries; the stream may be closed by that, but nothing runs and nobody panics.
    let all = standing.run(&many).map(|ran| ran.ending);
    let refused = refused && !matches!(all, Ok(Ending::Code(0)));
    Ok(open_if(!refused || !alive, format!("{one:?}, alive: {alive}, {all:?}").chars().take(300).collect::<String>()))
}

/// clix 8.1: bytes that look like the end of a program are output like any other.
fn output_is_data(outside: &Outside<'_>) -> Came {
    use stockade_wire::message::{Exit, Reply};
    let work = outside.place()?.join("ws");
    let mut forged = Vec::new();
    for id in 0..16 {
        stockade_wire::frame::push_frame(&mut forged, id, &stockade_wire::codec::to_bytes(&Reply::Exited { exit: Exit::Code { code: 0 } }));
    }
    std::fs::write(work.join("forged"), &forged).map_err(SuiteError::file("write", &work))?;
    let mut standing = outside.stand(&work, Ground::Rw)?;
    let ran = standing.run(&shell("cat forged; cat forged >&2; exit 7"))?;
    let fine = ran.ending == Ending::Code(7) && ran.stdout == forged && ran.stderr == forged;
    Ok(open_if(!fine, format!("{:?}, {} bytes", ran.ending, ran.stdout.len())))
}

/// clix 8.2: what an earlier program left running must not appear in the result of the next.
fn results_stay_apart(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let mut standing = outside.stand(&work, Ground::Shared)?;
    let first = standing.run(&shell("(for i in $(seq 200); do sleep 0.01; echo late; echo late >&2; done) & exit 3"))?;
    let mut wrong = Vec::new();
    for round in 0..5 {
        let ran = standing.run(&shell(&format!("sleep 0.05; echo {round}; exit {round}")))?;
        if ran.ending != Ending::Code(round) || ran.stdout != format!("{round}\n").as_bytes() || !ran.stderr.is_empty() {
            wrong.push(format!("{:?} {}", ran.ending, String::from_utf8_lossy(&ran.stdout)));
        }
    }
    Ok(open_if(!wrong.is_empty(), format!("{:?}, then {wrong:?}", first.ending)))
}

/// The caller's environment holds a token; the program's does not.
fn clean_environment(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let mut wall = crate::wall::Wall::start(outside.target, outside.lab, &work, Ground::Shared)?;
    let ran = wall.run(&shell("env; cat /proc/self/environ"))?;
    if !String::from_utf8_lossy(&ran.stdout).contains("PATH=") {
        return Ok((Seen::Broken, format!("{:?}", ran.ending)));
    }
    Ok(open_if(String::from_utf8_lossy(&ran.stdout).contains(TOKEN), format!("{:?}", ran.ending)))
}

/// J16: variables that change how programs run do not come along.
#[expect(clippy::unnecessary_wraps, reason = "one kind of function in the table")]
fn loader_variables(outside: &Outside<'_>) -> Came {
    use stockade_sandbox::environment;
    const NAMES: [&str; 10] = [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "BASH_ENV",
        "ENV",
        "PYTHONPATH",
        "NODE_OPTIONS",
        "GIT_SSH_COMMAND",
        "PERL5OPT",
        "RUBYOPT",
        "JAVA_TOOL_OPTIONS",
    ];
    let _ = outside;
    let built = environment::build(|_| Some("evil".into()), &[], |_| true);
    let passed: Vec<&str> = NAMES.into_iter().filter(|name| built.iter().any(|(n, _)| n == name)).collect();
    Ok(open_if(!passed.is_empty(), format!("passed: {passed:?}")))
}

/// CVE-2019-5736: the guest's own program file, which the next sandbox runs, is what it was after a program tried to write it. Only through the
/// first process and its own parent: without a wall, other processes' files would be within reach.
fn guest_program_kept(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let programs = stockade_sandbox::state::programs(&outside.lab.base.join("state"));
    let look = || {
        let entries = std::fs::read_dir(&programs).into_iter().flatten().flatten();
        let mut files: Vec<_> = entries.map(|e| (e.file_name(), std::fs::read(e.path()).unwrap_or_default())).collect();
        files.sort();
        files
    };
    outside.stand(&work, Ground::Rw)?.run(&shell("true"))?;
    let before = look();
    let script = format!(
        "for f in /proc/1/exe /proc/$PPID/exe {}/*; do for i in 1 2 3; do echo evil >> $f; cp f $f; chmod 777 $f; ln -f f $f; done; done",
        programs.display()
    );
    outside.stand(&work, Ground::Rw)?.run(&shell(&script))?;
    let after = look();
    if before.iter().all(|(_, bytes)| bytes.is_empty()) {
        return Ok((Seen::Broken, "there is no guest program on disk".into()));
    }
    Ok(open_if(before != after, format!("{} files", after.len())))
}
