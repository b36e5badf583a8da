//! The measures, one file each, and what they all need: the ground, the peers, how often.

mod agents;
mod build;
mod cold;
mod created;
mod credentials;
mod decisions;
mod egress;
mod exec;
mod files;
mod fresh;
mod gateway;
mod inside;
mod memory;
mod projects;
mod receipts;
mod throughput;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::arguments::{Arguments, Install};
use crate::contest::{Contestant, Rounds};
use crate::failure::Failure;
use crate::floor;
use crate::ground::{Corner, Ground};
use crate::load::Condition;
use crate::machine;
use crate::peers::docker::{self, Docker};
use crate::peers::install::Store;
use crate::peers::{self, Peer};
use crate::results::{Extent, PeerNote, Section, Verdict};
use crate::spawn;
use crate::statistics::Summary;

/// Something that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    /// A whole `stockade run` and its peers.
    Cold,
    /// A jail through the library, with one program in it.
    Fresh,
    /// One more program in a sandbox that stands.
    Exec,
    /// Standard output.
    Throughput,
    /// What an idle sandbox holds.
    Memory,
    /// Files in and out.
    Files,
    /// Builds.
    Build,
    /// The way out.
    Egress,
    /// Whole agents.
    Agents,
    /// Rules and packs.
    Decisions,
    /// Receipts.
    Receipts,
    /// Calls of agents.
    Gateway,
    /// Credentials.
    Credentials,
}

impl Measure {
    /// All, in the order of the page.
    pub(crate) const ALL: [Self; 13] = [
        Self::Cold,
        Self::Fresh,
        Self::Exec,
        Self::Throughput,
        Self::Memory,
        Self::Files,
        Self::Build,
        Self::Egress,
        Self::Agents,
        Self::Decisions,
        Self::Receipts,
        Self::Gateway,
        Self::Credentials,
    ];

    /// The measure of a name.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|m| m.name() == name)
    }

    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Fresh => "fresh",
            Self::Exec => "exec",
            Self::Throughput => "throughput",
            Self::Memory => "memory",
            Self::Files => "files",
            Self::Build => "build",
            Self::Egress => "egress",
            Self::Agents => "agents",
            Self::Decisions => "decisions",
            Self::Receipts => "receipts",
            Self::Gateway => "gateway",
            Self::Credentials => "credentials",
        }
    }

    /// Its heading.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Cold => "A command from nothing to its end",
            Self::Fresh => "A fresh jail from the library",
            Self::Exec => "One more program in a sandbox that stands",
            Self::Throughput => "A gibibyte of output",
            Self::Memory => "Memory of an idle sandbox",
            Self::Files => "100 MB in and out",
            Self::Build => "Work inside and outside",
            Self::Egress => "The way out",
            Self::Agents => "A whole agent",
            Self::Decisions => "Deciding",
            Self::Receipts => "Receipts",
            Self::Gateway => "An agent's call",
            Self::Credentials => "A credential for a call",
        }
    }

    /// Takes it.
    pub(crate) fn take(self, course: &Course<'_>) -> Result<(Section, Vec<Verdict>), Failure> {
        match self {
            Self::Cold => cold::take(course),
            Self::Fresh => fresh::take(course),
            Self::Exec => exec::take(course),
            Self::Throughput => throughput::take(course),
            Self::Memory => Ok(memory::take(course)),
            Self::Files => files::take(course),
            Self::Build => build::take(course),
            Self::Egress => egress::take(course),
            Self::Agents => agents::take(course),
            Self::Decisions => decisions::take(course),
            Self::Receipts => receipts::take(course),
            Self::Gateway => gateway::take(course),
            Self::Credentials => credentials::take(course),
        }
    }

    fn section(self, about: impl Into<String>) -> Section {
        Section { name: self.name(), title: self.title(), about: about.into(), tables: Vec::new(), notes: Vec::new() }
    }
}

