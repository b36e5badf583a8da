//! The way out of the gateway itself: an egress process, and a broker where there are secrets, which stand as long as the server does.
//!
//! As any sandbox's, with one difference: the key that messages are signed with is the broker's alone. Egress is not told of it, so there is no request
//! that it could be put into.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use stockade_broker::SecretName;
use stockade_broker::binding::SecretBinding;
use stockade_broker::broker::{Bound, Registered, SandboxLabel, Wish};
use stockade_broker::client::Owner;
use stockade_core::credential::Class;
use stockade_core::host::HostPattern;
use stockade_core::id::SandboxId;
use stockade_core::reach::{Reach, SecretUse};
use stockade_sandbox::state::{Owned, Sandboxes};
use stockade_sandbox::wayout::WayOut;
use stockade_store::private_dir::ensure_private_dir;
use stockade_store::settings::SecretSetting;

use crate::Context;
use crate::egress::order::{self, Form, Order, VERSION, Word};
use crate::egress::outlet::{self, AUTHORITY};
use crate::egress::processes::{self, Role};
use crate::egress::record::Record;
use crate::failure::Failure;

const STEP: &str = "outbound";
/// How long egress may take to be ready.
const PATIENCE: Duration = Duration::from_secs(30);

/// The way out, while it stands.
pub(super) struct Way {
    out: WayOut,
    label: SandboxLabel,
    tokens: Vec<Bound>,
    standing: Mutex<Option<Standing>>,
}

struct Standing {
    egress: Role,
    keeper: Option<(Role, Owner)>,
    /// Where egress writes down what went out.
    owned: Owned,
}

impl Way {
    /// Starts it: to these hosts, with one key that signs and one token that is put in.
    pub(super) fn open(
        hosts: Vec<HostPattern>,
        key: Option<(SecretName, HostPattern)>,
        token: Option<(SecretName, HostPattern)>,
        settings: &[SecretSetting],
        context: &Context,
    ) -> Result<Self, Failure> {
        if let (Some((key, _)), Some((token, _))) = (&key, &token)
            && key == token
        {
            // A token is shown to whoever it is for, and could sign then.
            return Err(Failure::new("settings", format!("the secret `{key}` cannot be both the key that signs and a token")));
        }
        let places = context.places()?;
        let failed = |error: &dyn std::fmt::Display| Failure::new(STEP, format!("making its place: {error}"));
        let owned = Sandboxes::open(&places.state).and_then(|sandboxes| sandboxes.create()).map_err(|error| failed(&error))?;
        let label = SandboxLabel::from(&owned.id);
        let stood = secrets(&label, key, token.clone(), settings, context).and_then(|(keeper, lookup, tokens)| {
            let secrets = token.into_iter().map(|(name, host)| SecretUse::usual(name, vec![host])).collect();
            let reach = Reach { hosts, secrets, ..Reach::default() };
            let (egress, out) = egress(&owned.id, &owned.directory, reach, &tokens, lookup.as_ref(), settings, context)?;
            Ok((keeper, tokens, egress, out))
        });
        match stood {
            Ok((keeper, tokens, egress, out)) => {
                Ok(Self { out, label, tokens, standing: Mutex::new(Some(Standing { egress, keeper, owned })) })
            }
            Err(failure) => {
                // What is left is found by the next sweep.
                let _ = owned.remove();
                Err(failure)
            }
        }
    }

    /// A connection to egress, as to a proxy.
    pub(super) fn connect(&self) -> std::io::Result<UnixStream> {
        let (ours, theirs) = UnixStream::pair()?;
        self.out.pass(theirs.as_fd())?;
        ours.set_nonblocking(true)?;
        Ok(ours)
    }

    /// Has a message signed.
    pub(super) fn sign(&self, key: &SecretName, message: &[u8]) -> Result<[u8; 32], String> {
        match &mut *self.standing.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Standing { keeper: Some((_, owner)), .. }) => owner.sign(&self.label, key, message).map_err(|error| error.to_string()),
            Some(_) | None => Err("nobody can sign it".to_owned()),
        }
    }

    /// What stands for a token.
    pub(super) fn placeholder(&self, token: &SecretName) -> Option<String> {
        self.tokens.iter().find(|bound| bound.binding.name() == token).map(|bound| bound.placeholder.as_str().to_owned())
    }

    /// Ends it.
    pub(super) fn close(&self) {
        let Some(Standing { egress, keeper, owned }) = self.standing.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        egress.wait();
        if let Some((role, owner)) = keeper {
            drop(owner);
            role.wait();
        }
        // What is left is found by the next sweep.
        let _ = owned.remove();
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.close();
    }
}

