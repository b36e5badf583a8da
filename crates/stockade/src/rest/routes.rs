//! The table of what is served: requests are matched with it, and the document is made of it, so neither can say what the other does not.

use http::Method;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use stockade_http::target::parts;

use super::answer::{Problem, Reply};
use super::asked::Asked;
use super::call::Make;
use super::{approvals, forms, look, run, sandboxes};
use crate::mcp::{Session, schema};

/// What is served at one path, for one method.
pub(super) struct Route {
    /// The method.
    pub(super) method: Method,
    /// The path; a name in braces stands for one part.
    pub(super) template: &'static str,
    /// Who answers.
    pub(super) does: Does,
    /// What it is about, for the document.
    pub(super) about: About,
}

/// Who answers.
#[derive(Clone, Copy)]
pub(super) enum Does {
    /// Says something that is known.
    Look(fn(&Asked, &Session) -> Result<Reply, Problem>),
    /// A call, with a place among the calls.
    Call(Make),
}

/// What the document says.
pub(super) struct About {
    /// What it is called there.
    pub(super) name: &'static str,
    /// One sentence.
    pub(super) summary: &'static str,
    /// What may be in the query.
    pub(super) query: &'static [Parameter],
    /// What the body holds.
    pub(super) body: Option<Body>,
    /// What comes back.
    pub(super) result: fn() -> Value,
    /// And by which status.
    pub(super) status: u16,
    /// Whether it can come as a stream of events.
    pub(super) streams: Streams,
}

/// A value of a query.
pub(super) struct Parameter {
    /// Its name.
    pub(super) name: &'static str,
    /// What it means.
    pub(super) means: &'static str,
    /// What it may be.
    pub(super) kind: Kind,
}

/// What a value of a query may be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// Any text, and it must be there.
    Needed,
    /// Any text.
    Text,
    /// A whole number, up to this one.
    Number(u64),
    /// One of these.
    Word(&'static [&'static str]),
}

/// What a body holds.
pub(super) struct Body {
    /// Its schema.
    pub(super) schema: fn(&mut SchemaGenerator) -> Schema,
    /// Whether it must be there.
    pub(super) need: Need,
}

/// Whether something must be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// It must.
    Required,
    /// An empty object is meant where it is not.
    Optional,
}

/// Whether a result can come as a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Streams {
    /// As events, to whoever asks for them.
    Events,
    /// All at once.
    No,
}

/// The route of a request, and what stands in the named places of its path.
pub(super) fn find(method: &Method, path: &str) -> Result<(&'static Route, Vec<String>), Problem> {
    let fitting = || ROUTES.iter().filter_map(|route| parts(route.template, path).map(|parts| (route, parts)));
    // A path in full letters comes before one with a name in its place; the table is in that order.
    let Some((first, _)) = fitting().next() else { return Err(Problem::no_path()) };
    let here: Vec<_> = fitting().filter(|(route, _)| route.template == first.template).collect();
    let allowed: Vec<&str> = here.iter().map(|(route, _)| route.method.as_str()).collect();
    here.into_iter().find(|(route, _)| route.method == *method).ok_or_else(|| Problem::method(&allowed))
}

const fn look(
    template: &'static str,
    name: &'static str,
    summary: &'static str,
    look: fn(&Asked, &Session) -> Result<Reply, Problem>,
    result: fn() -> Value,
) -> Route {
    look_for(template, &[], name, summary, look, result)
}

const fn look_for(
    template: &'static str,
    query: &'static [Parameter],
    name: &'static str,
    summary: &'static str,
    look: fn(&Asked, &Session) -> Result<Reply, Problem>,
    result: fn() -> Value,
) -> Route {
    let about = About { name, summary, query, body: None, result, status: 200, streams: Streams::No };
    Route { method: Method::GET, template, does: Does::Look(look), about }
}

const fn body_of<T: JsonSchema>(need: Need) -> Body {
    Body { schema: |generator| generator.root_schema_for::<T>(), need }
}

const PATH: &[Parameter] = &[Parameter { name: "path", means: "Absolute, or from the workspace on", kind: Kind::Needed }];

