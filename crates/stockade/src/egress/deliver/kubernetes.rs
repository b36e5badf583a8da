//! kubectl, and whoever reads its configuration: a file without secrets, whose user is whoever the tool says.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stockade_sandbox::wayout::{AUTHORITIES, PLACE};

use super::{CREDENTIAL, Cluster, DeskKind, Given, Making, refused};
use crate::failure::Failure;

const DIRECTORY: &str = "kube";

impl Making<'_> {
    /// Says where the file is.
    pub(super) fn kubernetes(&mut self, at: usize, one: &Given) -> Result<PathBuf, Failure> {
        let cluster = one.kubernetes.as_ref().ok_or_else(|| refused(one, "for Kubernetes it must name a cluster's server"))?;
        let tool = self.tool(CREDENTIAL);
        let place = Path::new(PLACE).join(DIRECTORY).join(format!("{}.yaml", one.name));
        // JSON is YAML.
        self.delivered.files.push((place.clone(), configuration(one.name.as_str(), cluster, &tool).to_string().into_bytes()));
        self.delivered.desk.push((at, DeskKind::Kubernetes));
        Ok(place)
    }
}

fn configuration(name: &str, cluster: &Cluster, tool: &Path) -> Value {
    let mut context = json!({ "cluster": name, "user": name });
    if let (Some(namespace), Some(context)) = (&cluster.namespace, context.as_object_mut()) {
        context.insert("namespace".into(), json!(namespace));
    }
    let exec = json!({
        // Older ones than 1.22 know no `v1`, and newer ones know this too.
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": tool.to_string_lossy(),
        "args": ["kubernetes", name],
        "interactiveMode": "Never",
        "provideClusterInfo": false,
    });
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": name, "cluster": { "server": cluster.server, "certificate-authority": AUTHORITIES } }],
        "users": [{ "name": name, "user": { "exec": exec } }],
        "contexts": [{ "name": name, "context": context }],
        "current-context": name,
    })
}
