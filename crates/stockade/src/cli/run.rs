//! `stockade run`: a program in a fresh sandbox.

use std::ffi::OsString;

use clap::{ArgGroup, Args};

use super::flags::SandboxFlags;

/// Run a program in a fresh sandbox.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("what").required(true).args(["program", "shell"]),
    override_usage = "stockade run [OPTIONS] -- PROGRAM [ARGS]...\n       stockade run [OPTIONS] --shell SCRIPT",
    after_help = EXAMPLES
)]
pub(crate) struct RunArgs {
    /// The program and its arguments, after --
    #[arg(last = true, num_args = 1.., value_name = "PROGRAM")]
    pub(crate) program: Vec<OsString>,
    /// Run this script with bash instead of a program
    #[arg(long, value_name = "SCRIPT", allow_hyphen_values = true)]
    pub(crate) shell: Option<OsString>,
    /// What the sandbox is.
    #[command(flatten)]
    pub(crate) sandbox: SandboxFlags,
}

const EXAMPLES: &str = "\
Examples:
  stockade run -- npm test                            changes are kept apart
  stockade run --apply -- cargo fix                   keep them if it succeeds
  stockade run --timeout 30s --memory 512M -- ./job   with limits
  stockade run --workspace-mode ro -- grep -r TODO .  look, do not touch
  stockade run --mount ~/data:/data -- python3 x.py   one more directory
  stockade run --shell 'make && make test'            a script
  stockade run --json -- ./check.sh                   one JSON object

Exit codes: the program's own; 124 timed out; 125 Stockade failed;
            126 denied; 127 no such program";

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::time::Duration;

    use clap::Parser;
    use stockade_core::demand::Demand;
    use stockade_core::spec::{BackendKind, MountMode};

    use super::*;
    use crate::cli::flags::Requirement;
    use crate::cli::{BackendChoice, Cli, Verb};

    fn parse(words: &[&str]) -> (Cli, RunArgs) {
        let mut cli = Cli::try_parse_from(words).unwrap();
        let Verb::Run(args) = std::mem::replace(&mut cli.verb, Verb::Version) else { panic!("{words:?} is not a run") };
        (cli, *args)
    }

    #[test]
    fn what_follows_the_dashes_is_the_programs_alone() {
        let (cli, args) = parse(&["stockade", "run", "-q", "--", "ls", "--json", "--memory", "1", "--", "-v", ""]);
        assert_eq!(args.program, ["ls", "--json", "--memory", "1", "--", "-v", ""]);
        assert_eq!((cli.output.json, cli.output.quiet, cli.output.verbose, args.sandbox.memory), (false, true, false, None));
    }

    #[test]
    fn arguments_need_not_be_text() {
        let odd = std::ffi::OsStr::from_bytes(b"\xff\xfe");
        let cli = Cli::try_parse_from(["stockade".as_ref(), "run".as_ref(), "--".as_ref(), odd]).unwrap();
        assert!(matches!(cli.verb, Verb::Run(args) if args.program == [odd]));
    }

    #[test]
    fn every_flag_is_taken() {
        let line = "stockade run --json --backend microvm --workspace /w --workspace-mode ro --mount /a:/b:rw --mount c:/d --cwd src --env A=1 --env B \
                    --allow-host x.org --allow-host *.y.org --secret T@x.org,y.org --exec-allow git,ls --exec-allow cat --timeout 30s --cpus 1.5 \
                    --memory 512M --pids 64 --disk 1G --output-limit 10M --checkpoint base --image img --allow-degraded cpu,memory \
                    --require hardware-vm --learn --apply --shell -x";
        let (cli, args) = parse(&line.split_whitespace().collect::<Vec<_>>());
        let flags = args.sandbox;
        assert!(cli.output.json && flags.learn && flags.apply && args.program.is_empty());
        assert_eq!(args.shell, Some("-x".into()));
        assert_eq!(flags.backend, Some(BackendChoice::Named(BackendKind::Microvm)));
        assert_eq!((flags.workspace, flags.workspace_mode), (Some("/w".into()), Some(MountMode::Ro)));
        assert_eq!(flags.mounts.iter().map(|mount| mount.mode).collect::<Vec<_>>(), [MountMode::Rw, MountMode::Ro]);
        assert_eq!(flags.env.iter().map(|variable| variable.name.as_str()).collect::<Vec<_>>(), ["A", "B"]);
        let hosts: Vec<String> = flags.allow_hosts.iter().map(ToString::to_string).collect();
        assert_eq!((hosts, flags.secrets.len()), (vec!["x.org".to_owned(), "*.y.org".to_owned()], 1));
        assert_eq!(flags.exec_allow, ["git", "ls", "cat"]);
        assert_eq!((flags.timeout, flags.cpus, flags.pids), (Some(Duration::from_secs(30)), Some(1500), Some(64)));
        assert_eq!((flags.memory, flags.disk, flags.output_limit), (Some(512 << 20), Some(1 << 30), Some(10 << 20)));
        assert_eq!((flags.cwd, flags.checkpoint, flags.image), (Some("src".into()), Some("base".into()), Some("img".into())));
        assert_eq!((flags.allow_degraded, flags.require), (vec![Demand::Cpu, Demand::Memory], Some(Requirement::HardwareVm)));
    }
}
