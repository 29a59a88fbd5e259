"""Finding what a request is about: ids in paths, rows, and the version a client means."""

from __future__ import annotations

import re
import uuid
from typing import Annotated

from fastapi import Path

from cells.api.problems import Problem, not_found
from cells.api.routing import Call
from cells.api.texts import TARGET_ID_PATTERN
from cells.contract import ErrorCode
from cells.domain import ids
from cells.domain.ids import RunKey
from cells.domain.job import STRICT
from cells.ports import JobRow, TargetRow

JobId = Annotated[str, Path(description="A job's id.", examples=["job_01h455vb4pex5vsknk084sn02q"])]
RunId = Annotated[
    str,
    Path(description="A run's id.", examples=["job_01h455vb4pex5vsknk084sn02q:2026-09-28T12:00:00Z"]),
]
TargetId = Annotated[str, Path(description="A target's id.", examples=["tgt_reports_rollup"])]

_ETAG = re.compile(r'"(\d{1,9})"')
_TARGET_ID = re.compile(TARGET_ID_PATTERN)


def job_id_of(text: str) -> uuid.UUID:
    """The uuid of a job's id; 404 for a text that is none."""
    job_id = ids.decode(ids.JOB, text)
    if job_id is None:
        raise not_found("job")
    return job_id


async def found_job(call: Call, job_id: uuid.UUID) -> JobRow:
    """The caller's job of that id, or 404. Whatever the call changes of it is acknowledged as the job is."""
    row = await call.services.store.get_job(call.tenant_id, job_id)
    if row is None:
        raise not_found("job")
    call.concerns(row.definition.region_policy)
    return row


async def concerns_parent(call: Call, parent_id: uuid.UUID) -> None:
    """The call changes something of a job or of an execution of a workflow."""
    if await call.services.store.strict_parent(call.tenant_id, parent_id):
        call.concerns(STRICT)


async def concerns_selection(call: Call, selection_id: uuid.UUID) -> None:
    """The call changes the jobs or dead letters of a selection."""
    if await call.services.store.strict_selection(call.tenant_id, selection_id):
        call.concerns(STRICT)


def run_key_of(text: str) -> RunKey:
    """The key a run's id names; 404 for a text that is none."""
    key = ids.parse_run_id(text)
    if key is None:
        raise not_found("run")
    return key


async def found_target(call: Call, target_id: str) -> TargetRow:
    """The caller's target of that id, or 404."""
    row = None
    if _TARGET_ID.fullmatch(target_id):
        row = await call.services.store.get_target(call.tenant_id, target_id)
    if row is None:
        raise not_found("target")
    return row


def check_version(call: Call, version: int) -> bool:
    """Whether the client named the version it means; 412 if that is not the current one."""
    header = call.header(b"if-match")
    if header is None or header.strip() == "*":
        return False
    versions = [_ETAG.fullmatch(part.strip()) for part in header.split(",")]
    if not any(match is not None and int(match[1]) == version for match in versions):
        raise Problem(
            412,
            ErrorCode.PRECONDITION_FAILED,
            f"The current version is {version}; read it again.",
            extra={"version": version},
            headers={"ETag": f'"{version}"'},
        )
    return True
