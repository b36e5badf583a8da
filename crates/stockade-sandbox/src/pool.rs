//! Warm workers: a template for each specification that is asked for, which keeps fresh jails ready.
//!
//! ```text
//!  (none) ─ first asked for ─▶ prepared ─▶ stands ─▶ jails are taken, used once, thrown away
//!                                 ▲          │
//!                                 └──────────┴─ what it shows of the host is not what there is: ended, prepared anew
//!                                            └─ nobody asked for a while, or others are wanted more: ended
//! ```
//!
//! The key is the digest of the whole specification: two calls that differ in anything share nothing. Before a jail is handed over, the plan is made
//! once more and compared (see [`Template::is_true`]), so a program, a directory or a secret file that changed since is never served as it was.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::connection::Passing;
use crate::launch::Want;
use crate::template::{Recipe, STOCK, Taken, Template, TemplateError};

/// What a template and its waiting jails hold, in bytes, as measured and rounded up.
const BYTES_OF_ONE: u64 = 8 << 20;
/// All templates together may hold this part of memory.
const PART_OF_MEMORY: u64 = 16;
/// However much memory there is: each also holds processes, mounts and control groups.
const MOST: u64 = 32;
/// A template that nobody used for so long is ended.
const IDLE: Duration = Duration::from_mins(5);

/// Templates by what is wanted of them.
#[derive(Debug)]
pub struct Pool {
    state: PathBuf,
    hidden: Vec<PathBuf>,
    most: usize,
    slots: Mutex<Vec<Slot>>,
}

/// A place for one template. Who prepares it keeps others of the same kind waiting, and nobody else.
#[derive(Debug)]
struct Slot {
    key: [u8; 32],
    used: Instant,
    template: Arc<Mutex<Option<Arc<Template>>>>,
}

impl Pool {
    /// An empty pool for the sandboxes of one state directory; nothing inside ever sees what is `hidden`.
    pub fn new(state: PathBuf, hidden: Vec<PathBuf>) -> Self {
        let info = rustix::system::sysinfo();
        let memory = u64::from(info.mem_unit).saturating_mul(info.totalram as u64);
        let most = (memory / PART_OF_MEMORY / BYTES_OF_ONE).clamp(2, MOST);
        Self { state, hidden, most: most as usize, slots: Mutex::default() }
    }

    /// A fresh jail.
    pub fn take(&self, want: &Want) -> Result<Taken, TemplateError> {
        let place = self.place(want);
        let standing = lock(&place).clone();
        let template = match standing {
            Some(template) if template.is_true() => template,
            stale => self.prepare(want, &place, stale.as_ref())?,
        };
        template.take()
    }

    /// A fresh jail of a kind that stands, by its digest; `None` where it does not, or does not show the host as it is.
    pub fn take_standing(&self, kind: &[u8; 32]) -> Option<Result<Taken, TemplateError>> {
        let mut slots = lock(&self.slots);
        let slot = slots.iter_mut().find(|slot| slot.key == *kind)?;
        slot.used = Instant::now();
        let place = Arc::clone(&slot.template);
        drop(slots);
        let standing = lock(&place).clone()?;
        standing.is_true().then(|| standing.take())
    }

    /// Ends what nobody used for a while.
    pub fn rest(&self) {
        let mut slots = lock(&self.slots);
        let (kept, idle) = std::mem::take(&mut *slots).into_iter().partition(|slot| slot.used.elapsed() < IDLE);
        *slots = kept;
        drop(slots);
        // Ending one takes a while, and nobody needs to wait for that.
        drop::<Vec<Slot>>(idle);
    }

    /// How many templates there are.
    pub fn count(&self) -> usize {
        lock(&self.slots).len()
    }

    fn place(&self, want: &Want) -> Arc<Mutex<Option<Arc<Template>>>> {
        let key = want.digest();
        let mut slots = lock(&self.slots);
        if let Some(slot) = slots.iter_mut().find(|slot| slot.key == key) {
            slot.used = Instant::now();
            return Arc::clone(&slot.template);
        }
        let oldest = slots.iter().enumerate().min_by_key(|(_, slot)| slot.used).map(|(at, _)| at);
        let ended = oldest.filter(|_| slots.len() >= self.most).map(|at| slots.swap_remove(at));
        let template = Arc::default();
        slots.push(Slot { key, used: Instant::now(), template: Arc::clone(&template) });
        drop(slots);
        drop(ended);
        template
    }

    /// Prepares a template in its place, unless somebody did so since `stale` was found wanting.
    fn prepare(
        &self,
        want: &Want,
        place: &Mutex<Option<Arc<Template>>>,
        stale: Option<&Arc<Template>>,
    ) -> Result<Arc<Template>, TemplateError> {
        let mut place = lock(place);
        if let Some(standing) = place.as_ref().filter(|standing| stale.is_none_or(|stale| !Arc::ptr_eq(stale, standing))) {
            return Ok(Arc::clone(standing));
        }
        drop(place.take());
        let template = Arc::new(Template::prepare(Recipe {
            spec: want.spec.clone(),
            state: self.state.clone(),
            home: want.home.clone(),
            toolchain_roots: want.toolchain_roots.clone(),
            hidden: self.hidden.clone(),
            passing: Passing::Possible,
            stock: STOCK,
        })?);
        *place = Some(Arc::clone(&template));
        Ok(template)
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
