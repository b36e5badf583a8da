//! Codex's settings: Stockade's MCP server, and Codex's own shell switched off.

use toml_edit::{Array, DocumentMut, Item, Table, value};

use super::{VARIABLES, Variable};

/// What the server is called.
const SERVER: &str = "stockade";
/// Holds the variables that the server gets.
const ENVIRONMENT: &str = "env";

/// Settings with the server; unchanged where it stands there already. Codex passes few variables on to servers, so those that say where
/// Stockade keeps its files are written down; one that is not set any more is taken out.
pub(super) fn put_in(text: &str, program: &str, variables: &[Variable]) -> Result<String, String> {
    let mut document = parse(text)?;
    let servers = table(document.as_table_mut(), "mcp_servers")?;
    servers.set_implicit(true);
    let server = table(servers, SERVER)?;
    set(server, "command", program.into());
    set(server, "args", toml_edit::Value::Array(Array::from_iter(["mcp"])));
    // Room for a build, whatever Codex would give by itself.
    set_if_none(server, "tool_timeout_sec", 600.into());
    // Codex would ask about each call itself, and refuse all of them in `codex exec`, where nobody can be asked. The rules decide, and what they leave to a person.
    set_if_none(server, "default_tools_approval_mode", "approve".into());
    put_variables(server, variables)?;
    let features = table(document.as_table_mut(), "features")?;
    set(features, "shell_tool", false.into());
    Ok(document.to_string())
}

/// Settings without them.
pub(super) fn take_out(text: &str) -> Result<String, String> {
    let mut document = parse(text)?;
    remove(document.as_table_mut(), "mcp_servers", SERVER);
    remove(document.as_table_mut(), "features", "shell_tool");
    Ok(document.to_string())
}

fn put_variables(server: &mut Table, variables: &[Variable]) -> Result<(), String> {
    if variables.is_empty() && !server.contains_key(ENVIRONMENT) {
        return Ok(());
    }
    let wrong = || format!("`{ENVIRONMENT}` of the server is not a table");
    // People write it as a table of its own or in one line; either stays.
    let held = server.entry(ENVIRONMENT).or_insert_with(|| Item::Table(Table::new()));
    let held = held.as_table_like_mut().ok_or_else(wrong)?;
    for name in VARIABLES {
        match variables.iter().find(|variable| variable.name == name) {
            Some(wanted) if held.get(name).and_then(Item::as_str) == Some(&wanted.value) => {}
            Some(wanted) => {
                held.insert(name, value(&wanted.value));
            }
            None => {
                held.remove(name);
            }
        }
    }
    if held.is_empty() {
        server.remove(ENVIRONMENT);
    }
    Ok(())
}

fn parse(text: &str) -> Result<DocumentMut, String> {
    text.parse::<DocumentMut>().map_err(|error| format!("it is not TOML: {}", error.message()))
}

fn table<'a>(parent: &'a mut Table, name: &str) -> Result<&'a mut Table, String> {
    let item = parent.entry(name).or_insert_with(|| Item::Table(Table::new()));
    item.as_table_mut().ok_or_else(|| format!("`{name}` is not a table of its own"))
}

/// Leaves what says the same as it is written.
fn set(table: &mut Table, name: &str, wanted: toml_edit::Value) {
    let plain = |value: &toml_edit::Value| value.clone().decorated("", "").to_string();
    let is_same = table.get(name).and_then(Item::as_value).is_some_and(|there| plain(there) == plain(&wanted));
    if !is_same {
        table.insert(name, value(wanted));
    }
}

/// Leaves what people chose.
fn set_if_none(table: &mut Table, name: &str, wanted: toml_edit::Value) {
    if !table.contains_key(name) {
        table.insert(name, value(wanted));
    }
}

/// Removes a member, and the table that it leaves empty.
fn remove(parent: &mut Table, name: &str, member: &str) {
    let Some(table) = parent.get_mut(name).and_then(Item::as_table_mut) else { return };
    if table.remove(member).is_some() && table.is_empty() {
        parent.remove(name);
    }
}
