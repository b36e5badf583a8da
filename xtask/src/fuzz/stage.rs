//! Where a fuzzer works: a directory that an ordinary user owns, with a copy of the program, what is known already, and room for what it finds.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;

/// The user that fuzzers run as when root starts them: nobody.
const NOBODY: u32 = 65_534;

/// The directory. Removed when dropped.
pub(crate) struct Stage {
    directory: PathBuf,
    /// `fuzz/` of the repository.
    home: PathBuf,
    is_root: bool,
}

/// What one target has there.
pub(crate) struct Place {
    /// The fuzzer.
    pub(crate) program: PathBuf,
    /// Inputs that are worth keeping.
    pub(crate) corpus: PathBuf,
    /// Inputs that once broke something.
    pub(crate) regressions: PathBuf,
    /// Inputs that do.
    pub(crate) artifacts: PathBuf,
}

impl Stage {
    /// Makes it; `home` is `fuzz/` of the repository.
    pub(crate) fn new(home: &Path) -> Result<Self, Failure> {
        let own = Path::new("/proc/self");
        let is_root = own.metadata().map_err(Failure::io("read", own))?.uid() == 0;
        let directory = std::env::temp_dir().join(format!("stockade-fuzz-{}", std::process::id()));
        std::fs::create_dir(&directory).map_err(Failure::io("create", &directory))?;
        let stage = Self { directory, home: home.to_path_buf(), is_root };
        reach(&stage.directory)?;
        Ok(stage)
    }

    /// Where the seeds are to be written, a directory per target.
    pub(crate) fn seeds(&self) -> PathBuf {
        self.directory.join("seeds")
    }

    /// Copies what the target needs.
    pub(crate) fn prepare(&self, target: &str, program: &Path) -> Result<Place, Failure> {
        let base = self.directory.join(target);
        let place = Place {
            program: base.join("fuzzer"),
            corpus: base.join("corpus"),
            regressions: base.join("regressions"),
            artifacts: base.join("artifacts"),
        };
        for directory in [&base, &place.corpus, &place.regressions, &place.artifacts] {
            std::fs::create_dir(directory).map_err(Failure::io("create", directory))?;
        }
        std::fs::copy(program, &place.program).map_err(Failure::io("copy", program))?;
        reach(&place.program)?;
        copy_files(&self.home.join("regressions").join(target), &place.regressions)?;
        copy_files(&self.home.join("corpus").join(target), &place.corpus)?;
        copy_files(&self.seeds().join(target), &place.corpus)?;
        if self.is_root {
            for directory in [&base, &place.corpus, &place.regressions, &place.artifacts] {
                own(directory)?;
                for file in files(directory)? {
                    own(&file)?;
                }
            }
        }
        Ok(place)
    }

    /// The fuzzer with the lowest priority and, where that is needed, as nobody.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("nice");
        command.args(["-n", "19"]).current_dir(&self.directory);
        if self.is_root {
            let user = NOBODY.to_string();
            command.args(["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"]);
        }
        command.arg(program);
        command
    }

    /// Takes what was found back to the repository; says how many inputs broke something.
    pub(crate) fn take_back(&self, target: &str, place: &Place) -> Result<usize, Failure> {
        for (from, name) in [(&place.corpus, "corpus"), (&place.artifacts, "artifacts")] {
            let to = self.home.join(name).join(target);
            std::fs::create_dir_all(&to).map_err(Failure::io("create", &to))?;
            copy_files(from, &to)?;
        }
        Ok(files(&place.artifacts)?.len())
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.directory) {
            eprintln!("cannot remove `{}`: {error}", self.directory.display());
        }
    }
}

fn files(directory: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = std::fs::read_dir(directory).map_err(Failure::io("read", directory))?;
    Ok(entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect())
}

/// Copies the files of a directory, if it is there.
fn copy_files(from: &Path, to: &Path) -> Result<(), Failure> {
    if !from.is_dir() {
        return Ok(());
    }
    for file in files(from)? {
        let name = file.file_name().unwrap_or_default();
        std::fs::copy(&file, to.join(name)).map_err(Failure::io("copy", &file))?;
    }
    Ok(())
}

fn own(path: &Path) -> Result<(), Failure> {
    chown(path, Some(NOBODY), Some(NOBODY)).map_err(Failure::io("give away", path))
}

fn reach(path: &Path) -> Result<(), Failure> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).map_err(Failure::io("change the mode of", path))
}
