-- Who outside is told, by the SHA-256 of what settings call them; empty: nobody yet. Another one is not told what is over.
ALTER TABLE store ADD COLUMN listener TEXT NOT NULL DEFAULT '';
