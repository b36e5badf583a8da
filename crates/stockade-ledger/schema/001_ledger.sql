-- What is written with every receipt: three pages, so that a receipt costs little.

-- Which ledger this is. Never changes.
CREATE TABLE ledger (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    origin  TEXT NOT NULL,
    created TEXT NOT NULL
) STRICT;

-- Where the chain and the tree have got to. Read and written in the transaction that adds receipts.
CREATE TABLE head (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    size    INTEGER NOT NULL,
    digest  BLOB NOT NULL,
    peaks   BLOB NOT NULL,
    key_id  TEXT NOT NULL,
    indexed INTEGER NOT NULL
) STRICT;

-- The receipts themselves: canonical JSON, exactly the bytes that are hashed.
CREATE TABLE receipts (
    seq  INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;

-- Intents without an outcome yet, and who must write it.
CREATE TABLE open_intents (
    receipt_id TEXT PRIMARY KEY,
    seq        INTEGER NOT NULL,
    owner      TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Roots of complete blocks of 256 leaves, so that a proof reads one block and not the ledger.
CREATE TABLE blocks (
    number INTEGER PRIMARY KEY,
    root   BLOB NOT NULL
) STRICT;

-- Signed notes over the tree. Those made at regular sizes are kept, of those made at a close only the last.
CREATE TABLE checkpoints (
    size   INTEGER PRIMARY KEY,
    reason TEXT NOT NULL CHECK (reason IN ('regular', 'close', 'rotation')),
    note   TEXT NOT NULL
) STRICT;

-- The ledger's keys: the first, and each later one with the statement that both signed.
CREATE TABLE keys (
    since    INTEGER PRIMARY KEY,
    public   BLOB NOT NULL,
    rotation TEXT
) STRICT;

-- What receipts are looked for by. Derived from the receipts, some hundreds at a time, and never trusted: `verify` compares.
CREATE TABLE facts (
    seq        INTEGER PRIMARY KEY,
    receipt_id TEXT NOT NULL,
    time       INTEGER NOT NULL,
    kind       TEXT NOT NULL,
    agent      TEXT,
    session    TEXT,
    verdict    TEXT,
    capability TEXT,
    program    TEXT,
    sandbox    TEXT
) STRICT;
CREATE INDEX facts_receipt_id ON facts (receipt_id);
CREATE INDEX facts_kind ON facts (kind);
CREATE INDEX facts_agent ON facts (agent) WHERE agent IS NOT NULL;
CREATE INDEX facts_session ON facts (session) WHERE session IS NOT NULL;
CREATE INDEX facts_verdict ON facts (verdict) WHERE verdict IS NOT NULL;
CREATE INDEX facts_capability ON facts (capability) WHERE capability IS NOT NULL;
CREATE INDEX facts_program ON facts (program) WHERE program IS NOT NULL;
CREATE INDEX facts_sandbox ON facts (sandbox) WHERE sandbox IS NOT NULL;

-- Pairs that are asked for together and rarely meet.
CREATE INDEX facts_agent_verdict ON facts (agent, verdict) WHERE agent IS NOT NULL AND verdict IS NOT NULL;
CREATE INDEX facts_agent_program ON facts (agent, program) WHERE agent IS NOT NULL AND program IS NOT NULL;
CREATE INDEX facts_program_verdict ON facts (program, verdict) WHERE program IS NOT NULL AND verdict IS NOT NULL;

-- Between which times the receipts of a block of 256 were written. The clock may go backwards, so this is all that time says about place.
CREATE TABLE fact_times (
    block INTEGER PRIMARY KEY,
    least INTEGER NOT NULL,
    most  INTEGER NOT NULL
) STRICT;

CREATE TABLE fact_hosts (
    host TEXT NOT NULL,
    seq  INTEGER NOT NULL,
    PRIMARY KEY (host, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE fact_secrets (
    secret TEXT NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (secret, seq)
) STRICT, WITHOUT ROWID;
