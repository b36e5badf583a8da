//! So many open files and no more, step by step, so that the shortage lands at every place that opens one.

use super::{Bench, Stand, until_enough};
use crate::failure::Failure;
use crate::ground::Who;
use crate::report::Tally;

const NAME: &str = "descriptors";

pub(super) fn run(bench: &Bench<'_>) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    for who in Who::BOTH {
        let stand = Stand::new(bench, NAME, who)?;
        let script = stand.script("echo new >new; exit 0");
        until_enough(3..200, bench.arguments.extent, |round, amount| {
            let scene = format!("as {}, {amount} open files", who.name());
            (bench.progress)(&format!("{NAME}: {scene}"));
            let limit = format!("--nofile={amount}:{amount}");
            stand.starve(
                &mut tally,
                round,
                &scene,
                &mut stand.ground.behind(&["prlimit", &limit], &["--json", "run", "--", "bash", "-c", &script]),
            )
        })?;
        until_enough(3..200, bench.arguments.extent, |round, amount| {
            let scene = format!("as {}, create with {amount} open files", who.name());
            let limit = format!("--nofile={amount}:{amount}");
            stand.create_and_end(&mut tally, round, &scene, &mut stand.ground.behind(&["prlimit", &limit], &["sandbox", "create"]))
        })?;
    }
    Ok(tally)
}
