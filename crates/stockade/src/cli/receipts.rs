//! `stockade receipts`: what was asked for, what was decided, what happened.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use stockade_ledger::export::Format;
use stockade_ledger::receipt::ReceiptId;

/// Look at receipts, check them, hand them on.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct ReceiptsArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) verb: ReceiptsVerb,
}

/// What to do with receipts.
#[derive(Debug, Subcommand)]
pub(crate) enum ReceiptsVerb {
    /// Print receipts, newest first
    List(ListReceiptsArgs),
    /// Print everything about one call
    Show(OneReceipt),
    /// Print the newest receipts, oldest first, and with --follow those that come
    Tail(TailArgs),
    /// Check every record, signature and checkpoint of the ledger, or of an export
    Verify(VerifyArgs),
    /// Write receipts in a form that others can read or check
    Export(ExportArgs),
    /// Write one call with the proof that it is in the ledger
    Prove(ProveArgs),
    /// Say what another policy would have made of a call
    Replay(ReplayArgs),
    /// Write a timeline for people
    Report(ReportArgs),
}

/// Which receipts.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Which receipts")]
pub(crate) struct FilterFlags {
    /// Written at this time or later (2026-11-16T07:00:00Z), or so long ago (2h)
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Written before this time
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,
    /// Of this agent (client/name)
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Of this conversation
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// With this verdict
    #[arg(long, value_enum, value_name = "VERDICT")]
    pub(crate) verdict: Option<VerdictChoice>,
    /// Of this kind
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) kind: Option<KindChoice>,
    /// Of this capability, such as stockade.sandbox.apply
    #[arg(long, value_name = "NAME")]
    pub(crate) capability: Option<String>,
    /// Of this program, by its name without directories
    #[arg(long, value_name = "NAME")]
    pub(crate) program: Option<String>,
    /// That tried to reach this host
    #[arg(long, value_name = "HOST")]
    pub(crate) host: Option<String>,
    /// That were given, or used, this secret
    #[arg(long, value_name = "NAME")]
    pub(crate) secret: Option<String>,
    /// Of this sandbox, by its id
    #[arg(long, value_name = "ID")]
    pub(crate) sandbox: Option<String>,
}

/// What policy said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum VerdictChoice {
    /// It was allowed
    Allow,
    /// A person was asked
    Ask,
    /// It was denied
    Deny,
}

/// What a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KindChoice {
    /// Something is about to happen
    Intent,
    /// It happened
    Outcome,
    /// It was refused
    Denied,
    /// Somebody agreed
    Approval,
    /// A credential was handed out
    Credential,
    /// Something was reached
    Network,
    /// Something of Stockade's own was changed
    Lifecycle,
    /// The ledger itself changed
    Checkpoint,
}

/// `receipts list`
#[derive(Debug, Args)]
pub(crate) struct ListReceiptsArgs {
    /// Which.
    #[command(flatten)]
    pub(crate) filter: FilterFlags,
    /// At most so many
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 50)]
    pub(crate) limit: usize,
    /// Only receipts before this number
    #[arg(long, value_name = "SEQ")]
    pub(crate) before: Option<u64>,
}

/// One call.
#[derive(Debug, Args)]
pub(crate) struct OneReceipt {
    /// The call's id, as `receipts list` prints it
    #[arg(value_name = "ID")]
    pub(crate) id: ReceiptId,
}

/// `receipts tail`
#[derive(Debug, Args)]
pub(crate) struct TailArgs {
    /// How many to begin with
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 10, conflicts_with = "from")]
    pub(crate) lines: usize,
    /// Begin with this number; who remembers the last one misses none
    #[arg(long, value_name = "SEQ")]
    pub(crate) from: Option<u64>,
    /// Wait for more, until interrupted
    #[arg(short, long)]
    pub(crate) follow: bool,
}

/// `receipts verify`
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// An export to check instead of the ledger itself; `-` is standard input
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) file: Option<PathBuf>,
    /// A public key to trust (a PEM file), instead of the ledger's own; may be repeated
    #[arg(long = "key", value_name = "PUB", value_hint = clap::ValueHint::FilePath)]
    pub(crate) keys: Vec<PathBuf>,
    /// Also look whether programs are still those that ran
    #[arg(long, conflicts_with = "file")]
    pub(crate) binaries: bool,
}

/// `receipts export`
#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// The form: jsonl (which `receipts verify` takes), ocsf, otlp, intoto or csv
    #[arg(long, value_name = "FORMAT", default_value = "jsonl")]
    pub(crate) format: Format,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// Which.
    #[command(flatten)]
    pub(crate) filter: FilterFlags,
}

/// `receipts prove`
#[derive(Debug, Args)]
pub(crate) struct ProveArgs {
    /// The call's id, as `receipts list` prints it
    #[arg(value_name = "ID")]
    pub(crate) id: ReceiptId,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
}

/// `receipts replay`
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The call's id, as `receipts list` prints it
    #[arg(value_name = "ID")]
    pub(crate) id: ReceiptId,
    /// A directory of *.cedar files, taken as if they were your own rules
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) policy: PathBuf,
}

/// `receipts report`
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The form
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = ReportForm::Markdown)]
    pub(crate) format: ReportForm,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// Which.
    #[command(flatten)]
    pub(crate) filter: FilterFlags,
}

/// The form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReportForm {
    /// Markdown
    Markdown,
    /// A page that needs nothing else
    Html,
}

const EXAMPLES: &str = "\
Examples:
  stockade receipts list --since 1h --verdict deny
  stockade receipts show 01995a3e-0000-7000-8000-000000000000
  stockade receipts tail --follow
  stockade receipts verify
  stockade receipts export --output receipts.jsonl
  stockade receipts verify receipts.jsonl --key key.pub.pem
  stockade receipts report --agent claude/main --format html --output day.html";
