//! What programs inside see of credentials: variables, files, and the tool that they ask with. Pure but for `lay`, which writes the files.
//!
//! ```text
//!  given (name, placeholder, hosts, deliveries) ─▶ delivered ┬ environment, and what goes before PATH
//!                                                            ├ files, and places of the tool, beneath /run/stockade
//!                                                            └ desk: which of them the desk answers for, and how
//! ```
//!
//! No value is known here. Whatever is written holds a placeholder, the desk's address or the word that opens the desk, which is worth something only
//! inside this very sandbox.

mod docker;
mod git;
mod kubernetes;
mod lay;
mod packages;
mod ssh;
mod ssh_agent;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stockade_core::credential::Delivery;
use stockade_core::host::HostPattern;
use stockade_core::repository::RepositoryPattern;
use stockade_core::secret::SecretName;
use stockade_sandbox::wayout::PLACE;

use crate::failure::Failure;
pub(crate) use lay::lay_out;
pub(crate) use ssh_agent::{AgentKey, Logins};

/// Where the desk is, for the tool.
const DESK: &str = "STOCKADE_DESK";
/// The directory of the tool, and its names in there. The shim knows itself by them.
const TOOLS: &str = "bin";
const CREDENTIAL: &str = "stockade-credential";
/// What signs requests that are signed anew on the way out: forty characters, as the real ones have.
const MADE_UP_KEY: &str = "StockadeSignsThisRequestAnewOnItsWayOut0";

/// A credential as it is given to a sandbox.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    /// What it is called.
    pub(crate) name: SecretName,
    /// What stands for its value inside.
    pub(crate) placeholder: String,
    /// The hosts that it is bound to.
    pub(crate) hosts: Vec<HostPattern>,
    /// How it appears.
    pub(crate) deliveries: Vec<Delivery>,
    /// The user it belongs to, for git and docker.
    pub(crate) user: Option<String>,
    /// The cluster that it opens.
    pub(crate) kubernetes: Option<Cluster>,
    /// What Google's metadata server says of it.
    pub(crate) gcp: Option<Account>,
    /// Where, and as whom, it is logged in with over SSH.
    pub(crate) logins: Option<Logins>,
    /// What its key may be used for over SSH.
    pub(crate) ssh: Option<SshUse>,
}

/// A cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cluster {
    /// Its address: `https://HOST[:PORT]`.
    pub(crate) server: String,
    /// The namespace that is meant where none is named.
    pub(crate) namespace: Option<String>,
}

/// An account at Google.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) project: Option<String>,
    pub(crate) email: Option<String>,
    pub(crate) scopes: Vec<String>,
}

/// What a key may be used for over SSH.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SshUse {
    /// Who logs in.
    pub(crate) user: String,
    /// Keys that the hosts may have.
    pub(crate) host_keys: Vec<String>,
    /// Repositories that may be asked for.
    pub(crate) repositories: Vec<RepositoryPattern>,
    /// Whether they may be written to.
    pub(crate) push: bool,
}

/// What the desk answers as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(crate) enum DeskKind {
    /// Git's credential helper, for this user.
    Git { user: String },
    /// Docker's, for this user.
    Docker { user: String },
    /// kubectl's exec plugin.
    Kubernetes,
    /// AWS's container credentials endpoint.
    AwsEndpoint,
    /// Google's metadata server.
    GcpMetadata { project: Option<String>, email: Option<String>, scopes: Vec<String> },
    /// Git's `ssh`.
    Ssh(SshUse),
}

/// Everything that is needed inside.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Delivered {
    /// Variables, by name.
    pub(crate) environment: Vec<(String, OsString)>,
    /// Goes before everything else in `PATH`.
    pub(crate) path_prefix: Option<PathBuf>,
    /// Places inside and what is there, to be read.
    pub(crate) files: Vec<(PathBuf, Vec<u8>)>,
    /// Places inside at which the tool is.
    pub(crate) programs: Vec<PathBuf>,
    /// What the desk answers for: the position in what was given, and as what.
    pub(crate) desk: Vec<(usize, DeskKind)>,
    /// Where programs find the agent of SSH.
    pub(crate) agent: Option<PathBuf>,
    /// What the agent signs with.
    pub(crate) agent_keys: Vec<AgentKey>,
}

/// Where the sandbox's own proxy is, and what opens the desk there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counter<'a> {
    /// The port on loopback.
    pub(crate) proxy_port: u16,
    /// The word.
    pub(crate) token: &'a str,
}

/// Works out what is needed inside.
pub(crate) fn deliver(given: &[Given], counter: Counter<'_>) -> Result<Delivered, Failure> {
    let mut making = Making { counter, delivered: Delivered::default(), variables: BTreeMap::new(), git: git::Settings::default() };
    let mut kubeconfigs = Vec::new();
    for (at, one) in given.iter().enumerate() {
        for delivery in &one.deliveries {
            match delivery {
                Delivery::Variable => making.set(one, one.name.as_str(), one.placeholder.as_str())?,
                Delivery::Git => making.git(at, one)?,
                Delivery::Docker => making.docker(at, one)?,
                Delivery::Kubernetes => kubeconfigs.push(making.kubernetes(at, one)?),
                Delivery::AwsEndpoint => making.aws_endpoint(at, one)?,
                Delivery::AwsKeys => making.aws_keys(one)?,
                Delivery::GcpMetadata => making.gcp_metadata(at, one)?,
                Delivery::GcpToken => making.gcp_token(one)?,
                Delivery::Npm => making.npm(one)?,
                Delivery::Pip => making.pip(one)?,
                Delivery::Cargo => making.cargo(one)?,
                Delivery::Ssh => making.ssh(at, one)?,
                Delivery::SshAgent => making.ssh_agent(at, one)?,
            }
        }
    }
    making.done(&kubeconfigs)
}

