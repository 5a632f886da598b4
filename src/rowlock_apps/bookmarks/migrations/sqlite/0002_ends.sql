-- When an import began, kept like its end: it is asked for also when the batch is forgotten.
ALTER TABLE bookmarks_imports ADD COLUMN started_at text;
