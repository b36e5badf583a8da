-- What clients carried back: each counts once, also after a restart. Kept for longer than what was carried lasts.
CREATE TABLE carried (
    nonce TEXT PRIMARY KEY,
    expires INTEGER NOT NULL
) STRICT;
