//! What bodies of requests hold. The document is made from these very types, so it says what is taken.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Something to run: either a script or a program.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    /// A bash script; give this or `argv`
    pub(super) script: Option<String>,
    /// A program and its arguments; give this or `script`
    #[schemars(length(min = 1, max = 1024))]
    pub(super) argv: Option<Vec<String>>,
    /// Where it starts; relative paths begin at the workspace
    pub(super) cwd: Option<String>,
    /// Variables for it
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// Kill everything after so many seconds
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 86400))]
    pub(super) timeout_seconds: Option<f64>,
    /// What it reads, as text
    pub(super) stdin: Option<String>,
    /// What it reads, as base64
    pub(super) stdin_base64: Option<String>,
}

/// A call of a capability.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RunCapability {
    /// Its inputs, as its schema says
    #[serde(default)]
    pub(super) input: Map<String, Value>,
    /// Only say what the rules would decide and what would run
    #[serde(default)]
    pub(super) dry_run: bool,
}

/// A sandbox to make. What it does not say, settings do.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    /// A name to call it by
    #[schemars(regex(pattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"))]
    pub(super) name: Option<String>,
    /// What happens to changes: kept apart, or refused
    pub(super) workspace_mode: Option<Mode>,
    /// Variables of everything that runs in it
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// Let only these programs run; rules that name programs need it
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub(super) exec_allow: Vec<String>,
    /// How long one program may take, in seconds
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 86400))]
    pub(super) timeout_seconds: Option<f64>,
}

/// How a workspace may be asked for.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mode {
    /// Changes are kept apart.
    Overlay,
    /// There are none.
    Ro,
}

/// A program to run in a sandbox that stands.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Exec {
    /// The program and its arguments
    #[schemars(length(min = 1, max = 1024))]
    pub(super) argv: Vec<String>,
    /// Where it starts; relative paths begin at the sandbox's own directory
    pub(super) cwd: Option<String>,
    /// Variables besides the sandbox's own
    #[serde(default)]
    pub(super) env: BTreeMap<String, String>,
    /// Kill the program after so many seconds
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 86400))]
    pub(super) timeout_seconds: Option<f64>,
    /// What it reads, as text
    pub(super) stdin: Option<String>,
    /// What it reads, as base64
    pub(super) stdin_base64: Option<String>,
}

/// New contents of a file: either text or bytes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Contents {
    /// As text; give this or `content_base64`
    pub(super) content: Option<String>,
    /// As base64; give this or `content`
    pub(super) content_base64: Option<String>,
}

/// A yes to a request.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Approve {
    /// The approver's passphrase
    #[schemars(length(max = 1024))]
    pub(super) passphrase: String,
    /// The digest of the text that you saw: `shown_sha256` of the request
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    pub(super) shown_sha256: String,
    /// For so many seconds instead of once
    #[schemars(range(min = 1, max = 31_536_000))]
    pub(super) until_seconds: Option<u32>,
}

/// A no to a request.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Deny {
    /// The approver's passphrase
    #[schemars(length(max = 1024))]
    pub(super) passphrase: String,
}
