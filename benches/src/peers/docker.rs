//! Docker: a daemon of our own with its own data and socket, an image made of the small root, and one container that stays for `docker exec`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::install::{Source, Store};
use super::{oci, words};
use crate::{machine, say, spawn};

/// The package.
pub(crate) const SOURCE: Source = Source::Debian { package: "docker.io", program: "/usr/sbin/dockerd", also: &["busybox-static"] };
/// What `docker run` does not do in this profile.
pub(crate) const LACKS: &str = "its own small root instead of the host's tools; root inside is root outside; no Landlock, no limits \
                                unless asked, no diff of the project; needs a daemon of root, which is not counted";
/// The image and the container that stays.
const NAME: &str = "stockade-bench";
/// How long the daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running daemon. Dropping ends it and what it started.
pub(crate) struct Docker {
    daemon: Child,
    socket: PathBuf,
}

impl Docker {
    /// Starts the daemon, imports the image, starts the container.
    pub(crate) fn start(store: &Store, ground: &Path) -> Result<Self, String> {
        let dockerd = store.bring(&SOURCE)?;
        store.need("busybox-static", "/bin/busybox")?;
        if !machine::is_root() {
            return Err("needs a daemon that root starts".into());
        }
        say("starting a docker daemon of our own");
        oci::make_bundle(ground)?;
        let base = ground.join("docker");
        std::fs::create_dir_all(&base).map_err(|e| e.to_string())?;
        let socket = base.join("socket");
        let host = OsString::from(format!("unix://{}", socket.display()));
        let log = std::fs::File::create(base.join("log")).map_err(|e| e.to_string())?;
        let daemon = spawn::bound_to_us(&dockerd)
            .args(words("--bridge=none --iptables=false --ip6tables=false --log-level=error --data-root"))
            .arg(base.join("data"))
            .arg("--exec-root")
            .arg(base.join("exec"))
            .arg("--pidfile")
            .arg(base.join("pid"))
            .arg("--host")
            .arg(host)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|e| e.to_string())?;
        let mut docker = Self { daemon, socket };
        docker.wait(&base.join("log"))?;
        docker.import(ground)?;
        let stays = "run --detach --name stockade-bench --network none --read-only stockade-bench /bin/busybox sleep 100000";
        docker.ask(&words(stays))?;
        Ok(docker)
    }

    /// A container from start to end.
    pub(crate) fn run_argv(&self) -> Vec<OsString> {
        self.argv("run --rm --network none --read-only --tmpfs /tmp stockade-bench /bin/true")
    }

    /// A program in the container that stays.
    pub(crate) fn exec_argv(&self) -> Vec<OsString> {
        self.argv("exec stockade-bench /bin/true")
    }

    fn argv(&self, text: &str) -> Vec<OsString> {
        let host = format!("unix://{}", self.socket.display());
        ["docker".into(), "--host".into(), host.into()].into_iter().chain(words(text)).collect()
    }

    fn ask(&self, arguments: &[OsString]) -> Result<String, String> {
        let argv = self.argv("");
        let (program, host) = argv.split_first().ok_or("no command")?;
        spawn::output(Command::new(program).args(host).args(arguments))
    }

    fn wait(&mut self, log: &Path) -> Result<(), String> {
        let begin = Instant::now();
        while self.ask(&words("version")).is_err() {
            if self.daemon.try_wait().map_err(|e| e.to_string())?.is_some() || begin.elapsed() > PATIENCE {
                let text = std::fs::read_to_string(log).unwrap_or_default();
                return Err(format!("the daemon did not start: {}", text.lines().last().unwrap_or("it says nothing")));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    fn import(&self, ground: &Path) -> Result<(), String> {
        let tar = ground.join("root.tar");
        spawn::output(Command::new("tar").arg("--create").arg("--file").arg(&tar).arg("--directory").arg(oci::root(ground)).arg("."))?;
        self.ask(&["import".into(), tar.into(), NAME.into()]).map(drop)
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        let _ = self.ask(&words("rm --force stockade-bench"));
        // A daemon that is asked to end unmounts and ends its containerd; one that is killed leaves both behind.
        if let Some(pid) = rustix::process::Pid::from_raw(self.daemon.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let begin = Instant::now();
        while matches!(self.daemon.try_wait(), Ok(None)) {
            if begin.elapsed() > PATIENCE {
                let _ = self.daemon.kill();
                let _ = self.daemon.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
