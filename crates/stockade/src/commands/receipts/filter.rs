//! From flags to what the ledger looks for.

use clap::ValueEnum as _;
use jiff::{SignedDuration, Timestamp};
use stockade_core::limits::parse_duration;
use stockade_ledger::query::Filter;

use crate::cli::FilterFlags;
use crate::failure::Failure;

/// What the ledger looks for.
pub(super) fn of(flags: &FilterFlags) -> Result<Filter, Failure> {
    let FilterFlags { since, until, agent, session, verdict, kind, capability, program, host, secret, sandbox } = flags;
    let now = Timestamp::now();
    let word = |value: Option<clap::builder::PossibleValue>| value.map(|value| value.get_name().to_owned());
    Ok(Filter {
        since: since.as_deref().map(|text| time(text, now)).transpose()?,
        until: until.as_deref().map(|text| time(text, now)).transpose()?,
        receipt_id: None,
        kind: word(kind.and_then(|kind| kind.to_possible_value())),
        agent: agent.clone(),
        session: session.clone(),
        verdict: word(verdict.and_then(|verdict| verdict.to_possible_value())),
        capability: capability.clone(),
        program: program.clone(),
        sandbox: sandbox.clone(),
        host: host.clone(),
        secret: secret.clone(),
    })
}

/// A moment, or so long before now.
pub(crate) fn time(text: &str, now: Timestamp) -> Result<Timestamp, Failure> {
    let bad = || {
        let shown = stockade_core::escape::escape(text);
        Failure::new("arguments", format!("`{shown}` is not a time")).with_hint("write 2026-11-16T07:00:00Z, or 2h for two hours ago")
    };
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment);
    }
    let ago = parse_duration(text).ok().and_then(|ago| SignedDuration::try_from(ago).ok()).ok_or_else(bad)?;
    now.checked_sub(ago).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{KindChoice, VerdictChoice};

    #[test]
    fn times_are_moments_or_so_long_ago() {
        let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        let moment = |text: &str| time(text, now).map(|moment| moment.to_string()).map_err(|failure| failure.kind.code());
        assert_eq!(moment("2h"), Ok("2026-11-16T10:00:00Z".to_owned()));
        assert_eq!(moment("2026-01-02T03:04:05+01:00"), Ok("2026-01-02T02:04:05Z".to_owned()));
        for bad in ["", "yesterday", "-1h", "99999999999d"] {
            assert_eq!(moment(bad), Err(125), "{bad}");
        }
    }

    #[test]
    fn words_are_those_of_receipts() {
        let flags = FilterFlags { verdict: Some(VerdictChoice::Deny), kind: Some(KindChoice::Denied), ..FilterFlags::default() };
        let filter = of(&flags).unwrap();
        assert_eq!((filter.verdict.as_deref(), filter.kind.as_deref()), (Some("deny"), Some("denied")));
    }
}
