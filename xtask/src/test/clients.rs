//! The Python packages that tests of egress and credentials use as clients and servers: exactly the files that lists name by their digests, in directories
//! outside the clone that the next run finds again.
//!
//! A list lies beside its tests. Its copy in the directory is written last, so one that is there says that all of it is.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;

/// The lists, in the clone, and where what each names is; the tests know it too, and ordinary users can read it.
const LISTS: [(&str, &str); 3] = [
    ("crates/stockade/tests/all/egress/programs/requirements.txt", "/var/cache/stockade-test/python"),
    ("crates/stockade/tests/all/credentials/requirements.txt", "/var/cache/stockade-test/python-credentials"),
    ("crates/stockade/tests/all/aws/requirements.txt", "/var/cache/stockade-test/python-aws"),
];
/// Its copy, in the directory.
const COPY: &str = "requirements.txt";
/// The tests' own, so that the packages are for the Python that they run.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Makes sure that they are there. Returns words that sum up.
pub(crate) fn ensure(workspace: &Workspace) -> Result<String, Failure> {
    let all = LISTS.iter().map(|(list, directory)| ensure_one(workspace, list, directory));
    all.collect::<Result<Vec<_>, _>>().map(|said| said.join(", "))
}

fn ensure_one(workspace: &Workspace, list: &str, place: &str) -> Result<String, Failure> {
    let list = workspace.root().join(list);
    let wanted = std::fs::read_to_string(&list).map_err(Failure::io("read", &list))?;
    let count = wanted.lines().filter(|line| line.contains("==")).count();
    let directory = Path::new(place);
    if std::fs::read_to_string(directory.join(COPY)).is_ok_and(|there| there == wanted) {
        return Ok(format!("{count} Python packages are there"));
    }
    let parent = directory.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(parent).map_err(Failure::io("create", parent))?;
    // Another run may be at it: each fills a directory of its own, and the last one stays.
    let new = PathBuf::from(format!("{place}.{}", std::process::id()));
    install(&list, &new)?;
    std::fs::write(new.join(COPY), &wanted).map_err(Failure::io("write", &new.join(COPY)))?;
    let old = PathBuf::from(format!("{place}.{}.old", std::process::id()));
    let _ = std::fs::rename(directory, &old);
    std::fs::rename(&new, directory).map_err(Failure::io("rename", &new))?;
    let _ = std::fs::remove_dir_all(&old);
    Ok(format!("installed {count} Python packages"))
}

/// Nothing but the list decides what is installed, and nothing is built.
fn install(list: &Path, directory: &Path) -> Result<(), Failure> {
    let mut command = Command::new("python3");
    command.env("PATH", PATH).args(["-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]);
    command.args(["--no-deps", "--only-binary", ":all:", "--require-hashes", "--target"]).arg(directory).arg("-r").arg(list);
    process::run(&mut command)
}