/// Everything that is served.
pub(super) static ROUTES: &[Route] = &[
    look("/v1/health", "health", "Whether the server is there, and who you are to it", look::health, about_server),
    look("/v1/openapi.json", "document", "This document", look::document, any),
    Route {
        method: Method::POST,
        template: "/v1/run",
        does: Does::Call(run::run),
        about: About {
            name: "run",
            summary: "Run a script or a program in a sandbox, on your private copy of the workspace; the object of `stockade run --json`",
            query: &[],
            body: Some(body_of::<forms::Run>(Need::Required)),
            result: run_result,
            status: 200,
            streams: Streams::Events,
        },
    },
    look("/v1/capabilities", "capabilities", "The capabilities that rules let you call with some inputs", look::capabilities, || {
        list_of("capabilities")
    }),
    look("/v1/capabilities/{name}", "capability", "What a capability takes, runs and may reach", look::capability, any),
    Route {
        method: Method::POST,
        template: "/v1/capabilities/{name}/run",
        does: Does::Call(run::capability),
        about: About {
            name: "run_capability",
            summary: "Run a capability, or say what would come of it",
            query: &[],
            body: Some(body_of::<forms::RunCapability>(Need::Optional)),
            result: any,
            status: 200,
            streams: Streams::Events,
        },
    },
    look("/v1/sandboxes", "sandboxes", "The sandboxes that you made", sandboxes::list, || list_of("sandboxes")),
    Route {
        method: Method::POST,
        template: "/v1/sandboxes",
        does: Does::Call(sandboxes::create),
        about: About {
            name: "create_sandbox",
            summary: "Make a sandbox that stays until you delete it",
            query: &[],
            body: Some(body_of::<forms::Create>(Need::Optional)),
            result: any,
            status: 201,
            streams: Streams::No,
        },
    },
    look("/v1/sandboxes/{id}", "sandbox", "One of your sandboxes", sandboxes::show, any),
    Route {
        method: Method::DELETE,
        template: "/v1/sandboxes/{id}",
        does: Does::Call(sandboxes::destroy),
        about: About {
            name: "delete_sandbox",
            summary: "End a sandbox and remove it with its changes",
            query: &[],
            body: None,
            result: any,
            status: 200,
            streams: Streams::No,
        },
    },
    Route {
        method: Method::POST,
        template: "/v1/sandboxes/{id}/exec",
        does: Does::Call(sandboxes::exec),
        about: About {
            name: "exec",
            summary: "Run a program in one of your sandboxes",
            query: &[],
            body: Some(body_of::<forms::Exec>(Need::Required)),
            result: run_result,
            status: 200,
            streams: Streams::Events,
        },
    },
    Route {
        method: Method::GET,
        template: "/v1/sandboxes/{id}/files/list",
        does: Does::Call(sandboxes::names),
        about: About {
            name: "list_files",
            summary: "The names in a directory, as the sandbox sees it",
            query: PATH,
            body: None,
            result: || Value::Object(schema::list_result()),
            status: 200,
            streams: Streams::No,
        },
    },
    Route {
        method: Method::GET,
        template: "/v1/sandboxes/{id}/files",
        does: Does::Call(sandboxes::read),
        about: About {
            name: "read_file",
            summary: "A file, as the sandbox sees it",
            query: PATH,
            body: None,
            result: || Value::Object(schema::read_result()),
            status: 200,
            streams: Streams::No,
        },
    },
    Route {
        method: Method::PUT,
        template: "/v1/sandboxes/{id}/files",
        does: Does::Call(sandboxes::write),
        about: About {
            name: "write_file",
            summary: "Write a whole file in a sandbox; directories are made as needed",
            query: PATH,
            body: Some(body_of::<forms::Contents>(Need::Required)),
            result: || Value::Object(schema::write_result()),
            status: 200,
            streams: Streams::No,
        },
    },
    Route {
        method: Method::GET,
        template: "/v1/sandboxes/{id}/diff",
        does: Does::Call(sandboxes::diff),
        about: About {
            name: "diff",
            summary: "What a sandbox changed; a person applies it, nobody here",
            query: &[],
            body: None,
            result: any,
            status: 200,
            streams: Streams::No,
        },
    },
    look_for(
        "/v1/approvals",
        &[Parameter { name: "all", means: "Also what was decided", kind: Kind::Word(&["true", "false"]) }],
        "approvals",
        "Requests that wait for a person",
        approvals::list,
        || list_of("approvals"),
    ),
    look("/v1/approvals/{id}", "approval", "A request, with everything that a person is to see", approvals::show, any),
    Route {
        method: Method::POST,
        template: "/v1/approvals/{id}/approve",
        does: Does::Look(approvals::approve),
        about: About {
            name: "approve",
            summary: "Say yes; needs the approver's passphrase, not only the token",
            query: &[],
            body: Some(body_of::<forms::Approve>(Need::Required)),
            result: any,
            status: 200,
            streams: Streams::No,
        },
    },
    Route {
        method: Method::POST,
        template: "/v1/approvals/{id}/deny",
        does: Does::Look(approvals::deny),
        about: About {
            name: "deny",
            summary: "Say no; needs the approver's passphrase, not only the token",
            query: &[],
            body: Some(body_of::<forms::Deny>(Need::Required)),
            result: any,
            status: 200,
            streams: Streams::No,
        },
    },
    look_for(
        "/v1/receipts",
        &[
            Parameter { name: "since", means: "Written since: a time, or 2h for two hours ago", kind: Kind::Text },
            Parameter { name: "until", means: "Written before", kind: Kind::Text },
            Parameter { name: "kind", means: "What the record is about", kind: Kind::Word(&look::KINDS) },
            Parameter { name: "verdict", means: "What policy said", kind: Kind::Word(&look::VERDICTS) },
            Parameter { name: "capability", means: "Of this capability", kind: Kind::Text },
            Parameter { name: "program", means: "Of this program, by its name", kind: Kind::Text },
            Parameter { name: "sandbox", means: "Of this sandbox, by its id", kind: Kind::Text },
            Parameter { name: "host", means: "That tried to reach this host", kind: Kind::Text },
            Parameter { name: "before", means: "Only receipts before this number: the next page", kind: Kind::Number(u64::MAX >> 11) },
            Parameter { name: "limit", means: "At most so many", kind: Kind::Number(look::MOST_ON_A_PAGE) },
        ],
        "receipts",
        "Your receipts, newest first",
        look::receipts,
        || list_of("receipts"),
    ),
    look("/v1/receipts/{id}", "receipt", "All records of one of your calls", look::receipt, || list_of("receipts")),
];

