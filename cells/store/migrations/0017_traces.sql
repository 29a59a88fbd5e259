-- The span in which a job was created or edited: its runs are traced back to it.
ALTER TABLE job_versions ADD COLUMN traceparent text;
