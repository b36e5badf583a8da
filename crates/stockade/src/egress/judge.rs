//! A person's rules about requests: written down for egress where host and port do not answer them, and asked there about each request.
//!
//! The text goes from the owner to its own egress, so what cannot be read ends the way out before it begins.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stockade_egress::rules::judge::{Asked, Denied, Judge};
use stockade_policy::{Checks, Floor, Policies, PolicyFile, Principal, PrincipalKind, Request, Verdict};

use crate::failure::Failure;

const STEP: &str = "egress";

/// What egress is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    files: Vec<PolicyFile>,
    asker: Named,
    floor: Floor,
}

/// Who asks, by name: egress cannot look it up.
#[derive(Debug, Serialize, Deserialize)]
enum Named {
    Person(String),
    Agent(String),
}

/// The rules, and who asks.
#[derive(Debug)]
struct ByRules {
    policies: Policies,
    asker: Principal,
    floor: Floor,
}

/// Writes the rules down for egress. They passed every check already.
pub(crate) fn write(files: &[PolicyFile], asker: Principal, floor: Floor) -> Result<String, Failure> {
    let asker = match asker.kind {
        PrincipalKind::Human => Named::Person(asker.id),
        PrincipalKind::Agent => Named::Agent(asker.id),
    };
    let written = Written { files: files.to_vec(), asker, floor };
    serde_json::to_string(&written).map_err(|error| Failure::new(STEP, format!("writing the rules about requests: {error}")))
}

/// Reads what was written.
pub(crate) fn read(text: &str) -> Result<Arc<dyn Judge>, Failure> {
    let failed = |error: String| Failure::new(STEP, format!("reading the rules about requests: {error}"));
    let Written { files, asker, floor } = serde_json::from_str(text).map_err(|error| failed(error.to_string()))?;
    let policies = Policies::compile(&files, Checks::Known).map_err(|faults| failed(faults.to_string()))?;
    let asker = match asker {
        Named::Person(name) => Principal::human(name),
        Named::Agent(name) => Principal::agent(name),
    };
    Ok(Arc::new(ByRules { policies, asker, floor }))
}

impl Judge for ByRules {
    fn judge(&self, asked: &Asked<'_>) -> Result<(), Denied> {
        let Asked { host, port, tls, method, path, secret } = *asked;
        let host = host.to_string();
        let request = Request::Connect { host: &host, port, tls, method, path, secret };
        let decision = self.policies.decide(&self.asker, &request, self.floor);
        if decision.verdict == Verdict::Allow {
            return Ok(());
        }
        let reason = decision.reason.unwrap_or_else(|| "no rule permits it".to_owned());
        Err(Denied { rule: decision.rule, why: format!("the policy does not permit {method} {path} on {host}: {reason}") })
    }
}

#[cfg(test)]
mod tests {
    use stockade_core::host::HostName;
    use stockade_policy::{Layer, Trust};

    use super::*;

    #[test]
    fn each_request_is_asked_about_by_what_it_says() {
        let text = "@id(\"reads\") permit (principal == Stockade::Human::\"ada\", action == Stockade::Action::\"connect\", resource == \
            Stockade::Host::\"api.example\") when { context.tls && [\"GET\", \"HEAD\"].contains(context.method) };\n\
            @id(\"no-admin\") @reason(\"ask an administrator\") forbid (principal, action == Stockade::Action::\"connect\", resource) \
            when { context.path like \"/admin/*\" };\n@id(\"no-token\") forbid (principal, action == Stockade::Action::\"connect\", resource) \
            when { context has secret && context.secret == \"ROOT\" };";
        let file = PolicyFile { layer: Layer::User, trust: Trust::Trusted, name: "u".into(), text: text.into() };
        let judge = read(&write(&[file], Principal::human("ada"), Floor::Deny).unwrap()).unwrap();
        let host = HostName::parse("api.example").unwrap();
        let asked = Asked { host: &host, port: 443, tls: true, method: "GET", path: "/a", secret: None };
        let rule = |asked: &Asked<'_>| judge.judge(asked).map_err(|denied| denied.rule);
        assert_eq!(rule(&asked), Ok(()));
        assert_eq!(rule(&Asked { secret: Some("OTHER"), ..asked }), Ok(()));
        for (asked, expected) in [
            (Asked { method: "POST", ..asked }, "default-deny"),
            (Asked { tls: false, ..asked }, "default-deny"),
            (Asked { host: &HostName::parse("b.example").unwrap(), ..asked }, "default-deny"),
            (Asked { path: "/admin/x", ..asked }, "no-admin"),
            (Asked { secret: Some("ROOT"), ..asked }, "no-token"),
        ] {
            assert_eq!(rule(&asked), Err(expected.to_owned()), "{asked:?}");
        }
        assert!(read("{}").is_err() && read("").is_err());
    }
}
