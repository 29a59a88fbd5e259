"""Checking a candidate: which open executions could go on under it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from cells.api import documents, pagination, shapes
from cells.api.definitions import (
    REPLAY_SECONDS,
    Name,
    Version,
    diverging,
    found_definition,
    made_elsewhere,
    read_definition,
    text_of,
    until,
    version_number,
)
from cells.api.routing import Call, Routes, Rule, answer
from cells.api.workflow_documents import read_events
from cells.api.workflow_models import CheckQuery
from cells.contract import Scope
from cells.domain import ids
from cells.domain.workflow.compatibility import first_divergence
from cells.domain.workflow.definition import Definition
from cells.open_workflows import Place
from cells.workflow_ports import WorkflowRow

routes = Routes("Workflow definitions")


@dataclass(slots=True)
class _Checked:
    """What a page has found so far."""

    compatible: list[documents.Document] = field(default_factory=list)
    blocked: list[documents.Document] = field(default_factory=list)
    undecided: list[documents.Document] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.compatible) + len(self.blocked) + len(self.undecided)


@routes.add(
    "POST",
    "/v1/workflow-definitions/{definition:name}/versions/{version:name}:check",
    Rule(scope=Scope.WORKFLOWS_READ, body_optional=True),
    answers={200: ("Nothing was changed.", shapes.DefinitionChecked)},
    problems=(404,),
    text=True,
)
async def check_workflow_definition(
    call: Call, definition: Name, version: Version, query: Annotated[CheckQuery, Query()]
) -> Response:
    """Replay open executions of that name against a candidate before anybody goes on under it: the text in
    the body, or the registered version where there is no body. They are walked by their workflow ids; a page
    ends at `limit` or after ten seconds, and the same candidate with `next_cursor` goes on behind it. What
    starts meanwhile may or may not be among them. `open` tells how many there are, for progress."""
    number = version_number(version)
    if call.raw_body.strip():
        text = text_of(call)
        candidate = read_definition(text, definition, number)
    else:
        text = (await found_definition(call, definition, number)).source
        candidate = read_definition(text, definition, number)
    # Under another text the pages before would mean something else.
    same = {"definition": definition, "text": hashlib.sha256(text.encode()).hexdigest()}
    after: Place | None = pagination.read_cursor(query.cursor, "check", same, Place)
    store = call.services.store
    counted = await store.count_open_workflows(call.tenant_id, definition) if after is None else None
    page = await store.open_workflows(call.tenant_id, definition, after=after, limit=query.limit)
    found = _Checked()
    looked = await _replay(call, candidate, page.rows, found)
    reached = page.reached
    if looked < len(page.rows):
        reached = page.rows[looked - 1].workflow_id, page.rows[looked - 1].run_id
    cursor = None if reached is None else pagination.make_cursor("check", same, reached)
    return answer(
        {
            "name": definition,
            "version": number,
            "open": counted,
            "looked_at": len(found),
            "compatible": found.compatible,
            "blocked": found.blocked,
            "undecided": found.undecided,
            "more": cursor is not None,
            "next_cursor": cursor,
        }
    )


async def _replay(call: Call, candidate: Definition, rows: Sequence[WorkflowRow], found: _Checked) -> int:
    """Replay as many as there is time for, one at least; how many."""
    in_time = until(REPLAY_SECONDS)
    for place, row in enumerate(rows):
        if place and not in_time():
            return place
        shown: documents.Document = {
            "workflow_id": row.workflow_id,
            "run_id": ids.encode(ids.WORKFLOW_RUN, row.run_id),
            "version": row.version,
        }
        events = await read_events(call, row)
        try:
            divergence = await asyncio.to_thread(
                first_divergence, candidate, events, in_time=in_time, evaluate=made_elsewhere(call)
            )
        except TimeoutError:
            if place:
                return place
            # Alone it takes longer than a page may: the walk goes on behind it.
            found.undecided.append({**shown, "reason": f"not replayed within {REPLAY_SECONDS:g} seconds"})
            continue
        if divergence is None:
            found.compatible.append(shown)
        else:
            found.blocked.append({**shown, "first_diverging_event": diverging(divergence)})
    return len(rows)
