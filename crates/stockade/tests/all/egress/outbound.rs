//! What servers say by themselves, over HTTPS to a host by its name.

use std::process::{Child, Stdio};

use serde_json::json;

use super::{World, as_both};
use crate::approvals::ask_for;
use crate::outbound::{KEY, Receiver, keep_secret};
use crate::wall::ground::eventually;

/// A daemon where the names of the servers are known, until the value goes.
struct Daemon(Child);

impl Daemon {
    fn of(world: &World) -> Self {
        let base = world.base.to_str().expect("text").to_owned();
        let mut command = world.command([world.binary.to_str().expect("text"), "serve", "--root", &base]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("started");
        let daemon = Self(child);
        let socket = world.state.join("stockade/run/daemon.sock");
        eventually("the daemon is there", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
        daemon
    }

    /// Ends it; what it said.
    fn end(mut self) -> String {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("told");
        let mut said = String::new();
        let mut stderr = self.0.stderr.take().expect("a pipe");
        std::io::Read::read_to_string(&mut stderr, &mut said).expect("read");
        assert_eq!(self.0.wait().expect("waited").code(), Some(0), "{said}");
        said
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_webhook_goes_over_https_to_the_host_that_settings_name() {
    as_both(|world| {
        ask_for(&world.ground, "cat");
        let identity = [world.outside.join("server.pem"), world.outside.join("server.key")];
        let receiver = Receiver::with(&world.ground, 0, &identity);
        keep_secret(&world.ground, "HOOK", KEY);
        let settings = |hosts: &[String]| {
            let url = format!("https://api.test:{}/in", receiver.port);
            let text = json!({"approvals": {"webhook": {"url": url, "secret": "HOOK"}}, "sandbox": {"allowedHosts": hosts}});
            world.plant(&world.home.join(".config/stockade/settings.json"), &text.to_string(), 0o600);
        };
        // Its address is not public, and nobody granted that.
        settings(&[]);
        let daemon = Daemon::of(world);
        assert_eq!(world.stockade(&["run", "--", "cat", "one"]).code, Some(126));
        std::thread::sleep(std::time::Duration::from_secs(2));
        let said = daemon.end();
        assert!(said.contains("1 of `webhook` given up: the answer is 403") && receiver.got().is_empty(), "{said}");
        settings(&[format!("127.0.0.1:{}", receiver.port)]);
        let daemon = Daemon::of(world);
        assert_eq!(world.stockade(&["run", "--", "cat", "two"]).code, Some(126));
        let row = receiver.gets(1).remove(0);
        assert_eq!((&row["holds"], &row["headers"]["host"]), (&json!(true), &json!(format!("api.test:{}", receiver.port))), "{row}");
        assert_eq!((&row["path"], &row["body"]["data"]["title"]), (&json!("/in"), &json!("cat two")), "{row}");
        daemon.end();
        world.all_ended();
        assert_eq!(world.sandboxes(), Vec::<String>::new());
    });
}
