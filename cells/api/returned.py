"""The reconciliation report: what a region did that was lost and came back, and what became of it."""

from __future__ import annotations

import uuid
from typing import Annotated

import msgspec
from fastapi import Query
from starlette.responses import Response

from cells.api import documents, pagination, shapes
from cells.api.internal import TenantId
from cells.api.problems import not_found
from cells.api.queries import Page
from cells.api.routing import Call, Routes, Rule, answer
from cells.contract import Scope
from cells.domain import ids
from cells.returns import ReturnedEntry

routes = Routes("Regions")
_PATH = "/v1/regions/reconciliation"
_Place = tuple[int, int]
#: Of a run as the lost region has it, what the report tells.
_TIMES = ("due_at", "claimed_at", "started_at", "finished_at")


@routes.add(
    "GET",
    _PATH,
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("What came back, oldest first.", shapes.Returned)},
)
async def read_returned(call: Call, query: Annotated[Page, Query()]) -> Response:
    """Read what a region had done for you that no other had received when it was lost, once it came back:
    runs and steps with their keys, times and outcomes, and whether each was called again under its key;
    and decisions, with what became of them: APPLIED, IMPORTED (with the job or workflow), ALREADY,
    CHANGED_SINCE, UNCONFIRMED (STRICT), NOT_APPLIED, REFUSED (the note says why), or WAITING.
    Kept for as long as runs are."""
    return await _page(call, call.tenant_id, query, _PATH)


@routes.add(
    "GET",
    "/internal/tenants/{tenant_id}/reconciliation",
    Rule(scope=Scope.INTERNAL, internal=True),
    answers={200: ("What came back for a tenant, oldest first.", shapes.Returned)},
)
async def read_returned_of(call: Call, tenant_id: TenantId, query: Annotated[Page, Query()]) -> Response:
    """Read a tenant's report, for operators."""
    found = ids.decode(ids.TENANT, tenant_id)
    if found is None:
        raise not_found("tenant")
    return await _page(call, found, query, f"/internal/tenants/{tenant_id}/reconciliation")


async def _page(call: Call, tenant_id: uuid.UUID, query: Page, path: str) -> Response:
    filters = {"tenant": tenant_id.hex}
    place: _Place | None = pagination.read_cursor(query.cursor, "returned", filters, _Place)
    found = await call.services.store.reconciliation(
        tenant_id,
        after=None if place is None else (pagination.read_instant(place[0]), place[1]),
        limit=query.limit + 1,
    )
    rows = list(found)[: query.limit]
    cursor = None
    if len(found) > query.limit:
        last = (pagination.instant_key(rows[-1].at), rows[-1].entry)
        cursor = pagination.make_cursor("returned", filters, last)
    return answer(
        {"items": [entry_document(row) for row in rows], "next_cursor": cursor},
        headers=pagination.next_link(path, {}, query.limit, cursor),
    )


@routes.add(
    "GET",
    "/internal/returns",
    Rule(scope=Scope.INTERNAL, internal=True),
    answers={200: ("What regions handed in, and how it stands.", None)},
)
async def list_returns(call: Call) -> Response:
    """Read which regions came back to this cell, and how their entries stand for each tenant."""
    store = call.services.store
    counts = await store.returned_counts()
    return answer(
        {
            "cell": call.services.settings.cell_name,
            "items": [
                {
                    "region": one.region,
                    "epoch": one.epoch,
                    "began_at": documents.instant(one.began_at),
                    "read_at": documents.instant(one.read_at),
                    "transactions": one.transactions,
                    "entries": one.entries,
                    "dropped": one.dropped,
                }
                for one in await store.returns()
            ],
            "tenants": [
                {
                    "tenant_id": ids.encode(ids.TENANT, tenant),
                    "region": region,
                    "kind": kind,
                    "outcome": outcome,
                    "entries": entries,
                }
                for tenant, region, kind, outcome, entries in counts
            ],
        }
    )


def entry_document(row: ReturnedEntry) -> documents.Document:
    """A line of the report."""
    run = msgspec.json.decode(row.detail).get("run") or {}
    kind, _, name = row.thing.partition(":")
    return {
        "region": row.region,
        "epoch": row.epoch,
        "at": documents.instant(row.at),
        "kind": row.kind,
        "verb": row.verb,
        "thing": kind,
        "id": _public(kind, name),
        "idempotency_key": row.key,
        "region_policy": row.policy,
        "state": row.state,
        "fencing_token": row.run_epoch,
        "times": {name: run.get(name) for name in _TIMES} if run else None,
        "outcome": row.outcome.value,
        "note": row.note,
        "settled_at": documents.instant(row.settled_at),
        "here": None
        if row.here_state is None
        else {
            "state": row.here_state,
            "fencing_token": row.here_epoch,
            "finished_at": documents.instant(row.here_finished_at),
        },
    }


def _public(kind: str, name: str) -> str:
    if kind == "job" and len(name) == 32:
        return documents.job_text(uuid.UUID(name))
    if kind == "workflow-run" and len(name) == 32:
        return ids.encode(ids.WORKFLOW_RUN, uuid.UUID(name))
    return name
