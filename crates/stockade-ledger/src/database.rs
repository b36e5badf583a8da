//! Opening the database: fast where it exists, under a lock where it must be made or brought up to date.
//!
//! The write-ahead log is left behind when a process ends: emptying it costs two fsyncs, and a short `run` must not pay for them. The next one
//! to open reads it again, so it is kept short instead ([`SHORT_LOG`]).

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, params};
use rustix::fs::FlockOperation;
use stockade_verify::merkle::Frontier;
use stockade_verify::record::first_prev;

use crate::error::{LedgerError, Problem};
use crate::head::Head;
use crate::signing::{self, LedgerKey};

/// The steps from an empty file to the present form; the number of the last one is the file's `user_version`.
const MIGRATIONS: &[&str] = &[include_str!("../schema/001_ledger.sql")];
/// How often a held lock is tried again: about thirty seconds in all.
const MOST_TRIES: i32 = 12_000;
/// Pages of write-ahead log that a process which writes little leaves behind.
pub(crate) const SHORT_LOG: u32 = 128;
/// Pages of write-ahead log that a process which writes much works with.
pub(crate) const LONG_LOG: u32 = 2048;
/// Bytes of write-ahead log that are worth emptying when nobody waits: each page is read again by the next one to open the ledger.
const WORTH_EMPTYING: u64 = 96 << 10;
/// The database's name in its directory.
pub const FILE: &str = "ledger.db";

/// Opens a ledger for writing; makes it where there is none.
pub(crate) fn open(directory: &Path) -> Result<Connection, LedgerError> {
    let path = directory.join(FILE);
    if let Some(connection) = open_existing(&path)?
        && version(&connection, &path)? == newest()
    {
        return Ok(connection);
    }
    prepare(directory, &path)
}

/// Opens a ledger to look at it. What it holds may be older than this program knows.
pub(crate) fn open_to_read(directory: &Path) -> Result<Connection, LedgerError> {
    let path = directory.join(FILE);
    // A write-ahead log can be read only with its index, which even a reader has to write.
    let Some(connection) = open_existing(&path)? else {
        return Err(LedgerError::file("open", &path)(std::io::ErrorKind::NotFound.into()));
    };
    let found = version(&connection, &path)?;
    if found == 0 {
        // Somebody is about to begin it, or died while doing so; either way it holds nothing yet.
        return Err(LedgerError::file("open", &path)(std::io::ErrorKind::NotFound.into()));
    }
    connection.pragma_update(None, "query_only", true).map_err(LedgerError::database("open", &path))?;
    if found == newest() { Ok(connection) } else { Err(LedgerError::Damaged { path, what: "it was never finished" }) }
}

/// Whether the write-ahead log has grown so long that it should be emptied.
pub(crate) fn is_log_long(directory: &Path) -> bool {
    std::fs::metadata(directory.join(format!("{FILE}-wal"))).is_ok_and(|log| log.len() > WORTH_EMPTYING)
}

fn newest() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

fn open_existing(path: &Path) -> Result<Option<Connection>, LedgerError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    // Asked before and not after: a file that another process makes in between would make "there is none" look like a failure.
    if !path.exists() {
        return Ok(None);
    }
    let mut connection = Connection::open_with_flags(path, flags).map_err(LedgerError::database("open", path))?;
    configure(&mut connection).map_err(LedgerError::database("open", path))?;
    Ok(Some(connection))
}

fn configure(connection: &mut Connection) -> Result<(), rusqlite::Error> {
    connection.busy_handler(Some(wait))?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.execute_batch(&format!("PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = {SHORT_LOG}"))
}

/// Waits a little before a held lock is tried again; longer each time, never the same as the neighbour.
fn wait(tries: i32) -> bool {
    if tries >= MOST_TRIES {
        return false;
    }
    let jitter = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.subsec_nanos() % 509);
    let base = match tries {
        0..10 => 100,
        10..100 => 500,
        _ => 2000,
    };
    std::thread::sleep(Duration::from_micros(base + u64::from(jitter)));
    true
}

