//! Arguments with places for inputs. One value is always (a part of) one argument: nothing is split, joined or evaluated.

use serde_json::{Map, Value};

use super::input::{Input, Kind, Scalar};

/// The name that stands for each member of a list.
const ITEM: &str = "item";

/// Whether a value may begin with a dash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dash {
    /// No: the program could take it for an option.
    Refuse,
    /// Yes: `allow_dash = true`.
    Allow,
}

/// One item of `args`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    pieces: Vec<Piece>,
    when: Option<String>,
    each: Option<String>,
    dash: Dash,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(String),
    Value(String),
}

/// What an item of `args` says, as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) arg: String,
    pub(super) when: Option<String>,
    pub(super) each: Option<String>,
    pub(super) dash: Dash,
}

impl Argument {
    /// Checks an item against the inputs.
    pub(super) fn new(written: Written, input: &Input) -> Result<Self, String> {
        let Written { arg, when, each, dash } = written;
        if arg.contains('\0') {
            return Err("an argument has a NUL in it".to_owned());
        }
        let kind = |name: &str| {
            let property = input.properties().get(name).ok_or_else(|| format!("there is no input `{name}`"))?;
            Ok::<Kind, String>(property.kind)
        };
        if let Some(name) = &when {
            kind(name)?;
        }
        let of_item = match &each {
            None => None,
            Some(name) => match kind(name)? {
                Kind::Set(scalar @ (Scalar::Long | Scalar::Text)) => Some(scalar),
                _ => return Err(format!("`each` needs a list of strings or of whole numbers, and `{name}` is none")),
            },
        };
        let pieces = pieces(&arg)?;
        let mut has_item = false;
        for piece in &pieces {
            match piece {
                Piece::Value(name) if name == ITEM && of_item.is_some() => has_item = true,
                Piece::Value(name) => match kind(name)? {
                    Kind::Long | Kind::Text | Kind::Number => {}
                    Kind::Bool => return Err(format!("`{name}` is true or false: write the flag itself with `when = \"{name}\"`")),
                    Kind::Set(_) => return Err(format!("`{name}` is a list: write `each = \"{name}\"` and `{{item}}`")),
                    Kind::Json => return Err(format!("`{name}` has no plain type, so it has no form as an argument")),
                },
                Piece::Literal(_) => {}
            }
        }
        if of_item.is_some() && !has_item {
            return Err("with `each`, the argument must hold `{item}`".to_owned());
        }
        Ok(Self { pieces, when, each, dash })
    }

    /// The inputs that it depends on.
    pub(super) fn inputs(&self) -> impl Iterator<Item = &str> {
        let values = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Value(name) if name != ITEM => Some(name.as_str()),
            Piece::Value(_) | Piece::Literal(_) => None,
        });
        values.chain(self.when.as_deref()).chain(self.each.as_deref())
    }

    /// Adds its arguments: one, one for each member of a list, or none where an input is missing.
    pub(super) fn render(&self, values: &Map<String, Value>, argv: &mut Vec<String>) -> Result<(), String> {
        if let Some(name) = &self.when
            && matches!(values.get(name), None | Some(Value::Null | Value::Bool(false)))
        {
            return Ok(());
        }
        match &self.each {
            None => argv.extend(self.one(values, None)?),
            Some(name) => {
                for item in values.get(name).and_then(Value::as_array).into_iter().flatten() {
                    argv.extend(self.one(values, Some(item))?);
                }
            }
        }
        Ok(())
    }

    fn one(&self, values: &Map<String, Value>, item: Option<&Value>) -> Result<Option<String>, String> {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(literal) => text.push_str(literal),
                Piece::Value(name) => {
                    let value = if name == ITEM { item } else { values.get(name) };
                    let Some(value) = value else { return Ok(None) };
                    text.push_str(&self.checked(name, value)?);
                }
            }
        }
        Ok(Some(text))
    }

    fn checked(&self, name: &str, value: &Value) -> Result<String, String> {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                return Err(format!("`{name}` is neither text nor a number"));
            }
        };
        let name = self.each.as_deref().filter(|_| name == ITEM).unwrap_or(name);
        if text.contains('\0') {
            return Err(format!("`{name}` has a NUL in it"));
        }
        if text.starts_with('-') && self.dash == Dash::Refuse {
            return Err(format!("`{name}` begins with a dash, which a program could take for an option"));
        }
        Ok(text)
    }
}

