//! The way out: egress on loopback against a direct connection, and against mitmproxy doing the same.

use std::path::Path;
use std::time::Duration;

use super::{Course, Measure, absent, memory, p50};
use crate::contest::{Contestant, contest};
use crate::failure::Failure;
use crate::load::Condition;
use crate::peers::mitmproxy::{self, Mitmproxy};
use crate::results::{Extent, Row, Section, Table, Unit, Verdict};
use crate::statistics::Summary;
use crate::traffic::client::{Client, Way};
use crate::traffic::{INSIDE, Listening, OUTSIDE, Opened, PLACEHOLDER, VALUE};

const DIRECT: &str = "direct TLS";
const INSPECT: &str = "stockade, opened and swapped";
const PASS: &str = "stockade, passed unopened";
const MITMPROXY: &str = "mitmproxy, the same swap";
/// How many connections ask at once.
const CONNECTIONS: usize = 16;
/// How many stand idle.
const IDLE: usize = 1000;
/// Requests in one turn of a contestant that answers one after the other.
const TURN: usize = 50;
/// How often mitmproxy is asked where the others are asked a tenth as long.
const SLOWER: usize = 10;

const ABOUT: &str = "A client, a proxy and a TLS server, three processes on loopback, HTTP/1.1 over connections that are kept alive. Every request \
carries a placeholder in `Authorization`; the proxy puts the key in and the server answers only to that. Egress checks host, address, name and \
limits, makes an event of each request and searches every answer for the key; mitmproxy runs a script that swaps the header \
([swap.py](swap.py)). First all at once over 16 connections, then one after the other over one, then a gibibyte. Idle only.";

/// Takes the measure.
pub(super) fn take(course: &Course<'_>) -> Result<(Section, Vec<Verdict>), Failure> {
    let mut section = Measure::Egress.section(ABOUT);
    let directory = course.ground.path().join("egress");
    std::fs::create_dir_all(&directory).map_err(Failure::io("make", &directory))?;
    let scene = Scene::set(course, &directory);
    let mut verdicts = Vec::new();
    match &scene {
        Ok(scene) => {
            let rates = rates(course, scene)?;
            let faster = rates.ratio(INSPECT, p50).map(|r| 1.0 / r);
            verdicts.push(Verdict::at_least("requests through egress, opened and swapped, against mitmproxy, rate at p50", 20.0, faster));
            let latencies = latencies(course, scene);
            let added = latencies.summary(INSPECT).zip(latencies.summary(DIRECT)).map(|(ours, direct)| ours.p50 - direct.p50);
            verdicts.push(Verdict::figure_at_most("latency that egress adds to a request, p50", 150.0, "µs", added));
            let downloads = downloads(course, scene)?;
            for (name, way, bound) in [("opened", INSPECT, 0.5), ("passed", PASS, 0.85)] {
                let rate = downloads.ratio(way, p50).map(|r| 1.0 / r);
                verdicts.push(Verdict::at_least(format!("1 GiB through egress, {name}, against direct TLS, rate at p50"), bound, rate));
            }
            section.tables.extend([rates, latencies, downloads]);
            let idle = idle(course, scene, &directory);
            let megabytes = idle.summary(INSPECT).map(|s| s.p50 / 1000.0);
            verdicts.push(Verdict::figure_at_most("memory of egress with 1,000 idle connections, PSS", 100.0, "MB", megabytes));
            section.tables.push(idle);
            if let Err(message) = &scene.mitmproxy {
                section.notes.push(format!("mitmproxy: {message}."));
            }
            section.notes.push(format!("mitmproxy {}, `mitmdump --scripts swap.py`.", mitmproxy::SOURCE.version()));
        }
        Err(message) => section.notes.push(format!("Not measured: {message}.")),
    }
    Ok((section, verdicts))
}

/// Everything that listens.
struct Scene {
    server: Listening,
    inspect: Listening,
    pass: Listening,
    mitmproxy: Result<Mitmproxy, String>,
    directory: std::path::PathBuf,
}

impl Scene {
    fn set(course: &Course<'_>, directory: &Path) -> Result<Self, String> {
        let server = Listening::server(directory)?;
        let inspect = Listening::egress(directory, server.port, Opened::Inspect)?;
        let pass = Listening::egress(directory, server.port, Opened::Pass)?;
        let mitmproxy = Mitmproxy::start(&course.store, &course.repository, directory);
        Ok(Self { server, inspect, pass, mitmproxy, directory: directory.to_owned() })
    }

