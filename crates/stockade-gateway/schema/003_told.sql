-- The state that somebody outside was last told of; empty: none. Where it differs from `state` there may be something to tell.
ALTER TABLE requests ADD COLUMN told TEXT NOT NULL DEFAULT '';
