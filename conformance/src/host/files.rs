//! Files through the library, with a hostile program inside that planted links, pipes and names.

use crate::case::Ground;
use crate::lab::SECRET;
use crate::stage::Seen;

use super::{Came, Function, Outside, open_if, safe, shell};

pub(super) const TABLE: &[(&str, Function)] = &[
    ("read_link_out", read_link_out),
    ("write_link_out", write_link_out),
    ("remove_link_out", remove_link_out),
    ("rename_link_out", rename_link_out),
    ("read_pipe", read_pipe),
    ("strange_names", strange_names),
    ("link_loop", link_loop),
    ("deep_tree", deep_tree),
    ("replace_while_reading", replace_while_reading),
];

/// The program leaves a link to the host's file; the caller reads it.
fn read_link_out(outside: &Outside<'_>) -> Came {
    let place = outside.place()?;
    let work = place.join("ws");
    let mut standing = outside.stand(&work, Ground::Rw)?;
    standing.run(&shell("ln -s ../secret link; ln -s .. up"))?;
    let mut bytes = Vec::new();
    let _ = standing.sandbox.read_file(&safe(&work.join("link"))?, &mut bytes);
    let _ = standing.sandbox.read_file(&safe(&work.join("up/secret"))?, &mut bytes);
    Ok(open_if(String::from_utf8_lossy(&bytes).contains(SECRET), format!("{} bytes were read", bytes.len())))
}

/// The program leaves a link to a directory outside; the caller writes through it.
fn write_link_out(outside: &Outside<'_>) -> Came {
    let place = outside.place()?;
    let work = place.join("ws");
    let mut standing = outside.stand(&work, Ground::Rw)?;
    standing.run(&shell("ln -s ../out link"))?;
    let said = standing.sandbox.write_file(&safe(&work.join("link/w"))?, 0o644, &mut b"x".as_slice());
    Ok(open_if(place.join("out/w").exists(), format!("{said:?}")))
}

/// Removing a whole tree must not go through a link in it.
fn remove_link_out(outside: &Outside<'_>) -> Came {
    let place = outside.place()?;
    let work = place.join("ws");
    let mut standing = outside.stand(&work, Ground::Rw)?;
    standing.run(&shell("mkdir tree; ln -s ../../out tree/link"))?;
    let said = standing.sandbox.remove(&safe(&work.join("tree"))?);
    if work.join("tree").symlink_metadata().is_ok() {
        return Ok((Seen::Broken, format!("the tree was not removed: {said:?}")));
    }
    Ok(open_if(!place.join("out/keep").exists(), format!("{said:?}")))
}

/// A rename whose target lies behind a link.
fn rename_link_out(outside: &Outside<'_>) -> Came {
    let place = outside.place()?;
    let work = place.join("ws");
    let mut standing = outside.stand(&work, Ground::Rw)?;
    standing.run(&shell("ln -s ../out link; echo x > file"))?;
    let said = standing.sandbox.rename(&safe(&work.join("file"))?, &safe(&work.join("link/w"))?);
    Ok(open_if(place.join("out/w").exists(), format!("{said:?}")))
}

/// A named pipe without a writer would stop a reader that waits for one.
fn read_pipe(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let mut standing = outside.stand(&work, Ground::Rw)?;
    standing.run(&shell("mkfifo pipe"))?;
    let mut bytes = Vec::new();
    let said = standing.sandbox.read_file(&safe(&work.join("pipe"))?, &mut bytes);
    let alive = standing.run(&shell("echo alive"))?.stdout == b"alive\n";
    Ok(open_if(!alive || bytes.len() > 1, format!("{said:?}, then alive: {alive}")))
}

/// Names with line ends, escapes and bytes that are no text arrive as they are.
fn strange_names(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let mut standing = outside.stand(&work, Ground::Rw)?;
    standing.run(&shell(r"mkdir names; touch names/$'a\nb' names/$'\e]0;x\a' names/$'\xff\xfe' names/-rf"))?;
    let listed = standing.sandbox.list_dir(&safe(&work.join("names"))?);
    let Ok(entries) = listed else { return Ok((Seen::Broken, format!("{listed:?}"))) };
    let mut names: Vec<Vec<u8>> = entries.into_iter().map(|e| e.name.0).collect();
    names.sort();
    let expected: Vec<Vec<u8>> = [b"\x1b]0;x\x07".to_vec(), b"-rf".to_vec(), b"a\nb".to_vec(), b"\xff\xfe".to_vec()].to_vec();
    Ok(open_if(names != expected, format!("{names:?}")))
}

/// Links that lead to each other are an error, not a loop.
fn link_loop(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let mut standing = outside.stand(&work, Ground::Rw)?;
    standing.run(&shell("ln -s b a; ln -s a b"))?;
    let read = standing.sandbox.read_file(&safe(&work.join("a"))?, &mut Vec::new());
    let alive = standing.run(&shell("echo alive"))?.stdout == b"alive\n";
    Ok(open_if(read.is_ok() || !alive, format!("{read:?}, alive: {alive}")))
}

/// A tree deeper than any path is long: removed, or refused with the sandbox still alive.
fn deep_tree(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let mut standing = outside.stand(&work, Ground::Shared)?;
    standing.run(&shell("/usr/bin/python3 -c 'import os\nos.mkdir(\"t\"); os.chdir(\"t\")\nfor i in range(1200): os.mkdir(\"d\" * 200); os.chdir(\"d\" * 200)'"))?;
    let removed = standing.sandbox.remove(&safe(&work.join("t"))?);
    let alive = standing.run(&shell("echo alive")).is_ok_and(|ran| ran.stdout == b"alive\n");
    let owned = standing.owned;
    standing.sandbox.destroy();
    let gone = owned.remove();
    Ok(open_if(!alive || gone.is_err(), format!("{removed:?}, alive: {alive}, the sandbox's directory: {gone:?}")))
}

/// A file that grows and shrinks while it is read ends all the same.
fn replace_while_reading(outside: &Outside<'_>) -> Came {
    let work = outside.place()?.join("ws");
    let mut standing = outside.stand(&work, Ground::Rw)?;
    standing.run(&shell(
        "head -c 3000000 /dev/zero > f; (for i in {1..400}; do : > f; head -c 3000000 /dev/zero > f; done) > /dev/null 2>&1 &",
    ))?;
    let mut lengths = Vec::new();
    for _ in 0..10 {
        let mut bytes = Vec::new();
        let _ = standing.sandbox.read_file(&safe(&work.join("f"))?, &mut bytes);
        lengths.push(bytes.len());
    }
    let alive = standing.run(&shell("echo alive"))?.stdout == b"alive\n";
    Ok(open_if(!alive || lengths.iter().any(|l| *l > 3_000_000), format!("{lengths:?}, alive: {alive}")))
}
