//! `stockade pack init`: a pack to begin with, which lints.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use stockade_policy::pack::{MANIFEST, PackName, PublisherName, README};

use super::STEP;
use super::keys::write_new;
use crate::Context;
use crate::cli::PackInitArgs;
use crate::failure::Failure;
use crate::receipts::lifecycle;

pub(super) fn run(args: &PackInitArgs, context: &Context) -> Result<ExitCode, Failure> {
    let name = args.name.parse::<PackName>().map_err(|error| Failure::from_error(STEP, &error))?;
    let publisher = args.publisher.parse::<PublisherName>().map_err(|error| Failure::from_error(STEP, &error))?;
    let directory = args.directory.clone().unwrap_or_else(|| PathBuf::from(name.as_str()));
    lifecycle("pack.init", &[name.as_str(), publisher.as_str()], context, || {
        make(&directory)?;
        make(&directory.join("capabilities"))?;
        files(&name, &publisher).into_iter().try_for_each(|(path, text)| write_new(&directory.join(path), text.as_bytes(), 0o644))
    })?;
    if context.printer.is_json() {
        context.printer.json(&json!({ "pack": name.as_str(), "directory": directory.to_string_lossy() }))?;
    } else {
        context.printer.note(format!("wrote {}; check it with `stockade pack lint {}`", directory.display(), directory.display()));
    }
    Ok(ExitCode::SUCCESS)
}

fn make(directory: &Path) -> Result<(), Failure> {
    std::fs::create_dir(directory).map_err(|error| {
        let failure = Failure::new(STEP, format!("cannot make `{}`: {error}", directory.display()));
        let is_there = error.kind() == std::io::ErrorKind::AlreadyExists;
        if is_there { failure.with_hint("choose another place with --directory") } else { failure }
    })
}

/// The files of the pack.
fn files(name: &PackName, publisher: &PublisherName) -> [(String, String); 3] {
    let manifest = format!(
        "name = \"{name}\"\nversion = \"0.1.0\"\ndescription = \"What these capabilities are for.\"\npublisher = \"{publisher}\"\n"
    );
    let readme = format!("# {name}\n\nWhat these capabilities are for, and what they need.\n");
    let capability = CAPABILITY.replace("NAME", name.as_str());
    [(MANIFEST.to_owned(), manifest), (README.to_owned(), readme), (format!("capabilities/{name}.count.toml"), capability)]
}

const CAPABILITY: &str = r#"name = "NAME.count"
description = "Count the lines of files of the workspace."
effect = "read"
program = "wc"
args = ["-l", "--", { arg = "{item}", each = "paths" }]

[input]
required = ["paths"]

[input.properties.paths]
type = "array"
minItems = 1
items = { type = "string", format = "path" }
description = "The files"

[[examples]]
input = { paths = ["a", "b c"] }
argv = ["wc", "-l", "--", "/workspace/a", "/workspace/b c"]

[[examples]]
input = { paths = ["../outside"] }
verdict = "deny"
"#;

#[cfg(test)]
mod tests {
    use stockade_policy::pack::{Pack, PackFiles, PackPath};

    use super::*;

    #[test]
    fn what_is_written_lints() {
        let mut all = PackFiles::default();
        for (path, text) in files(&"demo".parse().unwrap(), &"acme".parse().unwrap()) {
            all.add(PackPath::parse(path.as_bytes()).unwrap(), text.into_bytes()).unwrap();
        }
        let pack = Pack::read(&all, "").unwrap_or_else(|faults| panic!("{faults}"));
        pack.lint(&all, "").unwrap_or_else(|faults| panic!("{faults}"));
    }
}
