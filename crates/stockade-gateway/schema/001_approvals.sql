-- What this file knows about itself. `latest` is the latest time that anybody wrote: a clock that goes back is noticed.
CREATE TABLE store (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    key BLOB NOT NULL CHECK (length(key) = 32),
    latest INTEGER NOT NULL
) STRICT;

-- Calls that a person was, or is, to decide about. `digest` is keyed, so that it tells nothing about values that were hashed.
CREATE TABLE requests (
    id TEXT PRIMARY KEY,
    digest TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'approved', 'granted', 'denied', 'expired', 'used')),
    asked INTEGER NOT NULL,
    asked_last INTEGER NOT NULL,
    times INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    principal TEXT NOT NULL,
    session TEXT,
    effect TEXT NOT NULL,
    title TEXT NOT NULL,
    shown TEXT NOT NULL,
    shown_sha256 TEXT NOT NULL,
    rules TEXT NOT NULL,
    receipt TEXT NOT NULL,
    decided INTEGER,
    decided_by TEXT,
    method TEXT,
    signature BLOB
) STRICT;

-- One call, one open question.
CREATE UNIQUE INDEX requests_open ON requests (digest) WHERE state IN ('pending', 'approved', 'denied');

-- What was approved for longer than one call.
CREATE TABLE grants (
    id TEXT PRIMARY KEY,
    digest TEXT NOT NULL,
    made INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    principal TEXT NOT NULL,
    session TEXT,
    effect TEXT NOT NULL,
    title TEXT NOT NULL,
    shown TEXT NOT NULL,
    shown_sha256 TEXT NOT NULL,
    uses INTEGER NOT NULL,
    granted_by TEXT NOT NULL,
    method TEXT NOT NULL,
    signature BLOB
) STRICT;

CREATE INDEX grants_digest ON grants (digest);

-- Passphrases that were tried since the last right one.
CREATE TABLE attempts (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    failed INTEGER NOT NULL,
    last INTEGER NOT NULL
) STRICT;
