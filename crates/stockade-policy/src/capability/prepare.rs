//! From inputs to an argument list: defaults, validation, paths, templates. Whatever is refused, nothing runs.

use serde_json::{Map, Value};

use super::input::{Kind, Scalar};
use super::manifest::Capability;
use super::paths::Paths;

/// Bytes of one argument at most, as the kernel has it.
const MAX_ARGUMENT: usize = 128 << 10;
/// Bytes of all arguments at most.
const MAX_ARGUMENTS: usize = 1 << 20;
/// Arguments at most.
const MAX_COUNT: usize = 10_000;

/// A call that is ready to be judged and run.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepared {
    /// The inputs as rules see them: with defaults, paths from the workspace.
    pub values: Map<String, Value>,
    /// The program's arguments, without the program.
    pub args: Vec<String>,
}

/// Inputs that are refused, in words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

impl Capability {
    /// Checks inputs and makes the argument list.
    pub fn prepare(&self, given: Map<String, Value>, paths: &dyn Paths) -> Result<Prepared, Refused> {
        let mut values = self.input.accept(given).map_err(Refused)?;
        let mut rendered = values.clone();
        for (name, _) in self.input.properties().iter().filter(|(_, property)| property.is_path) {
            if let (Some(shown), Some(used)) = (values.get_mut(name), rendered.get_mut(name)) {
                resolve(shown, used, paths).map_err(|why| Refused(format!("`{name}`: {why}")))?;
            }
        }
        let mut args = Vec::new();
        for item in &self.args {
            item.render(&rendered, &mut args).map_err(Refused)?;
        }
        let total: usize = args.iter().map(|argument| argument.len() + 1).sum();
        if args.len() > MAX_COUNT || total > MAX_ARGUMENTS || args.iter().any(|argument| argument.len() >= MAX_ARGUMENT) {
            return Err(Refused("the arguments are longer than a program can be given".to_owned()));
        }
        Ok(Prepared { values, args })
    }
}

/// Puts the path from the workspace where rules look, and the whole one where the program does.
fn resolve(shown: &mut Value, used: &mut Value, paths: &dyn Paths) -> Result<(), String> {
    match (shown, used) {
        (Value::String(shown), Value::String(used)) => {
            let found = paths.resolve(shown)?;
            *shown = found.relative;
            *used = found.absolute;
            Ok(())
        }
        (Value::Array(shown), Value::Array(used)) => shown.iter_mut().zip(used).try_for_each(|(shown, used)| resolve(shown, used, paths)),
        _ => Ok(()),
    }
}

/// Inputs as people type them, `NAME=VALUE`, read by what the capability expects: text stays text, whatever it looks like. A list takes
/// its name again for each member.
pub fn from_words<'a>(capability: &Capability, words: impl IntoIterator<Item = &'a str>) -> Result<Map<String, Value>, Refused> {
    let mut given = Map::new();
    for word in words {
        let (name, text) =
            word.split_once('=').ok_or_else(|| Refused(format!("`{}` is not NAME=VALUE", stockade_core::escape::escape(word))))?;
        let kind = capability.input.properties().get(name).map_or(Kind::Text, |property| property.kind);
        let value = typed(kind, text).map_err(|why| Refused(format!("`{name}`: {why}")))?;
        match (kind, value) {
            (Kind::Set(_), Value::Array(items)) => match given.entry(name.to_owned()).or_insert_with(|| Value::Array(Vec::new())) {
                Value::Array(list) => list.extend(items),
                _ => return Err(Refused(format!("`{name}` is given twice"))),
            },
            (_, value) => {
                if given.insert(name.to_owned(), value).is_some() {
                    return Err(Refused(format!("`{name}` is given twice")));
                }
            }
        }
    }
    Ok(given)
}

fn typed(kind: Kind, text: &str) -> Result<Value, String> {
    let json = || serde_json::from_str::<Value>(text);
    let number = || json().ok().filter(Value::is_number).ok_or_else(|| "this is not a number".to_owned());
    let boolean = || match text {
        "true" => Ok(Value::Bool(true)),
        "false" => Ok(Value::Bool(false)),
        _ => Err("write true or false".to_owned()),
    };
    match kind {
        Kind::Text => Ok(Value::String(text.to_owned())),
        Kind::Bool => boolean(),
        Kind::Long | Kind::Number => number(),
        Kind::Json => json().map_err(|error| format!("this is not JSON: {error}")),
        Kind::Set(scalar) => {
            let item = match scalar {
                Scalar::Text => Value::String(text.to_owned()),
                Scalar::Long => number()?,
                Scalar::Bool => boolean()?,
            };
            Ok(Value::Array(vec![item]))
        }
    }
}
