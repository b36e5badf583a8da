//! Packs that somebody tampered with: each is refused with the reason, and nothing of it reaches the disk.

use std::path::Path;

use super::{ECHO, keygen, on_disk, pack, sign, tell};
use crate::wall::{Ground, Who};

/// A signed pack `demo` in the workspace, and its publisher trusted.
fn stage() -> Ground {
    let ground = Ground::new(Who::Ordinary);
    pack(&ground, "demo", "1.0.0", ECHO);
    ground.file("demo/README.md", "words\n");
    keygen(&ground, "acme");
    assert_eq!(sign(&ground, "demo", "acme.key", &["--archive", "demo.tar.zst"]).code, Some(0));
    assert_eq!(tell(&ground, &["trust", "add", "acme", "acme.key.pub"]).code, Some(0));
    ground
}

fn refused(ground: &Ground, path: &str, words: &str) {
    for verb in [&["pack", "install", path, "--yes"][..], &["pack", "install", path, "--yes", "--unsigned"]] {
        let outcome = tell(ground, verb);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(125), ""), "{path}: {outcome:?}");
        assert!(outcome.stderr.contains(words), "{words:?} is not in {:?}", outcome.stderr);
        assert_eq!(on_disk(ground), Vec::<String>::new(), "{path}");
    }
}

#[test]
fn a_directory_that_is_not_as_it_was_signed() {
    let ground = stage();
    let copy = |name: &str| ground.host(&format!("cp -r demo {name}"));
    copy("changed");
    ground.file("changed/capabilities/demo.echo.toml", &ECHO.replace("Say something.", "Say anything."));
    refused(&ground, "changed", "`capabilities/demo.echo.toml` is not as it was signed");
    copy("added");
    ground.file("added/LICENSE", "hello");
    refused(&ground, "added", "`LICENSE` was added after signing");
    copy("removed");
    ground.host("rm removed/README.md");
    refused(&ground, "removed", "`README.md` was signed and is missing");
    copy("renamed");
    ground.host("mv renamed/capabilities/demo.echo.toml renamed/capabilities/demo.tell.toml");
    refused(&ground, "renamed", "demo.echo.toml");
    copy("linked");
    ground.host("ln -sf /etc/passwd linked/README.md");
    refused(&ground, "linked", "symbolic link");
    copy("pipe");
    ground.host("rm pipe/README.md && mkfifo pipe/README.md");
    refused(&ground, "pipe", "a pipe");
    copy("twins");
    ground.host("cp twins/capabilities/demo.echo.toml twins/capabilities/DEMO.echo.toml");
    refused(&ground, "twins", "differ only in case");
    copy("program");
    ground.host("mkdir program/bin && cp /bin/true program/bin/x");
    refused(&ground, "program", "no place in a pack");
    // The signature of another pack, and one of an older version.
    pack(&ground, "newer", "2.0.0", ECHO);
    ground.host("cp demo/signature.json newer/");
    refused(&ground, "newer", "not as it was signed");
    // A signature whose key is another than it says.
    copy("forged");
    let signature = ground.read("forged/signature.json");
    let at = signature.find("\"sig\": \"").expect("a signature") + 10;
    let other = if signature.as_bytes()[at] == b'A' { "B" } else { "A" };
    ground.file("forged/signature.json", &format!("{}{other}{}", &signature[..at], &signature[at + 1..]));
    refused(&ground, "forged", "signature");
}