/// Cuts a template into pieces: `{name}` is an input, `{{` and `}}` are braces.
fn pieces(template: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = template.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '{' | '}' if rest.peek() == Some(&character) => {
                rest.next();
                literal.push(character);
            }
            '{' => {
                let mut name = String::new();
                loop {
                    match rest.next() {
                        Some('}') => break,
                        Some(character) if character.is_ascii_lowercase() || character.is_ascii_digit() || character == '_' => {
                            name.push(character);
                        }
                        Some(_) | None => {
                            return Err("a `{` needs the name of an input and a `}`; a brace itself is written `{{`".to_owned());
                        }
                    }
                }
                if !literal.is_empty() {
                    pieces.push(Piece::Literal(std::mem::take(&mut literal)));
                }
                pieces.push(Piece::Value(name));
            }
            '}' => return Err("a `}` without a `{`; a brace itself is written `}}`".to_owned()),
            other => literal.push(other),
        }
    }
    if !literal.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Literal(literal));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn input() -> Input {
        Input::new(json!({ "properties": {
            "name": { "type": "string" }, "count": { "type": "integer" }, "flag": { "type": "boolean" },
            "paths": { "type": "array", "items": { "type": "string" } }, "any": {},
        } }))
        .unwrap()
    }

    fn argument(arg: &str, when: Option<&str>, each: Option<&str>, dash: Dash) -> Result<Argument, String> {
        Argument::new(Written { arg: arg.into(), when: when.map(str::to_owned), each: each.map(str::to_owned), dash }, &input())
    }

    fn render(argument: &Argument, values: &Value) -> Result<Vec<String>, String> {
        let mut argv = Vec::new();
        argument.render(values.as_object().unwrap(), &mut argv).map(|()| argv)
    }

    #[test]
    fn one_value_is_one_argument() {
        let plain = |arg: &str| argument(arg, None, None, Dash::Refuse).unwrap();
        let values = json!({ "name": "a b; 'c' $HOME\n*", "count": 5, "flag": true, "paths": ["x y", "", "z"] });
        assert_eq!(render(&plain("{name}"), &values), Ok(vec!["a b; 'c' $HOME\n*".to_owned()]));
        assert_eq!(render(&plain("--n={count}:{name}"), &values), Ok(vec!["--n=5:a b; 'c' $HOME\n*".to_owned()]));
        assert_eq!(render(&plain("{{{count}}}"), &values), Ok(vec!["{5}".to_owned()]));
        assert_eq!(render(&plain(""), &values), Ok(vec![String::new()]));
        let each = argument("-p{item}", None, Some("paths"), Dash::Refuse).unwrap();
        assert_eq!(render(&each, &values), Ok(vec!["-px y".to_owned(), "-p".to_owned(), "-pz".to_owned()]));
    }

    #[test]
    fn what_is_missing_leaves_the_argument_out() {
        let item = argument("--name={name}", None, None, Dash::Refuse).unwrap();
        assert_eq!(render(&item, &json!({})), Ok(vec![]));
        let flag = argument("--all", Some("flag"), None, Dash::Refuse).unwrap();
        assert_eq!(render(&flag, &json!({ "flag": true })), Ok(vec!["--all".to_owned()]));
        assert_eq!(render(&flag, &json!({ "flag": false })), Ok(vec![]));
        assert_eq!(render(&flag, &json!({})), Ok(vec![]));
    }

    #[test]
    fn a_dash_is_refused_wherever_it_would_stand() {
        for arg in ["{name}", "--name={name}"] {
            let item = argument(arg, None, None, Dash::Refuse).unwrap();
            assert!(render(&item, &json!({ "name": "--output=/etc/passwd" })).is_err(), "{arg}");
        }
        let allowed = argument("--grep={name}", None, None, Dash::Allow).unwrap();
        assert_eq!(render(&allowed, &json!({ "name": "-x" })), Ok(vec!["--grep=-x".to_owned()]));
        let number = argument("{count}", None, None, Dash::Refuse).unwrap();
        assert!(render(&number, &json!({ "count": -5 })).is_err());
        let each = argument("{item}", None, Some("paths"), Dash::Refuse).unwrap();
        assert!(render(&each, &json!({ "paths": ["a", "-b"] })).unwrap_err().contains("`paths`"));
        assert!(render(&allowed, &json!({ "name": "a\0b" })).is_err());
    }

    #[test]
    fn templates_name_what_there_is() {
        for (arg, when, each) in [
            ("{nme}", None, None),
            ("{flag}", None, None),
            ("{paths}", None, None),
            ("{any}", None, None),
            ("{item}", None, None),
            ("x", Some("none"), None),
            ("x", None, Some("paths")),
            ("{item}", None, Some("name")),
            ("{name", None, None),
            ("name}", None, None),
            ("{na me}", None, None),
            ("{}", None, None),
            ("a\0b", None, None),
        ] {
            assert!(argument(arg, when, each, Dash::Refuse).is_err(), "{arg:?} {when:?} {each:?}");
        }
    }
}