/// What has been worked out so far.
struct Making<'a> {
    counter: Counter<'a>,
    delivered: Delivered,
    /// Each variable, and the secret that it is for.
    variables: BTreeMap<String, (OsString, SecretName)>,
    git: git::Settings,
}

impl Making<'_> {
    fn done(mut self, kubeconfigs: &[PathBuf]) -> Result<Delivered, Failure> {
        let mut environment: Vec<(String, OsString)> = self.variables.into_iter().map(|(name, (value, _))| (name, value)).collect();
        let mut add = |name: String, value: OsString| {
            if environment.iter().any(|(known, _)| *known == name) {
                let why = format!("the variable `{name}` is needed for something else than a secret of this name");
                return Err(Failure::new("secret", why));
            }
            environment.push((name, value));
            Ok(())
        };
        for (name, value) in self.git.variables() {
            add(name, value)?;
        }
        if !kubeconfigs.is_empty() {
            add("KUBECONFIG".into(), kubeconfigs.iter().map(|path| path.as_os_str()).collect::<Vec<_>>().join(OsStr::new(":")))?;
        }
        if !self.delivered.desk.is_empty() {
            let Counter { proxy_port, token } = self.counter;
            add(DESK.into(), format!("http://127.0.0.1:{proxy_port}/{token}").into())?;
        }
        environment.sort();
        self.delivered.environment = environment;
        Ok(self.delivered)
    }

    /// Sets a variable; two secrets cannot want one differently.
    fn set(&mut self, one: &Given, name: &str, value: impl Into<OsString>) -> Result<(), Failure> {
        let value = value.into();
        match self.variables.get(name) {
            Some((known, _)) if *known == value => Ok(()),
            Some((_, other)) if *other == one.name => Err(refused(one, &format!("two of its deliveries want the variable `{name}`"))),
            Some((_, other)) => {
                Err(refused(one, &format!("the secret `{other}` has the variable `{name}` already: one of a kind per sandbox")))
            }
            None => {
                self.variables.insert(name.to_owned(), (value, one.name.clone()));
                Ok(())
            }
        }
    }

    /// Puts the tool at a name; it may be there already.
    fn tool(&mut self, name: &str) -> PathBuf {
        let place = Path::new(PLACE).join(TOOLS).join(name);
        if !self.delivered.programs.contains(&place) {
            self.delivered.programs.push(place.clone());
        }
        place
    }

    fn aws_endpoint(&mut self, at: usize, one: &Given) -> Result<(), Failure> {
        let Counter { proxy_port, token } = self.counter;
        self.set(one, "AWS_CONTAINER_CREDENTIALS_FULL_URI", format!("http://127.0.0.1:{proxy_port}/aws/{}", one.name))?;
        // Keys in the environment would come first.
        if self.variables.contains_key("AWS_ACCESS_KEY_ID") {
            return Err(refused(one, "a sandbox has one AWS credential, and made-up keys would hide the endpoint"));
        }
        self.set(one, "AWS_CONTAINER_AUTHORIZATION_TOKEN", token)?;
        self.set(one, "AWS_EC2_METADATA_DISABLED", "true")?;
        self.delivered.desk.push((at, DeskKind::AwsEndpoint));
        Ok(())
    }

    fn aws_keys(&mut self, one: &Given) -> Result<(), Failure> {
        if self.variables.contains_key("AWS_CONTAINER_CREDENTIALS_FULL_URI") {
            return Err(refused(one, "a sandbox has one AWS credential, and made-up keys would hide the endpoint"));
        }
        self.set(one, "AWS_ACCESS_KEY_ID", one.placeholder.as_str())?;
        self.set(one, "AWS_SECRET_ACCESS_KEY", MADE_UP_KEY)?;
        self.set(one, "AWS_EC2_METADATA_DISABLED", "true")
    }

    fn gcp_metadata(&mut self, at: usize, one: &Given) -> Result<(), Failure> {
        if self.delivered.desk.iter().any(|(_, kind)| matches!(kind, DeskKind::GcpMetadata { .. })) {
            return Err(refused(one, "a sandbox has one metadata server, and another secret has it already"));
        }
        let server = format!("127.0.0.1:{}", self.counter.proxy_port);
        // The name, the address that libraries look whether it is there, and the old name, which `gcloud` knows.
        for name in ["GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT"] {
            self.set(one, name, server.as_str())?;
        }
        self.project(one)?;
        let Account { project, email, scopes } = one.gcp.clone().unwrap_or_default();
        self.delivered.desk.push((at, DeskKind::GcpMetadata { project, email, scopes }));
        Ok(())
    }

    fn gcp_token(&mut self, one: &Given) -> Result<(), Failure> {
        let place = Path::new(PLACE).join("gcp").join(format!("{}.token", one.name));
        self.set(one, "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE", place.as_os_str())?;
        self.project(one)?;
        self.delivered.files.push((place, one.placeholder.clone().into_bytes()));
        Ok(())
    }

    fn project(&mut self, one: &Given) -> Result<(), Failure> {
        let Some(project) = one.gcp.as_ref().and_then(|account| account.project.as_deref()) else { return Ok(()) };
        self.set(one, "GOOGLE_CLOUD_PROJECT", project)?;
        self.set(one, "CLOUDSDK_CORE_PROJECT", project)
    }
}

fn refused(one: &Given, why: &str) -> Failure {
    Failure::new("secret", format!("`{}` cannot be delivered as its settings say: {why}", one.name))
}

#[cfg(test)]
mod tests;