fn any() -> Value {
    json!({ "type": "object" })
}

fn list_of(name: &str) -> Value {
    json!({ "type": "object", "properties": { name: { "type": "array", "items": { "type": "object" } } }, "required": [name] })
}

fn run_result() -> Value {
    let mut schema: Map<String, Value> = schema::run_result();
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        properties.remove("error");
    }
    Value::Object(schema)
}

fn about_server() -> Value {
    json!({
        "type": "object",
        "properties": {
            "status": { "const": "ok" },
            "version": { "type": "string" },
            "principal": { "type": "string" },
            "workspace": { "type": "string" },
            "calls": { "type": "integer" },
        },
        "required": ["status", "version", "principal", "workspace", "calls"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_matched_to_the_letter() {
        let check = |method: Method, path: &str| find(&method, path).ok().map(|(route, parts)| (route.about.name, parts));
        assert_eq!(check(Method::GET, "/v1/health"), Some(("health", vec![])));
        assert_eq!(check(Method::GET, "/v1/receipts/x%2fy"), Some(("receipt", vec!["x/y".to_owned()])));
        assert_eq!(check(Method::GET, "/v1/sandboxes/a/files/list"), Some(("list_files", vec!["a".to_owned()])));
        assert_eq!(check(Method::PUT, "/v1/sandboxes/a/files"), Some(("write_file", vec!["a".to_owned()])));
        for path in ["/v1/", "/v1", "/v1/health/", "/v1//health", "/v1/Health", "/v1/receipts/", "/v1/receipts/%ff", "/v1/receipts/a/b"] {
            assert_eq!(check(Method::GET, path), None, "{path}");
        }
        let status = |method, path| find(&method, path).map(|_| ()).unwrap_err().answer();
        assert_eq!(status(Method::GET, "/v1/nothing").status(), 404);
        let other = status(Method::PATCH, "/v1/sandboxes/a/files");
        assert_eq!((other.status().as_u16(), &other.headers()["allow"]), (405, &http::HeaderValue::from_static("GET, PUT")));
    }

    #[test]
    fn names_are_given_once() {
        let names: std::collections::BTreeSet<&str> = ROUTES.iter().map(|route| route.about.name).collect();
        assert_eq!(names.len(), ROUTES.len());
    }
}
