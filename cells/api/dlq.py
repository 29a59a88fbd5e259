"""The dead-letter queue: what failed for good, grouped by how."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from fastapi import Query
from starlette.responses import Response

from cells.api import documents, pagination, shapes
from cells.api.finding import RunId, run_key_of
from cells.api.problems import invalid, not_found, query_fault
from cells.api.queries import DlqQuery
from cells.api.routing import Call, Routes, Rule, answer
from cells.api.runs import RunPlace, key_at, place_of
from cells.contract import Scope
from cells.domain import ids
from cells.domain.ids import RunKey

routes = Routes("Dead letters")

_GROUPS = 50
#: The sort key in a cursor: when it failed (epoch microseconds), and the run.
_Place = tuple[int, RunPlace]


@routes.add(
    "GET",
    "/v1/dlq",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("One page of dead letters; the first page has the groups, too.", shapes.Dlq)},
)
async def list_dlq(call: Call, query: Annotated[DlqQuery, Query()]) -> Response:
    """List runs that failed for good, the latest first, and the groups they form by fingerprint
    (target, status and normalised error): at most 50, made of the newest 10,000 dead letters of the
    tenant whatever the filters. `truncated` says that there is more than they tell of."""
    store = call.services.store
    filters = query.model_dump(mode="json", exclude={"limit", "cursor", "groups"})
    place = pagination.read_cursor(query.cursor, "dlq", filters, _Place)
    rows = await store.list_dlq(
        call.tenant_id,
        target_id=query.target,
        fingerprint=query.fingerprint,
        job_id=_job_id(query.job_id),
        reason=query.reason,
        failed_from=query.failed_from,
        failed_until=query.failed_until,
        after=_after(place) if place is not None else None,
        limit=query.limit + 1,
    )
    groups: Sequence[Mapping[str, Any]] = []
    truncated = False
    if place is None and query.groups:
        groups, truncated = await store.dlq_groups(call.tenant_id, limit=_GROUPS)
    cursor = None
    if len(rows) > query.limit:
        cursor = pagination.make_cursor("dlq", filters, _place(rows[query.limit - 1]))
    return answer(
        {
            "groups": [_group(row) for row in groups],
            "truncated": truncated,
            "items": [letter_document(row) for row in rows[: query.limit]],
            "next_cursor": cursor,
        },
        headers=pagination.next_link("/v1/dlq", filters, query.limit, cursor),
    )


def _job_id(text: str | None) -> uuid.UUID | None:
    job_id = ids.decode(ids.JOB, text) if text is not None else None
    if text is not None and job_id is None:
        raise invalid([query_fault("job_id", "is not the id of a job")])
    return job_id


@routes.add(
    "GET",
    "/v1/dlq/{run_id:run}",
    Rule(scope=Scope.JOBS_READ),
    answers={200: ("The dead letter and its run.", shapes.DeadLetterRead)},
    problems=(404,),
)
async def read_dead_letter(call: Call, run_id: RunId) -> Response:
    """Read a dead letter with its run. A run that was tried again and failed again has earlier ones."""
    key = run_key_of(run_id)
    store = call.services.store
    letters = await store.dead_letters_of(call.tenant_id, key)
    run = await store.get_run(call.tenant_id, key) if letters else None
    if not letters:
        raise not_found("dead letter")
    shown = [letter_document(row) | {"state": row["state"]} for row in letters]
    document = shown[0] | {"earlier": shown[1:], "run": None}
    if run is not None:
        document["run"] = documents.run_document(run, bodies_shown=call.may(Scope.PAYLOADS_READ))
    return answer(document)


def _after(place: _Place) -> tuple[datetime, RunKey]:
    return pagination.read_instant(place[0]), key_at(place[1])


def _place(row: Mapping[str, Any]) -> _Place:
    return pagination.instant_key(row["failed_at"]), place_of(row["key"])


def _group(row: Mapping[str, Any]) -> documents.Document:
    return {
        "fingerprint": row["fingerprint"],
        "target_id": row["target_id"],
        "http_status": row["http_status"],
        "error": row["error"],
        "count": row["count"],
        "first_failed_at": documents.instant(row["first_failed_at"]),
        "last_failed_at": documents.instant(row["last_failed_at"]),
    }


def letter_document(row: Mapping[str, Any]) -> documents.Document:
    """A dead letter."""
    key: RunKey = row["key"]
    return {
        "run_id": ids.run_id(key),
        "job_id": documents.job_text(key.parent_id),
        "series": row["series"],
        "fingerprint": row["fingerprint"],
        "reason": row["reason"],
        "target_id": row["target_id"],
        "http_status": row["http_status"],
        "error": row["error"],
        "attempt": row["attempt"],
        "failed_at": documents.instant(row["failed_at"]),
    }
