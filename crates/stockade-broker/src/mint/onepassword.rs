//! 1Password: one field of an item, printed by the person's own `op`, which asks them as it always does (fingerprint, app, or a service account).

use std::fmt::Write as _;

use stockade_core::escape::escape;
use stockade_store::settings::providers::Onepassword;

use super::program::{Hints, operand, value_of};
use super::{Asking, MintError, Minted, told};

const STEP: &str = "reading from 1Password";

/// Has `op` print the field.
pub(crate) fn mint(onepassword: &Onepassword, asking: &Asking<'_>) -> Result<Minted, MintError> {
    let Onepassword { reference, account } = onepassword;
    // At least vault, item and field.
    let parts = reference.strip_prefix("op://").map(|rest| rest.split('/').map(str::trim).collect::<Vec<_>>());
    if parts.is_none_or(|parts| parts.len() < 3 || parts.iter().any(|part| part.is_empty())) {
        return Err(MintError::new(STEP, format!("`{}` is no reference: write op://VAULT/ITEM/FIELD", escape(reference))));
    }
    let mut argv = ["op", "read", "--no-newline", reference].map(str::to_owned).to_vec();
    let mut scope = reference.clone();
    if let Some(account) = account {
        argv.extend(["--account".to_owned(), operand(STEP, "account", account)?]);
        let _ = write!(scope, " of {account}");
    }
    let hints = Hints {
        missing: "install 1Password's command-line tool `op`, then sign in: op signin".to_owned(),
        failed: "sign in and see whether the item is there: op signin, then op item list".to_owned(),
    };
    Ok(Minted::new(value_of(STEP, &argv, asking, hints)?, None, told::scope(&scope)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::mint::stand_in::{ask, ask_in, program};

    const VALUE: &str = "the-value-of-the-field";

    fn setting(reference: &str) -> serde_json::Value {
        json!({"source": "onepassword", "reference": reference})
    }

    #[test]
    fn op_is_asked_for_the_reference_and_nothing_else() {
        let op = program("op", r#"[ "$#|$1|$2|$3" = "3|read|--no-newline|op://my vault/item/field" ] && printf the-value-of-the-field"#);
        let minted = ask_in(op.path(), &setting("op://my vault/item/field"), &[]).unwrap();
        assert_eq!((minted.value.to_text().as_str(), minted.expires, minted.scope.as_str()), (VALUE, None, "op://my vault/item/field"));
        assert!(minted.revoke.is_none());

        let op = program("op", r#"[ "$#|$3|$4|$5" = "5|op://v/i/f|--account|me.example" ] && printf the-value-of-the-field"#);
        let setting = json!({"source": "onepassword", "reference": "op://v/i/f", "account": "me.example"});
        assert_eq!(ask_in(op.path(), &setting, &[]).unwrap().scope, "op://v/i/f of me.example");
    }

    #[test]
    fn what_op_prints_is_never_repeated() {
        for (script, says) in [
            ("echo the-value-of-the-field; echo the-value-of-the-field >&2; exit 6", "exit status: 6"),
            ("printf 'the-value-of-the-field\\nand more of it'", "line break"),
            ("printf 'the-value-of-the-field\\0'", "control character"),
            ("printf ''", "empty"),
            ("kill -9 $$", "signal: 9"),
        ] {
            let error = ask_in(program("op", script).path(), &setting("op://v/i/f"), &[]).err().unwrap();
            let told = format!("{error} {error:?}");
            assert!(told.contains(says) && told.contains("op signin") && !told.contains("the-value"), "{told}");
        }
        let error = ask_in("/nowhere", &setting("op://v/i/f"), &[]).err().unwrap();
        assert!(error.to_string().contains("no program `op`") && error.hint.unwrap().contains("install"));
    }

    #[test]
    fn only_references_are_asked_for() {
        for bad in ["--help", "op:/v/i/f", "op://v/i", "op://v//f", "op://", "vault/item/field", "op://v/ /f"] {
            let error = ask(&setting(bad), &[]).err().unwrap();
            assert!(error.why.contains("op://VAULT/ITEM/FIELD"), "{bad}: {error}");
        }
        let setting = json!({"source": "onepassword", "reference": "op://v/i/f", "account": "--cache"});
        assert!(ask(&setting, &[]).err().unwrap().why.contains("option"));
    }
}