#[test]
fn an_archive_that_leads_out_or_is_a_bomb() {
    let ground = stage();
    let make = |name: &str, script: &str| {
        let program = format!(
            "import io, sys, tarfile\nout = tarfile.open(fileobj=sys.stdout.buffer, mode='w|', format=tarfile.USTAR_FORMAT)\n\
             def add(name, data=b'', kind=tarfile.REGTYPE, link=''):\n  info = tarfile.TarInfo(name)\n  info.size, info.type, info.linkname = len(data), kind, link\n  out.addfile(info, io.BytesIO(data))\n\
             {script}\nout.close()\n"
        );
        ground.file("make.py", &program);
        ground.host(&format!("python3 make.py > {name}.tar"));
        zstd_of(&ground, name);
    };
    make("up", "add('../escaped.toml', b'x')");
    refused(&ground, "up.tar.zst", "`..`");
    make("root", "add('/tmp/stockade-escaped', b'x')");
    refused(&ground, "root.tar.zst", "absolute path");
    make("link", "add('pack.toml', kind=tarfile.SYMTYPE, link='/etc/passwd')");
    refused(&ground, "link.tar.zst", "symbolic link");
    make("hard", "add('pack.toml', kind=tarfile.LNKTYPE, link='/etc/passwd')");
    refused(&ground, "hard.tar.zst", "hard link");
    make("device", "add('pack.toml', kind=tarfile.CHRTYPE)");
    refused(&ground, "device.tar.zst", "device");
    make("twins", "add('policy/a.cedar'); add('policy/A.cedar')");
    refused(&ground, "twins.tar.zst", "differ only in case");
    make("twice", "add('pack.toml', b'a'); add('pack.toml', b'b')");
    refused(&ground, "twice.tar.zst", "twice");
    make("bomb", "for n in range(64): add(f'policy/{n}.cedar', bytes(1 << 20))");
    refused(&ground, "bomb.tar.zst", "bytes together");
    assert!(std::fs::metadata(ground.work.join("bomb.tar.zst")).expect("a file").len() < 1 << 20, "it is small");
    ground.file("cut.tar.zst", "not an archive");
    refused(&ground, "cut.tar.zst", "cannot be read");
    assert!(!Path::new("/tmp/stockade-escaped").exists() && !ground.base.join("escaped.toml").exists());
}

/// Compresses NAME.tar to NAME.tar.zst, as this user.
fn zstd_of(ground: &Ground, name: &str) {
    let tar = std::fs::read(ground.work.join(format!("{name}.tar"))).expect("an archive");
    let path = ground.work.join(format!("{name}.tar.zst"));
    std::fs::write(&path, zstd::stream::encode_all(tar.as_slice(), 3).expect("compressed")).expect("written");
    ground.own(&path);
}

#[test]
fn ten_gigabytes_in_a_small_file() {
    let ground = stage();
    let path = ground.work.join("huge.tar.zst");
    // A directory that claims ten gigabytes of contents, and they do come.
    let header = ground.host("python3 -c \"import tarfile,sys; i=tarfile.TarInfo('policy'); i.type=tarfile.DIRTYPE; i.size=10<<30; sys.stdout.buffer.write(i.tobuf(tarfile.GNU_FORMAT))\" | base64 -w0");
    let header = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, header.trim()).expect("base64");
    let pressed = |bytes: &[u8]| zstd::stream::encode_all(bytes, 3).expect("compressed");
    let piece = pressed(&vec![1; 64 << 20]);
    std::fs::write(&path, [pressed(&header), piece.repeat(160)].concat()).expect("written");
    ground.own(&path);
    assert!(std::fs::metadata(&path).expect("a file").len() < 8 << 20, "it is small");
    refused(&ground, "huge.tar.zst", "more than a pack may");
}

#[test]
fn what_is_installed_is_verified_at_every_load() {
    let ground = stage();
    assert_eq!(tell(&ground, &["pack", "install", "demo.tar.zst", "--yes"]).code, Some(0));
    let run = || tell(&ground, &["cap", "run", "demo.echo", "-i", "word=x"]);
    assert_eq!(run().stdout, "x\n");
    let file = ground.state.join("stockade/packs/demo/files/capabilities/demo.echo.toml");
    ground.plant(&file, &ECHO.replace("program = \"echo\"", "program = \"rm\""), 0o600);
    let refused = run();
    assert!(refused.code == Some(125) && refused.stderr.contains("not as it was signed"), "{refused:?}");
    ground.plant(&file, ECHO, 0o600);
    assert_eq!(run().stdout, "x\n");
}
