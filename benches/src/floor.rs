//! The kernel's floor: `benches/floor.c`, compiled anew in every run, so that the distance to it is of the same run and machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::results::Table;
use crate::spawn;

/// Its name in the tables.
pub(crate) const FLOOR: &str = "the kernel's floor (C, static)";

/// Compiles it onto the ground.
pub(crate) fn build(repository: &Path, ground: &Path) -> Result<PathBuf, String> {
    let program = ground.join("floor");
    let mut command = Command::new("gcc");
    command.args(["-O2", "-static", "-o"]).arg(&program).arg(repository.join("benches/floor.c"));
    spawn::output(&mut command).map_err(|message| format!("cannot be compiled: {message}"))?;
    Ok(program)
}

/// How far a row is from the floor, in a sentence; `None` where either is missing.
pub(crate) fn distance(table: &Table, row: &str) -> Option<String> {
    let (ours, floor) = (table.summary(row)?.p50, table.summary(FLOOR)?.p50);
    let (above, times) = (ours - floor, ours / floor);
    Some(format!(
        "Distance to the floor, {}: {ours:.2} ms is {above:.2} ms above its {floor:.2} ms ({times:.2} ×). The floor is `floor.c`: the same \
         namespaces, a small root, Landlock and a filter of the same length, with no plan, limits, overlay, report or protocol.",
        table.title
    ))
}
