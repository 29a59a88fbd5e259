"""Which tables of a cell move with a tenant. Every table is here: a test compares this with the catalogue,
so that a new one has to be decided."""

from __future__ import annotations

import enum


class Fate(enum.Enum):
    """What becomes of a tenant's rows in a table."""

    MOVES = "moves"  # copied, compared to the last row, deleted at the source
    AGES = "ages"  # moves; but either cell may have forgotten rows whose time was over
    MARKS = "marks"  # part of the copying itself
    STAYS = "stays"  # belongs to the cell


FATES: dict[str, Fate] = {
    "backfills": Fate.MOVES,
    "calendar_versions": Fate.MOVES,
    "calendars": Fate.MOVES,
    "cell": Fate.STAYS,
    "dlq": Fate.MOVES,
    "erased_tenants": Fate.STAYS,  # each cell is told by itself
    "events": Fate.AGES,
    "hosts": Fate.STAYS,
    "idempotency_keys": Fate.AGES,
    "job_facets": Fate.MOVES,
    "job_usage": Fate.STAYS,  # counted from the journal, and read by where the tenant lived
    "job_versions": Fate.MOVES,
    "job_workflows": Fate.MOVES,
    "jobs": Fate.MOVES,
    # What was counted here is sealed and shipped by the cell that counted it.
    "journal": Fate.STAYS,
    "journal_readers": Fate.STAYS,
    "lake_days": Fate.STAYS,
    "lake_files": Fate.STAYS,
    "lake_touches": Fate.STAYS,
    "lake_workflow_files": Fate.STAYS,
    "lake_workflow_tenants": Fate.STAYS,
    "lake_writer": Fate.STAYS,
    "lengthened_pages": Fate.STAYS,
    # No tenant moves that has rows in a local store.
    "local_stores": Fate.STAYS,
    "meter_minutes": Fate.STAYS,
    "meter_state": Fate.STAYS,
    "meter_stored": Fate.STAYS,
    "operations": Fate.AGES,
    "reconciliation": Fate.AGES,
    "returned_tenants": Fate.AGES,
    "returns": Fate.STAYS,
    "run_stats": Fate.AGES,
    "runs": Fate.MOVES,
    "schema_migrations": Fate.STAYS,
    "selection_chunks": Fate.AGES,
    "selections": Fate.AGES,
    "shard_leases": Fate.STAYS,
    "snapshots": Fate.STAYS,  # of a local store
    "target_drills": Fate.MOVES,
    "target_secrets": Fate.AGES,
    "target_stats": Fate.AGES,
    "targets": Fate.MOVES,
    "task_queues": Fate.MOVES,
    "task_workers": Fate.AGES,
    "tenant_tzdata": Fate.MOVES,
    "tenants": Fate.STAYS,  # its row is written by the move itself
    "transfer_marks": Fate.MARKS,
    "transfers": Fate.STAYS,
    "unread_sites": Fate.STAYS,
    "workflow_definitions": Fate.MOVES,
    "workflow_events": Fate.MOVES,
    "workflow_ids_used": Fate.AGES,
    "workflow_inbox": Fate.MOVES,
    "workflow_signals": Fate.MOVES,
    "workflows": Fate.MOVES,
}

#: Replicated, the marks among them.
PUBLISHED: tuple[str, ...] = tuple(name for name, fate in FATES.items() if fate is not Fate.STAYS)
#: Whose rows are compared, and deleted where they are no longer wanted. What refers comes before what it
#: refers to.
COPIED: tuple[str, ...] = (
    "target_secrets",
    *(n for n, f in FATES.items() if f in (Fate.MOVES, Fate.AGES) and n != "target_secrets"),
)
