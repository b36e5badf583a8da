//! `stockade cap`: lists, shows and runs capabilities.

mod list;
mod run;
mod show;

pub(crate) use list::listed;
pub(crate) use run::previewed;
pub(crate) use show::described;

use std::process::ExitCode;

use stockade_policy::{Judgement, Principal};
use stockade_store::packs::Packs;

use crate::Context;
use crate::admission::Rules;
use crate::cli::{CapArgs, CapRunArgs, CapVerb, QuestionArgs};
use crate::failure::Failure;

pub(crate) fn run(args: &CapArgs, context: &Context) -> Result<ExitCode, Failure> {
    match &args.verb {
        CapVerb::List(args) => list::run(args, context),
        CapVerb::Show(args) => show::run(args, context),
        CapVerb::Run(args) => run::run(args, context),
    }
}

/// What the rules make of a call that is not run.
pub(crate) fn judged(name: &str, args: &QuestionArgs, principal: &Principal, context: &Context) -> Result<(Rules, Judgement), Failure> {
    let packs = Packs::load(context.places()?).map_err(|error| super::pack::failure(&error))?;
    let question = CapRunArgs {
        name: name.to_owned(),
        inputs: args.inputs.clone(),
        input_json: None,
        dry_run: true,
        workspace: args.workspace.clone(),
        apply: false,
    };
    let (called, assembled) = run::assemble(&question, &packs, context)?;
    let decision = called.decide(principal, &assembled, &packs, context)?;
    let exec_list = assembled.spec.exec_list.clone();
    let judgement = Judgement { commands: vec![(called.shown(), decision.clone())], decision, exec_list };
    Ok((assembled.rules, judgement))
}
