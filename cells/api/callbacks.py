"""Whom a job tells how its runs end."""

from __future__ import annotations

from cells.api.building import resolve_target
from cells.api.models import CallbackIn, HttpTargetIn
from cells.api.problems import Problem
from cells.api.routing import Call
from cells.domain.job import TargetRef


async def told_target(call: Call, given: CallbackIn, field: str) -> TargetRef:
    """The approved target that is to be told; a 422 about that field if there is none."""
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
