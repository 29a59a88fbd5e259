-- Job lists are ordered by creation. Ids cannot give that order: those of jobs made under a key are
-- hashes. The order lives beside the hot row, in what is written once: an occurrence pays nothing.

-- Until a facet is written with its job's time, now() is right for every new job.
ALTER TABLE job_facets ADD COLUMN created_at timestamptz NOT NULL DEFAULT now();
UPDATE job_facets f SET created_at = j.created_at
FROM jobs j WHERE j.tenant_id = f.tenant_id AND j.job_id = f.job_id;
ALTER TABLE job_facets DROP CONSTRAINT job_facets_pkey;
ALTER TABLE job_facets ADD PRIMARY KEY (tenant_id, facet, created_at, job_id);

-- With the key under which a client declared it.
CREATE OR REPLACE VIEW job_rows AS
SELECT j.tenant_id, j.job_id, j.shard, j.state, j.version, j.window_ms, j.offset_ms, j.next_run_at,
       j.due_at, j.target_id, j.created_at, j.updated_at, v.definition, v.payload, j.job_key
FROM jobs j JOIN job_versions v USING (tenant_id, job_id, version);
