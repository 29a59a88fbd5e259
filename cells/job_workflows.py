"""Runs of jobs whose work is a workflow, as store and engine speak of them: see `workflow_ports`."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from cells.domain.ids import RunKey
from cells.domain.job import JobDefinition


@dataclass(frozen=True, kw_only=True, slots=True)
class JobStart:
    """The run of a job whose work is a workflow that is to begin."""

    tenant_id: uuid.UUID
    key: RunKey
    series: int
    definition: JobDefinition
    input: bytes | None
    now_ms: int
    version: int  # of the workflow's definition
    source: str | None  # its text; None: there is no such definition
    first: bool  # no execution had the workflow's id before


@dataclass(frozen=True, kw_only=True, slots=True)
class JobEnd:
    """The run of a job whose workflow is closed, or could not begin."""

    tenant_id: uuid.UUID
    key: RunKey
    epoch: int
    status: str  # of the workflow
    error: str | None
    result: bytes | None  # JSON, if it is short
    definition: JobDefinition
    version: int
    series: int
    attempt: int
    priority: int
    shard: int
    claimed_ms: int
    started_ms: int
    due_ms: int
    now_ms: int
