"""Definitions of workflows: registering versions, reading them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Annotated

from fastapi import Path, Query
from starlette.responses import Response

from cells.api import documents, pagination, shapes
from cells.api.building import NEEDS_REGIONS
from cells.api.problems import Problem, body_fault, conflict, invalid, malformed, not_found
from cells.api.routing import Call, Routes, Rule, answer
from cells.api.workflow_models import DEFINITION_NAME_PATTERN, DefinitionsQuery
from cells.contract import ErrorCode, Scope
from cells.domain.job import STRICT
from cells.domain.workflow.compatibility import Divergence
from cells.domain.workflow.definition import Definition
from cells.domain.workflow.heavy import Evaluate, Outcome, Work
from cells.domain.workflow.parsing import DefinitionError, parse_definition
from cells.workflow_ports import DefinitionRow

routes = Routes("Workflow definitions")

#: Histories are replayed for so long at most.
REPLAY_SECONDS = 10.0
_Place = tuple[str, int]

Name = Annotated[str, Path(examples=["order_fulfillment"], pattern=DEFINITION_NAME_PATTERN)]
Version = Annotated[str, Path(description="A whole number from 1.", examples=["7"])]


@routes.add(
    "PUT",
    "/v1/workflow-definitions/{definition:name}/versions/{version:name}",
    Rule(scope=Scope.WORKFLOWS_WRITE, writes=True),
    answers={
        201: ("It is registered.", shapes.WorkflowDefinitionRead),
        200: ("It was registered before, with this text.", shapes.WorkflowDefinitionRead),
    },
    problems=(404, 409),
    text=True,
)
async def put_workflow_definition(call: Call, definition: Name, version: Version) -> Response:
    """Register a version of a definition: a text in YAML or JSON. A version never changes: the same text
    again is answered as before, another one is a 409. A text that is not accepted is a 422 with every
    fault, its line and its place. How one is written: `clockhouse definitions language`, or the page "The
    language of definitions" of the console."""
    number = version_number(version)
    text = text_of(call)
    parsed = read_definition(text, definition, number)
    if parsed.region_policy == STRICT and not call.services.settings.leased:
        raise invalid([body_fault("/region_policy", NEEDS_REGIONS)])
    row, created = await call.services.store.put_definition(
        call.fence,
        name=definition,
        version=number,
        source=text,
        actor=call.caller.actor,
        host_id=call.services.host.host_id,
    )
    if row.source != text:
        raise conflict(f"{definition} has a version {number} with another text; register the next version.")
    return answer(_shown(row, parsed), 201 if created else 200)


@routes.add(
    "GET",
    "/v1/workflow-definitions",
    Rule(scope=Scope.WORKFLOWS_READ),
    answers={200: ("Versions by name, the newest first.", shapes.WorkflowDefinitionPage)},
)
async def list_workflow_definitions(call: Call, query: Annotated[DefinitionsQuery, Query()]) -> Response:
    """List the versions of definitions."""
    filters = {"name": query.name}
    after: _Place | None = pagination.read_cursor(query.cursor, "definitions", filters, _Place)
    rows = await call.services.store.list_definitions(
        call.tenant_id, name=query.name, after=after, limit=query.limit + 1
    )
    cursor = None
    if len(rows) > query.limit:
        rows = rows[: query.limit]
        cursor = pagination.make_cursor("definitions", filters, (rows[-1].name, rows[-1].version))
    link = pagination.next_link("/v1/workflow-definitions", filters, query.limit, cursor)
    return answer({"items": [_listed(row) for row in rows], "next_cursor": cursor}, headers=link)


@routes.add(
    "GET",
    "/v1/workflow-definitions/{definition:name}",
    Rule(scope=Scope.WORKFLOWS_READ),
    answers={200: ("The newest version.", shapes.WorkflowDefinitionRead)},
    problems=(404,),
)
async def read_newest_workflow_definition(call: Call, definition: Name) -> Response:
    """Read the newest version of a definition."""
    row = await found_definition(call, definition, None)
    return answer(_shown(row, read_definition(row.source, row.name, row.version)))


@routes.add(
    "GET",
    "/v1/workflow-definitions/{definition:name}/versions/{version:name}",
    Rule(scope=Scope.WORKFLOWS_READ),
    answers={200: ("The version.", shapes.WorkflowDefinitionRead)},
    problems=(404,),
)
async def read_workflow_definition(call: Call, definition: Name, version: Version) -> Response:
    """Read a version of a definition."""
    row = await found_definition(call, definition, version_number(version))
    return answer(_shown(row, read_definition(row.source, row.name, row.version)))


def until(seconds: float) -> Callable[[], bool]:
    """Says whether so many seconds, from now on, are not yet over."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() < end


def made_elsewhere(call: Call) -> Evaluate:
    """Has heavy values made, for a replay in a thread. Raises `TimeoutError` where that takes as long as
    a whole replay may, or where too many wait."""
    loop, calculators = asyncio.get_running_loop(), call.services.calculators

    def evaluate(work: Work) -> Outcome:
        made = asyncio.run_coroutine_threadsafe(calculators.wait_for(call.tenant_id, work), loop)
        try:
            outcome = made.result(REPLAY_SECONDS)
        except TimeoutError:
            made.cancel()
            raise
        if outcome is None:
            raise TimeoutError("too many values are to be made")
        return outcome

    return evaluate


def diverging(divergence: Divergence) -> documents.Document:
    """The first event that another version would not have recorded."""
    return {
        "seq": divergence.seq,
        "type": divergence.type,
        "step": divergence.step,
        "expected": divergence.expected,
    }


async def found_definition(call: Call, name: str, version: int | None) -> DefinitionRow:
    """The caller's definition of that name, or 404."""
    row = await call.services.store.get_definition(call.tenant_id, name, version)
    if row is None:
        raise not_found("workflow definition")
    return row


def read_definition(text: str, name: str, version: int) -> Definition:
    """What a text says; a 422 with every fault and its line."""
    try:
        return parse_definition(text, name=name, version=version)
    except DefinitionError as error:
        faults = [
            {"line": fault.line, "pointer": fault.pointer, "detail": fault.detail} for fault in error.faults
        ]
        raise Problem(
            422,
            ErrorCode.INVALID,
            "1 fault; see errors." if len(faults) == 1 else f"{len(faults)} faults; see errors.",
            extra={"errors": faults},
        ) from None


def version_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) > 0):
        raise invalid([], f"{text[:40]!r} is no version: a whole number from 1.")
    return int(text)


def text_of(call: Call) -> str:
    try:
        text = call.raw_body.decode()
    except UnicodeDecodeError:
        raise malformed("The text is not UTF-8.") from None
    if "\0" in text:
        raise malformed("The text holds NUL.")
    return text


def _listed(row: DefinitionRow) -> documents.Document:
    return {
        "name": row.name,
        "version": row.version,
        "created_by": row.created_by,
        "created_at": documents.instant(row.created_at),
    }


def _shown(row: DefinitionRow, definition: Definition) -> documents.Document:
    return {**_listed(row), "source": row.source, "steps": [step.id for step in definition.walk()]}