/// What measures need.
pub(crate) struct Course<'a> {
    /// Where it happens.
    pub(crate) ground: &'a Ground,
    /// The field, as far as a measure asks for it.
    pub(crate) peers: Vec<Peer>,
    /// Docker's daemon, or why there is none.
    pub(crate) docker: Result<Docker, String>,
    /// The program that does the least a jail needs, or why there is none.
    pub(crate) floor: Result<PathBuf, String>,
    /// How often contestants of a few milliseconds run.
    pub(crate) rounds: Rounds,
    /// How often contestants of a second run.
    pub(crate) few: Rounds,
    /// How thorough.
    pub(crate) extent: Extent,
    /// Where peers are brought in from.
    pub(crate) store: Store,
    /// The repository.
    pub(crate) repository: PathBuf,
}

impl<'a> Course<'a> {
    /// Brings the peers in where the field is measured.
    pub(crate) fn prepare(arguments: &Arguments, ground: &'a Ground) -> Self {
        let is_field = arguments.measures.contains(&Measure::Cold);
        let install = if arguments.extent == Extent::Quick { Install::Nothing } else { arguments.install };
        let store = Store::new(install);
        let peers = if is_field { peers::gather(&store, ground.path()) } else { Vec::new() };
        let docker = match (is_field, arguments.extent) {
            (false, _) => Err("is no part of these measures".to_owned()),
            (true, Extent::Quick) => Err("is left out of a quick run".to_owned()),
            (true, Extent::Full) => Docker::start(&store, ground.path()),
        };
        let floor = floor::build(&arguments.repository, ground.path());
        Self {
            ground,
            peers,
            docker,
            floor,
            rounds: arguments.rounds(),
            few: arguments.few_rounds(),
            extent: arguments.extent,
            store,
            repository: arguments.repository.clone(),
        }
    }

    /// Who took part, for the page.
    pub(crate) fn notes(&self) -> Vec<PeerNote> {
        let command = |argv: &[OsString]| {
            let ground = self.ground.path().display().to_string();
            let text: Vec<String> = argv.iter().map(|w| w.to_string_lossy().replace(&ground, "…")).collect();
            text.join(" ")
        };
        let mut notes: Vec<PeerNote> = self
            .peers
            .iter()
            .map(|peer| {
                let name = peer.program.as_ref().ok().and_then(|p| p.file_name()).map_or_else(|| peer.recipe.name.into(), OsString::from);
                let argv = peer.argv(std::path::Path::new(&name), self.ground.path());
                PeerNote {
                    name: peer.recipe.name.into(),
                    version: peer.version.clone(),
                    command: command(&argv),
                    lacks: peer.recipe.lacks.into(),
                }
            })
            .collect();
        if let Ok(daemon) = &self.docker {
            let version = docker::SOURCE.version();
            for (name, argv) in [("docker run", daemon.run_argv()), ("docker exec", daemon.exec_argv())] {
                let lacks = docker::LACKS.to_owned();
                notes.push(PeerNote { name: name.into(), version: version.clone(), command: command(&argv), lacks });
            }
        }
        notes
    }
}

/// The section whose first table is the field.
pub(crate) const FIELD: &str = "cold";

/// A command as a contestant.
fn command<'a>(name: &str, corner: &Corner, argv: &[OsString]) -> Contestant<'a> {
    let mut command = corner.command(argv);
    Contestant::new(name, move || spawn::timed(&mut command))
}

/// One that cannot take part, and why.
fn absent<'a>(name: &str, message: impl Into<String>) -> Contestant<'a> {
    let message = message.into();
    Contestant::new(name, move || Err::<Duration, _>(message.clone()))
}

/// The kernel's floor as a contestant.
fn at_the_floor<'a>(course: &Course<'_>, corner: &Corner) -> Contestant<'a> {
    match &course.floor {
        Ok(program) => command(floor::FLOOR, corner, &[program.clone().into(), "/bin/true".into()]).in_every_round(),
        Err(message) => absent(floor::FLOOR, message.as_str()),
    }
}

/// Both conditions.
const CONDITIONS: [Condition; 2] = [Condition::Idle, Condition::Busy];

/// The rank that most promises are about.
fn p50(summary: &Summary) -> f64 {
    summary.p50
}

/// The rank that promises about a busy machine are about.
fn p95(summary: &Summary) -> f64 {
    summary.p95
}

/// Who stands in a table's title.
fn who(user: bool) -> &'static str {
    match (user, machine::is_root()) {
        (true, _) => "as an ordinary user (uid 65534)",
        (false, true) => "as root",
        (false, false) => "as the user who ran this",
    }
}
