-- Passphrases that were tried since the last right one, for each way that they came.
CREATE TABLE attempts_by_way (
    way TEXT PRIMARY KEY CHECK (way IN ('terminal', 'http')),
    failed INTEGER NOT NULL,
    last INTEGER NOT NULL
) STRICT;
INSERT INTO attempts_by_way SELECT 'terminal', failed, last FROM attempts;
DROP TABLE attempts;
ALTER TABLE attempts_by_way RENAME TO attempts;