fn version(connection: &Connection, path: &Path) -> Result<i64, LedgerError> {
    let version = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(LedgerError::database("open", path))?;
    if version > newest() { Err(LedgerError::Newer { path: path.to_owned(), version }) } else { Ok(version) }
}

/// Makes the ledger, or brings it up to date, while nobody else does.
fn prepare(directory: &Path, path: &Path) -> Result<Connection, LedgerError> {
    stockade_private_dir::ensure_private_dir(directory).map_err(|error| LedgerError::Directory(std::sync::Arc::new(error)))?;
    let _lock = lock(&directory.join("lock"))?;
    // The file is made by hand, so that it and what SQLite puts beside it is for nobody else.
    match std::fs::File::options().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(LedgerError::file("create", path)(error)),
    }
    let mut connection =
        open_existing(path)?.ok_or_else(|| LedgerError::Database { step: "open", path: path.to_owned(), problem: Problem::CannotOpen })?;
    let begun = version(&connection, path)?;
    if begun == newest() {
        return Ok(connection);
    }
    let fail = || LedgerError::database("prepare", path);
    connection.pragma_update(None, "journal_mode", "WAL").map_err(fail())?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(fail())?;
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate).map_err(fail())?;
    for step in MIGRATIONS.iter().skip(usize::try_from(begun).unwrap_or(0)) {
        transaction.execute_batch(step).map_err(fail())?;
    }
    if begun == 0 {
        found(&transaction, directory, path)?;
    }
    transaction.pragma_update(None, "user_version", newest()).map_err(fail())?;
    transaction.commit().map_err(fail())?;
    connection.pragma_update(None, "synchronous", "NORMAL").map_err(fail())?;
    signing::sync_directory(directory)?;
    crate::reserve::make(directory);
    Ok(connection)
}

/// A new ledger: a name, a key, and a tree without leaves.
fn found(transaction: &rusqlite::Transaction<'_>, directory: &Path, path: &Path) -> Result<(), LedgerError> {
    let key_path = LedgerKey::path(directory);
    // A key that is already here is from a beginning that was cut short.
    let key = match LedgerKey::load(&key_path) {
        Err(LedgerError::NoKey(_)) => LedgerKey::create(&key_path)?,
        other => other?,
    };
    signing::publish(directory, key.public())?;
    let origin = format!("stockade.receipts/{}", uuid::Uuid::now_v7().hyphenated());
    let head = Head { tree: Frontier::default(), digest: first_prev(&origin), key_id: key.public().id().to_owned(), indexed: 0 };
    let insert = || -> Result<(), rusqlite::Error> {
        transaction.execute("INSERT INTO ledger VALUES (1, ?1, ?2)", params![origin, format!("{:.6}", Timestamp::now())])?;
        transaction.execute("INSERT INTO keys VALUES (0, ?1, NULL)", params![key.public().as_bytes()])?;
        transaction.execute("INSERT INTO head VALUES (1, 0, x'', x'', '', 0)", [])?;
        head.write(transaction)
    };
    insert().map_err(LedgerError::database("prepare", path))
}

/// Takes a lock, or gives up after the time that a held database is waited for.
pub(crate) fn lock(path: &Path) -> Result<std::fs::File, LedgerError> {
    for tries in 0.. {
        if let Some(file) = lock_if_free(path)? {
            return Ok(file);
        }
        if !wait(tries) {
            break;
        }
    }
    Err(LedgerError::Database { step: "prepare", path: path.to_owned(), problem: Problem::Held })
}

/// Takes a lock that nobody holds.
pub(crate) fn lock_if_free(path: &Path) -> Result<Option<std::fs::File>, LedgerError> {
    let file = std::fs::File::options().write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = file.map_err(LedgerError::file("open", path))?;
    match rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(LedgerError::file("lock", path)(errno.into())),
    }
}