    /// A contestant's way to the server.
    fn way(&self, name: &str) -> Result<Way, String> {
        let (proxy, authority, key) = match name {
            INSPECT => (Some(self.inspect.port), self.directory.join(INSIDE), PLACEHOLDER),
            PASS => (Some(self.pass.port), self.directory.join(OUTSIDE), VALUE),
            MITMPROXY => {
                let running = self.mitmproxy.as_ref().map_err(Clone::clone)?;
                (Some(running.listening.port), running.authority.clone(), PLACEHOLDER)
            }
            _ => (None, self.directory.join(OUTSIDE), VALUE),
        };
        Ok(Way { server: self.server.port, proxy, authority, key })
    }

    fn client(&self, name: &str, connections: usize) -> Result<Client, String> {
        Client::open(self.way(name)?, connections)
    }

    /// A contestant that does something with a client of its own.
    fn contestant<'a>(
        &self,
        name: &'static str,
        connections: usize,
        mut act: impl FnMut(&mut Client) -> Result<Duration, String> + 'a,
    ) -> Contestant<'a> {
        match self.client(name, connections) {
            Ok(mut client) => Contestant::new(name, move || act(&mut client)),
            Err(message) => absent(name, message),
        }
    }
}

/// Requests at once.
fn rates(course: &Course<'_>, scene: &Scene) -> Result<Table, Failure> {
    let requests = if course.extent == Extent::Full { 20_000 } else { 1000 };
    let mut contestants = Vec::new();
    for (name, requests) in [(MITMPROXY, requests / SLOWER), (INSPECT, requests), (PASS, requests), (DIRECT, requests)] {
        // Milliseconds for a thousand are microseconds for one.
        let scale = 1000.0 / requests as f64;
        contestants.push(scene.contestant(name, CONNECTIONS, move |client| client.load(requests).map(|time| time.mul_f64(scale))));
    }
    let rows = contest(contestants, course.few, Condition::Idle)?;
    let title = format!("{CONNECTIONS} connections at once");
    Ok(Table { title, unit: Unit::MicrosecondsPerRequest, reference: Some(MITMPROXY.into()), rows })
}

/// Requests one after the other; contestants take turns.
fn latencies(course: &Course<'_>, scene: &Scene) -> Table {
    let names = [DIRECT, INSPECT, PASS, MITMPROXY];
    let mut clients: Vec<Result<Client, String>> = names.iter().map(|name| scene.client(name, 1)).collect();
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); names.len()];
    for round in 0..course.rounds.warm + course.rounds.fast {
        for (client, samples) in clients.iter_mut().zip(&mut samples) {
            let Ok(asking) = client else { continue };
            match asking.each(TURN) {
                Ok(times) if round >= course.rounds.warm => samples.extend(times.iter().map(|time| time.as_secs_f64() * 1e6)),
                Ok(_) => {}
                Err(message) => *client = Err(message),
            }
        }
    }
    let row = |((name, client), samples): ((&&str, Result<Client, String>), Vec<f64>)| {
        Row::new(*name, client.and_then(|_| Summary::of(&samples).ok_or_else(|| "was never run".into())))
    };
    let rows = names.iter().zip(clients).zip(samples).map(row).collect();
    Table { title: "one after the other".into(), unit: Unit::Microseconds, reference: Some(DIRECT.into()), rows }
}

/// A gibibyte.
fn downloads(course: &Course<'_>, scene: &Scene) -> Result<Table, Failure> {
    let bytes: u64 = if course.extent == Extent::Full { 1 << 30 } else { 1 << 26 };
    let mut contestants = Vec::new();
    for (name, bytes) in [(DIRECT, bytes), (INSPECT, bytes), (PASS, bytes), (MITMPROXY, bytes / SLOWER as u64)] {
        let scale = (1u64 << 30) as f64 / bytes as f64;
        contestants.push(scene.contestant(name, 1, move |client| client.fetch(bytes).map(|time| time.mul_f64(scale))));
    }
    let rows = contest(contestants, course.few, Condition::Idle)?;
    Ok(Table { title: "1 GiB".into(), unit: Unit::MillisecondsPerGibibyte, reference: Some(DIRECT.into()), rows })
}

/// Memory of a fresh egress with many connections that each asked once.
fn idle(course: &Course<'_>, scene: &Scene, directory: &Path) -> Table {
    let count = if course.extent == Extent::Full { IDLE } else { IDLE / 10 };
    let held = Listening::egress(directory, scene.server.port, Opened::Inspect).and_then(|egress| {
        let way = Way { proxy: Some(egress.port), ..scene.way(INSPECT)? };
        let _open = Client::open(way, count)?;
        Ok(vec![memory::part(egress.id())?.kilobytes])
    });
    let summary = held.and_then(|samples| Summary::of(&samples).ok_or_else(|| "nothing was found".into()));
    let title = format!("memory with {count} idle connections");
    Table { title, unit: Unit::Kilobytes, reference: None, rows: vec![Row::new(INSPECT, summary)] }
}
