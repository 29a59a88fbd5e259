-- name: tail_from
-- From when on a copy of this database may lack rows: the last that were written under an earlier epoch, and as much
-- before that as a transaction may take. A database without any such row lacks all of them.
SELECT coalesce(max(at) - interval '60 seconds', to_timestamp(0)) FROM journal WHERE epoch < %(epoch)s;

-- name: tail_rows
-- What was written from then on.
SELECT host_id, seq, at, epoch, body FROM journal WHERE at >= %(since)s ORDER BY at, host_id, seq;

-- name: tail_known
-- Which of these rows this database has from an earlier epoch: numbers of hosts may be given anew under a later one.
SELECT j.host_id, j.seq FROM journal j
JOIN unnest(%(hosts)s::bigint[], %(seqs)s::bigint[]) AS n (host_id, seq) ON j.host_id = n.host_id AND j.seq = n.seq
WHERE j.at >= %(since)s AND j.epoch < %(epoch)s;
