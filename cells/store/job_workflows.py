"""Runs of jobs whose work is a workflow: claimed here, begun and ended by the engine.

Such a run is RUNNING without a host, under a lease that does not end: nobody can die with it. Its claim
notes that a workflow is to start; the start and the cancel meet under the lock of the run; the turn that
closes the workflow notes the end, and completing the run changes nothing a second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cells.domain.ids import RunKey
from cells.domain.job import TargetType
from cells.ports import Claim
from cells.store.arrays import blobs, from_datetime, instants, int4s, int8s, labels, texts, uuids
from cells.store.claim_batch import ClaimBatch, claim_keys
from cells.store.database import Connection, run
from cells.workflow_ports import Turn

#: A lease that outlives everybody (milliseconds): a hundred years.
_WITHOUT_END_MS = 100 * 366 * 86_400_000


def take_workflows(batch: ClaimBatch) -> None:
    """Take what workflows are to do out of the claims. No round trip."""
    if any(_is_workflow(insert.claim) for insert in batch.inserts):
        batch.starts = [i for i in batch.inserts if _is_workflow(i.claim)]
        batch.inserts = [i for i in batch.inserts if not _is_workflow(i.claim)]
    if any(_is_workflow(claim) for claim in batch.updates):
        batch.starts_again = [c for c in batch.updates if _is_workflow(c)]
        batch.updates = [c for c in batch.updates if not _is_workflow(c)]


async def begin_workflows(connection: Connection, batch: ClaimBatch) -> list[Claim]:
    """Write them, inside the claim's pipeline; the claims that were won for workflows."""
    if not batch.starts and not batch.starts_again:
        return []
    ours = ClaimBatch(now=batch.now)
    ours.inserts = [i._replace(claim=replace(i.claim, lease_ms=_WITHOUT_END_MS)) for i in batch.starts]
    ours.updates = [replace(claim, lease_ms=_WITHOUT_END_MS) for claim in batch.starts_again]
    if ours.inserts:
        await run(connection, "claim_insert_runs", ours.insert_columns(None))
    if ours.updates:
        await run(connection, "claim_update_runs", ours.update_columns(None))
    claims = ours.claims()
    columns = {**claim_keys(claims), "epochs": int8s([claim.epoch for claim in claims])}
    await run(connection, "job_workflow_begin", columns)
    return claims


async def close_workflows(connection: Connection, turns: Sequence[Turn]) -> None:
    """The workflows that runs wait for are closed by these turns."""
    ended = [(turn, turn.ends_run) for turn in turns if turn.ends_run is not None]
    if not ended:
        return
    await run(
        connection,
        "job_workflow_closed",
        {
            "tenants": uuids([turn.taken.row.tenant_id for turn, _ in ended]),
            **run_columns([key for _, key in ended]),
            "statuses": labels([turn.status for turn, _ in ended]),
            "errors": texts([turn.error for turn, _ in ended]),
            "results": blobs([turn.result for turn, _ in ended]),
            "runs": uuids([turn.taken.row.run_id for turn, _ in ended]),
        },
    )


def run_columns(keys: Sequence[RunKey]) -> dict[str, object]:
    """Runs, but for their tenants."""
    return {
        "parents": uuids([key.parent_id for key in keys]),
        "instants": instants([from_datetime(key.scheduled_for) for key in keys]),
        "ordinals": int4s([key.ordinal for key in keys]),
    }


def _is_workflow(claim: Claim) -> bool:
    return claim.definition.target.type == TargetType.WORKFLOW
