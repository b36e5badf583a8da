//! The file of requests and grants: made private, opened, and brought up to date.
//!
//! A rollback journal and full syncing: approvals are rare, and what was used up must stay so through a crash. All changes are immediate
//! transactions, so that of many processes one decides at a time.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};

use super::error::ApprovalError;

/// The directory beneath the state.
pub(crate) const DIRECTORY: &str = "approvals";
const FILE: &str = "approvals.db";
/// The steps from an empty file to the present form; the number of the last one is the file's `user_version`.
const MIGRATIONS: &[&str] = &[
    include_str!("../../schema/001_approvals.sql"),
    include_str!("../../schema/002_carried.sql"),
    include_str!("../../schema/003_told.sql"),
    include_str!("../../schema/004_ways.sql"),
    include_str!("../../schema/005_listener.sql"),
];
/// How long somebody else may hold it.
const PATIENCE: Duration = Duration::from_secs(30);

/// The directory of approvals.
pub(crate) fn directory(state: &Path) -> PathBuf {
    state.join(DIRECTORY)
}

/// Opens the file; makes it where there is none.
pub(super) fn open(state: &Path) -> Result<(Connection, PathBuf), ApprovalError> {
    let directory = directory(state);
    stockade_private_dir::ensure_private_dir(&directory).map_err(ApprovalError::Directory)?;
    let path = directory.join(FILE);
    // Made by hand, so that it and the journal beside it are for nobody else.
    match std::fs::File::options().write(true).create_new(true).mode(0o600).open(&path) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(ApprovalError::Create(path, error)),
    }
    connect(&path).map(|connection| (connection, path))
}

/// Opens the file where there is one.
pub(super) fn open_existing(state: &Path) -> Result<Option<(Connection, PathBuf)>, ApprovalError> {
    let path = directory(state).join(FILE);
    if path.symlink_metadata().is_err() {
        return Ok(None);
    }
    connect(&path).map(|connection| Some((connection, path)))
}

/// Takes a lock that lies beside the database; `None` while somebody else has it.
pub(super) fn lock(path: &Path, name: &str) -> Result<Option<std::fs::File>, ApprovalError> {
    let path = path.with_file_name(name);
    let failed = |error| ApprovalError::Create(path.clone(), error);
    let file = std::fs::File::options().write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(failed(error)),
    }
}

fn connect(path: &Path) -> Result<Connection, ApprovalError> {
    let failed = |source| ApprovalError::Database { step: "open", path: path.to_owned(), source };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let mut connection = Connection::open_with_flags(path, flags).map_err(failed)?;
    connection.busy_timeout(PATIENCE).map_err(failed)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false).map_err(failed)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true).map_err(failed)?;
    connection.pragma_update(None, "synchronous", "FULL").map_err(failed)?;
    let newest = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    if version(&connection).map_err(failed)? == newest {
        return Ok(connection);
    }
    let mut key = [0; 32];
    aws_lc_rs::rand::fill(&mut key).map_err(|_| ApprovalError::NoRandom)?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    // Another process may have been faster.
    let found = version(&transaction).map_err(failed)?;
    if found > newest {
        return Err(ApprovalError::Newer { path: path.to_owned(), version: found });
    }
    for step in MIGRATIONS.iter().skip(usize::try_from(found).unwrap_or(0)) {
        transaction.execute_batch(step).map_err(failed)?;
    }
    if found == 0 {
        transaction.execute("INSERT INTO store (one, key, latest) VALUES (1, ?1, 0)", params![key]).map_err(failed)?;
    }
    transaction.pragma_update(None, "user_version", newest).map_err(failed)?;
    transaction.commit().map_err(failed)?;
    Ok(connection)
}

fn version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("PRAGMA user_version", [], |row| row.get(0))
}
