//! Flags that say how to print; they are accepted before and after every verb.

use clap::{Args, ValueEnum};

/// How to print.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputFlags {
    /// Print the result, or the error, as JSON on stdout
    #[arg(long, global = true, overrides_with = "json")]
    pub(crate) json: bool,
    /// Say nothing but results, errors and warnings that a wall is down
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Say more about what is done
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
    /// When to use colour; NO_COLOR is honoured
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = ColorWish::Auto)]
    pub(crate) color: ColorWish,
}

/// When to use colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorWish {
    /// On a terminal, unless the environment says no
    #[default]
    Auto,
    /// Also into files and pipes
    Always,
    /// Not at all
    Never,
}