/// Who holds the secrets, egress's own connection to them, and what stands for tokens.
type Kept = (Option<(Role, Owner)>, Option<UnixStream>, Vec<Bound>);

fn secrets(
    label: &SandboxLabel,
    key: Option<(SecretName, HostPattern)>,
    token: Option<(SecretName, HostPattern)>,
    settings: &[SecretSetting],
    context: &Context,
) -> Result<Kept, Failure> {
    let has_token = token.is_some();
    let wanted: Vec<(SecretName, HostPattern)> = token.into_iter().chain(key).collect();
    if wanted.is_empty() {
        return Ok((None, None, Vec::new()));
    }
    let names: Vec<&SecretName> = wanted.iter().map(|(name, _)| name).collect();
    let mut taken = outlet::taken(&names, settings, context);
    let mut wishes = Vec::new();
    let behind = wanted.iter().map(|(name, _)| outlet::behind(name, settings, &taken)).collect::<Result<Vec<_>, _>>()?;
    for ((name, host), behind) in wanted.into_iter().zip(behind) {
        let caller = taken.iter().position(|(known, _)| *known == name).and_then(|at| taken.swap_remove(at).1.ok());
        let binding = SecretBinding::new(name, [host]).map_err(|error| Failure::from_error("secret", &error))?;
        wishes.push(Wish { binding, caller, class: Class::ProxyOnly, behind });
    }
    let (role, lookup) = processes::broker(context)?;
    let refused = |error: &stockade_broker::client::ClientError| {
        let failure = Failure::new("secret", error.to_string());
        error.hint().map_or_else(|| failure.clone(), |hint| failure.clone().with_hint(hint))
    };
    let connection = role.connection.try_clone().map_err(|error| Failure::from_error("broker", &error))?;
    let mut owner = Owner::connect(connection).map_err(|error| refused(&error))?;
    let Registered { mut bound, .. } = owner.register(label, "gateway", wishes).map_err(|error| refused(&error))?;
    // The key is the last, and has no place in any request.
    bound.truncate(usize::from(has_token));
    Ok((Some((role, owner)), Some(lookup).filter(|_| has_token), bound))
}

fn egress(
    id: &SandboxId,
    directory: &Path,
    reach: Reach,
    tokens: &[Bound],
    lookup: Option<&UnixStream>,
    settings: &[SecretSetting],
    context: &Context,
) -> Result<(Role, WayOut), Failure> {
    let authority = context.places()?.state.join(AUTHORITY);
    ensure_private_dir(&authority).map_err(|error| Failure::from_error(STEP, &error))?;
    let record = Record::make(directory).map_err(|error| Failure::new(STEP, format!("making the record: {error}")))?;
    let (inside, outside) = outlet::channel()?;
    let (alarm, alarm_of_egress) = outlet::alarm()?;
    let role = processes::egress(context)?;
    let order = Order {
        version: VERSION,
        sandbox: id.clone(),
        reach,
        secrets: tokens.iter().map(|bound| outlet::substitute(bound, Form::Text, settings)).collect(),
        authority,
        roots: outlet::roots(context),
        logins: Vec::new(),
        pass: None,
        desk: None,
        agent: Vec::new(),
        trust: Vec::new(),
    };
    let [newer, older] = record.files();
    let always = [newer.as_fd(), older.as_fd(), outside.as_fd(), alarm_of_egress.as_fd()];
    let passed: Vec<_> = always.into_iter().chain(lookup.map(|stream| stream.as_fd())).collect();
    let said = order::send(&role.connection, &order, &passed).and_then(|()| {
        role.connection.set_read_timeout(Some(PATIENCE))?;
        order::hear(&role.connection)
    });
    match said {
        Ok(Word::Ready { .. }) => {}
        Ok(Word::Failed { message }) => return Err(Failure::new("egress", message)),
        Ok(Word::End { .. }) => return Err(Failure::new("egress", "it ended before it began")),
        Err(error) => return Err(Failure::new("egress", format!("it does not answer: {error}"))),
    }
    let out = WayOut {
        channel: inside,
        proxy_port: 0,
        ports: Vec::new(),
        authorities: None,
        java_authorities: None,
        shown: Vec::new(),
        agent: None,
        alarm: Some(alarm),
    };
    Ok((role, out))
}
