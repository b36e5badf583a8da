//! The OpenAPI document, made of the table that requests are matched with.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::routes::{Kind, Need, Parameter, ROUTES, Route, Streams};
use crate::mcp::schema;

/// Refusals that any request can meet, and what they mean.
const REFUSALS: [(&str, &str); 11] = [
    ("400", "The request makes no sense"),
    ("401", "The token is missing or wrong"),
    ("403", "Denied: by policy, with the decision, or before anything was read"),
    ("404", "There is no such thing, or none of yours"),
    ("405", "That is not done there"),
    ("409", "It collides with what is there"),
    ("413", "The body is longer than 16 MiB"),
    ("415", "The body is not JSON"),
    ("422", "The program cannot be run inside"),
    ("429", "Too much at once"),
    ("503", "The server is ending, and had not begun with it"),
];

/// The document.
pub(crate) fn document() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.template).or_insert_with(|| json!({}));
        if let Some(methods) = path.as_object_mut() {
            methods.insert(route.method.as_str().to_lowercase(), operation(route));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Stockade",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What an agent may ask of `stockade serve --listen`. Everything runs behind a wall; policy decides before, and a receipt proves after.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer", "description": "The token that `stockade serve` showed" } },
            "schemas": { "Error": error(), "Denied": denied() },
            "responses": refusals(),
        },
    })
}

fn operation(route: &Route) -> Value {
    let about = &route.about;
    let named = route.template.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path = named.map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 } }));
    let parameters: Vec<Value> = in_path.chain(about.query.iter().map(in_query)).collect();
    let mut operation = json!({
        "operationId": about.name,
        "summary": about.summary,
        "parameters": parameters,
        "responses": responses(route),
    });
    if let (Some(fields), Some(body)) = (operation.as_object_mut(), &about.body) {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        });
        let schema = (body.schema)(&mut settings.into_generator());
        fields.insert(
            "requestBody".to_owned(),
            json!({ "required": body.need == Need::Required, "content": { "application/json": { "schema": schema } } }),
        );
    }
    operation
}

fn in_query(value: &Parameter) -> Value {
    let schema = match value.kind {
        Kind::Needed | Kind::Text => json!({ "type": "string" }),
        Kind::Number(most) => json!({ "type": "integer", "minimum": 1, "maximum": most }),
        Kind::Word(words) => json!({ "enum": words }),
    };
    let needed = matches!(value.kind, Kind::Needed);
    json!({ "name": value.name, "in": "query", "required": needed, "description": value.means, "schema": schema })
}

fn responses(route: &Route) -> Value {
    let about = &route.about;
    let mut content = json!({ "application/json": { "schema": (about.result)() } });
    if about.streams == Streams::Events
        && let Some(kinds) = content.as_object_mut()
    {
        for kind in ["text/event-stream", "application/x-ndjson"] {
            kinds.insert(kind.to_owned(), json!({ "schema": { "type": "string" } }));
        }
    }
    let mut responses = json!({ (about.status.to_string()): { "description": "Done", "content": content } });
    if let Some(all) = responses.as_object_mut() {
        for (status, _) in REFUSALS {
            all.insert(status.to_owned(), json!({ "$ref": format!("#/components/responses/{status}") }));
        }
    }
    responses
}

/// What every refusal looks like.
fn refusals() -> Value {
    let refusal = |(status, means): (&str, &str)| {
        let name = if status == "403" { "Denied" } else { "Error" };
        let schema = json!({ "$ref": format!("#/components/schemas/{name}") });
        (status.to_owned(), json!({ "description": means, "content": { "application/json": { "schema": schema } } }))
    };
    Value::Object(REFUSALS.into_iter().map(refusal).collect())
}

fn error() -> Value {
    json!({ "type": "object", "properties": { "error": schema::error() }, "required": ["error"] })
}

/// The decision with the receipt, or an error where it did not come so far.
fn denied() -> Value {
    let decision = json!({
        "type": "object",
        "properties": { "receipt_id": { "type": ["string", "null"] }, "decision": schema::decision() },
        "required": ["decision"],
    });
    json!({ "anyOf": [decision, error()] })
}
