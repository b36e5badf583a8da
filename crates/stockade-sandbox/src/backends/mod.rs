//! Walls: what a backend must offer, and the ones there are.
//!
//! A backend is thin. It says what it can enforce, starts the guest program behind its wall, hands back a stream, and can
//! freeze or remove what it started. Everything that happens inside is the guest's work, written once.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use stockade_core::demand::{Demand, Enforcement};
use stockade_core::id::SandboxId;
use stockade_core::spec::{BackendKind, SandboxSpec};

use crate::connection::{Connection, ConnectionError};
use crate::drive::Watch;
use crate::guard::Guard;
use crate::limits::LimitError;
use crate::surroundings::{Obstacle, named};
use crate::wayout::WayOut;

pub mod jail;
pub mod local;

/// Why a sandbox did not start.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// A demand cannot be held here.
    #[error("{demand} cannot be enforced here: {why}")]
    Demand {
        /// Which.
        demand: Demand,
        /// Why not.
        why: String,
        /// What to do.
        fix: String,
    },
    /// The machine refuses what a jail is made of.
    #[error("{} cannot be enforced here: {}", named(.obstacle.demands()), .obstacle.why())]
    Obstacle {
        /// What is in the way.
        obstacle: Obstacle,
        /// The step that met it, and what the kernel said.
        met: String,
    },
    /// A step of the start failed.
    #[error("{detail}")]
    Step {
        /// Its name.
        step: String,
        /// What happened.
        detail: String,
        /// What to do; empty when nothing is known.
        fix: String,
    },
    /// The plan cannot be made.
    #[error(transparent)]
    Plan(#[from] jail::plan::PlanError),
    /// The stream to the guest broke.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// Limits cannot be set.
    #[error(transparent)]
    Limits(#[from] LimitError),
}

impl BackendError {
    /// The step that failed, for reports.
    pub fn step(&self) -> String {
        match self {
            Self::Demand { demand, .. } => format!("enforcing {demand}"),
            Self::Obstacle { met, .. } => met.clone(),
            Self::Step { step, .. } => step.clone(),
            Self::Plan(_) => "planning the jail".into(),
            Self::Connection(_) => "talking to the guest".into(),
            Self::Limits(_) => "limits".into(),
        }
    }

    /// What a person can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Demand { fix, .. } | Self::Step { fix, .. } => (!fix.is_empty()).then(|| fix.clone()),
            Self::Obstacle { obstacle, .. } => Some(obstacle.fix().to_owned()),
            Self::Plan(jail::plan::PlanError::Covers(_)) => Some("choose a directory of your own".into()),
            Self::Connection(_) | Self::Limits(_) | Self::Plan(_) => None,
        }
    }
}

/// What a backend needs to know besides the specification.
pub struct Start<'a> {
    /// What is wanted.
    pub spec: &'a SandboxSpec,
    /// Its id.
    pub id: &'a SandboxId,
    /// Its private directory on the host.
    pub directory: &'a Path,
    /// The person's home directory outside.
    pub home: &'a Path,
    /// Values of variables that name toolchain roots.
    pub toolchain_roots: &'a [OsString],
    /// Directories of ours that nothing inside may see.
    pub hidden: &'a [PathBuf],
    /// Protected paths of what may be written through.
    pub guard: &'a Guard,
    /// A private directory in which the guest program is kept between sandboxes (see [`crate::guest`]).
    pub programs: Option<&'a Path>,
    /// How programs inside reach their egress process; `None`: they have loopback and no route.
    pub way_out: Option<&'a WayOut>,
    /// Something that takes a while, may be done while the guest is busy, and need not be done by the time that it stands.
    pub meanwhile: Option<&'a dyn Fn()>,
}

/// A guest behind its wall.
pub trait Running: Send {
    /// The stream to the guest, and what watches over it while programs run.
    fn parts(&mut self) -> (&mut Connection, &mut dyn Watch);
    /// What holds.
    fn enforcement(&self) -> &Enforcement;
    /// How long each step of the start took, in microseconds.
    fn steps(&self) -> &[(String, u32)];
    /// What a person should know about how this sandbox was made, one line each.
    fn notes(&self) -> &[String];
    /// Variables that programs need to have because of how this sandbox was made; they replace what the specification says.
    fn environment(&self) -> &[(String, OsString)] {
        &[]
    }
    /// Stops or continues everything inside.
    fn freeze(&mut self, frozen: crate::limits::Frozen) -> Result<(), BackendError>;
    /// Hands out descriptors of directories that outlive the sandbox (an upper layer in memory), by name.
    fn take_exports(&mut self) -> Vec<(String, OwnedFd)>;
    /// Files of the kernel, open to read: as long as none of them says anything else, no limit was hit. None where there is more to look at.
    fn counters(&self) -> Vec<OwnedFd> {
        Vec::new()
    }
    /// The guest's process outside; its end is the sandbox's end.
    fn process(&self) -> &OwnedFd;
    /// Lets go of what was only needed for the start. A sandbox that soon ends need not.
    fn settle(&mut self) {}
    /// Kills everything inside. When it returns, nothing inside acts any more; it may still be on its way out.
    fn silence(&mut self);
    /// Ends it and removes what the wall made. Dropping does the same.
    fn destroy(self: Box<Self>);
}

/// A wall.
pub trait Backend {
    /// Which.
    fn kind(&self) -> BackendKind;
    /// Starts the guest.
    fn start(&self, start: &Start<'_>) -> Result<Box<dyn Running>, BackendError>;
}

/// Refuses a start when a demand is held worse than it must be.
pub fn judge(enforcement: &Enforcement, spec: &SandboxSpec) -> Result<(), BackendError> {
    for demand in Demand::ALL {
        let must = demand.is_isolation() || spec.limits.is_asked(demand);
        if must && enforcement.level(demand) != stockade_core::demand::Level::Enforced && !spec.allow_degraded.contains(&demand) {
            let answer = enforcement.0.get(&demand);
            return Err(BackendError::Demand {
                demand,
                why: answer.map_or_else(|| "the backend says nothing about it".into(), |a| a.how.clone()),
                fix: answer
                    .map(|a| a.fix.clone())
                    .filter(|f| !f.is_empty())
                    .unwrap_or_else(|| format!("--allow-degraded {demand} runs without it")),
            });
        }
    }
    Ok(())
}
