"""Whom a job tells how its runs end."""

from __future__ import annotations

import msgspec

from cells.api.building import resolve_target
from cells.api.models import CallbackIn, HttpTargetIn, JobIn
from cells.api.problems import Problem
from cells.api.routing import Call
from cells.domain.job import JobDefinition, TargetRef


async def with_callbacks(call: Call, given: JobIn, definition: JobDefinition) -> JobDefinition:
    """The definition with the approved targets that are to be told; a 422 if one cannot be."""
    if given.on_success is None and given.on_failure is None:
        return definition
    return msgspec.structs.replace(
        definition,
        on_success=await _resolved(call, given.on_success, "on_success"),
        on_failure=await _resolved(call, given.on_failure, "on_failure"),
    )


async def _resolved(call: Call, given: CallbackIn | None, field: str) -> TargetRef | None:
    if given is None:
        return None
    target = HttpTargetIn(target_id=given.target_id, url=given.url, path=given.path)
    try:
        return await resolve_target(call, target, {})
    except Problem as problem:
        faults = [
            {**fault, "pointer": fault["pointer"].replace("/target", f"/{field}", 1)}
            for fault in problem.errors
        ]
        raise Problem(
            problem.status,
            problem.code,
            problem.detail.replace("job's target", f"{field} target"),
            errors=faults,
        ) from None
