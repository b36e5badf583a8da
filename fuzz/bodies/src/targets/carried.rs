//! What a client brings back from a server that keeps nothing between two messages: the sealed `requestState`.

use std::sync::{Mutex, OnceLock, PoisonError};

use stockade_gateway::approvals::{Asking, Bound, Input as Stdin, Otherwise, RequestId, Settled, Store, Wanted};

use crate::input::Input;
use crate::scratch::Scratch;

const NOW: i64 = 1_800_000_000;
const PRINCIPAL: &str = "Agent::\"codex/main\"";
/// Seconds that a sealed one lasts.
const LASTS: i64 = 600;

/// One store for all inputs: what is tried leaves nothing in it but numbers of what was opened.
struct Ground {
    store: Store,
    id: RequestId,
    _scratch: Scratch,
}

/// The first byte says what is done: text of the input's own is opened, or what was sealed is changed, given to another, kept too long or used twice.
pub fn body(data: &[u8]) {
    static GROUND: OnceLock<Mutex<Ground>> = OnceLock::new();
    let ground = &mut *GROUND.get_or_init(|| Mutex::new(ground())).lock().unwrap_or_else(PoisonError::into_inner);
    let mut input = Input(data);
    match input.byte() % 4 {
        0 => {
            let text = String::from_utf8_lossy(input.0);
            assert!(ground.store.unseal(&text, PRINCIPAL, NOW).is_err(), "{text:?}");
        }
        1 => {
            let sealed = ground.store.seal(&ground.id, NOW).expect("it waits");
            let mut changed = sealed.clone().into_bytes();
            while !input.is_empty() {
                let (at, what) = (usize::from(input.short()) % changed.len(), input.byte());
                match what % 3 {
                    0 => changed[at] = input.byte(),
                    1 => changed.truncate(at.max(1)),
                    _ => changed.insert(at, input.byte()),
                }
            }
            let opened = String::from_utf8(changed)
                .ok()
                .filter(|changed| *changed != sealed)
                .map(|changed| ground.store.unseal(&changed, PRINCIPAL, NOW));
            assert!(opened.is_none_or(|opened| opened.is_err()));
            // Trying spoils nothing.
            assert_eq!(ground.store.unseal(&sealed, PRINCIPAL, NOW).expect("the one that was sealed"), ground.id);
        }
        2 => {
            let sealed = ground.store.seal(&ground.id, NOW).expect("it waits");
            let other = String::from_utf8_lossy(input.0);
            assert_eq!(ground.store.unseal(&sealed, &other, NOW).is_ok(), other == PRINCIPAL, "{other:?}");
        }
        _ => {
            let sealed = ground.store.seal(&ground.id, NOW).expect("it waits");
            // Not before the store's own time: that ends everything, as it should.
            let later = i64::from(input.word() % 2000);
            let opened = ground.store.unseal(&sealed, PRINCIPAL, NOW + later);
            assert_eq!(opened.is_ok(), later < LASTS, "{later}");
            assert!(ground.store.unseal(&sealed, PRINCIPAL, NOW + later).is_err(), "it counts once");
            if later > 60 {
                // The clock that it took along is not turned back: a store of its own for the next.
                *ground = self::ground();
            }
        }
    }
}

fn ground() -> Ground {
    let scratch = Scratch::new();
    let mut store = Store::open(&scratch.path()).expect("a store");
    let bound = Bound {
        principal: PRINCIPAL.to_owned(),
        wanted: Wanted::Program(vec![b"git".to_vec(), b"push".to_vec()]),
        effect: "write".to_owned(),
        programs: Vec::new(),
        cwd: "/work".into(),
        environment: Vec::new(),
        input: Stdin::Nothing,
        operands: Vec::new(),
        credentials: Vec::new(),
        policy: "22".repeat(32),
        sandbox: "{}".to_owned(),
        surroundings: Vec::new(),
        because: Vec::new(),
    };
    let shown = bound.shown();
    let asking = Asking { bound: &bound, title: &bound.title(), shown: &shown, session: None, rules: &[], receipt: "r" };
    let Ok(Settled::Waits(waiting)) = store.settle(&asking, None, Otherwise::File, NOW) else { panic!("nothing waits") };
    Ground { store, id: RequestId::parse(&waiting.id).expect("an id"), _scratch: scratch }
}

/// Text that could be one, changes of a real one, other principals and later times.
pub fn seeds() -> Vec<Vec<u8>> {
    let sealed = ground().store_sealed();
    let mut seeds = vec![[&[0], sealed.as_bytes()].concat(), vec![0], b"\x00AAAA".to_vec(), b"\x00not base64!".to_vec()];
    seeds.extend([b"\x01\x05\x00\x00A".to_vec(), b"\x01\x08\x00\x01".to_vec(), b"\x01\x00\x00\x02A".to_vec(), vec![1]]);
    seeds.extend([[&[2], PRINCIPAL.as_bytes()].concat(), b"\x02Agent::\"codex/other\"".to_vec(), vec![2]]);
    seeds.extend([0_u32, 599, 600, 1999].map(|later| [&[3][..], &later.to_le_bytes()].concat()));
    seeds
}

impl Ground {
    fn store_sealed(mut self) -> String {
        self.store.seal(&self.id, NOW).expect("it waits")
    }
}
