"""Executions with their events as Parquet: a row is an event, beside what is known of its execution."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, date
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from cells.history import LakeFile, OldWorkflow
from cells.workflow_ports import StoredEvent, WorkflowRow

_INSTANT = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        ("tenant_id", pa.string()),
        ("workflow_id", pa.string()),
        ("run_id", pa.string()),
        ("definition", pa.string()),
        ("definition_version", pa.int32()),
        ("status", pa.string()),
        ("region_policy", pa.string()),
        ("parent", pa.string()),  # JSON
        ("takeovers", pa.string()),  # JSON
        ("input_hash", pa.binary()),
        ("history_bytes", pa.int64()),
        ("started_at", _INSTANT),
        ("closed_at", _INSTANT),
        ("result", pa.string()),  # JSON, if it is short
        ("error", pa.string()),
        ("events", pa.int32()),
        ("seq", pa.int32()),
        ("epoch", pa.int64()),
        ("type", pa.string()),
        ("at", _INSTANT),
        ("data", pa.string()),  # JSON
    ]
)
_encode = msgspec.json.Encoder().encode
_decode: Any = msgspec.json.Decoder().decode


def workflows_prefix(*, region: str, cell: str) -> str:
    """The folder of a cell's workflows."""
    return f"workflows/region={region}/cell={cell}/"


def write_file(
    scratch: Path, workflows: Sequence[OldWorkflow], *, prefix: str, day: date
) -> tuple[LakeFile, Path]:
    """One file with those executions, in the scratch folder."""
    rows = [_row(row, event) for row, events in workflows for event in events]
    columns = [
        pa.array(values, type=field.type)
        for values, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)
    ]
    path = scratch / f"part-{uuid.uuid4().hex}.parquet"
    table = pa.Table.from_arrays(columns, schema=SCHEMA)
    pq.write_table(table, path, compression="zstd", row_group_size=5_000)
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").digest()
    name = f"{prefix}date={day.isoformat()}/{path.name}"
    return LakeFile(name=name, rows=len(rows), size=path.stat().st_size, sha256=sha256), path


def _row(row: WorkflowRow, event: StoredEvent) -> tuple[Any, ...]:
    return (
        str(row.tenant_id),
        row.workflow_id,
        str(row.run_id),
        row.definition,
        row.version,
        row.status,
        row.region_policy,
        None if row.parent is None else _encode(row.parent).decode(),
        _encode(row.takeovers).decode(),
        bytes(row.input_hash),
        row.history_bytes,
        row.started_at,
        row.closed_at,
        None if row.result is None else bytes(row.result).decode(),
        row.error,
        row.next_seq - 1,
        event.seq,
        event.epoch,
        event.type,
        event.at,
        bytes(event.data).decode(),
    )


def workflow_of(tenant_id: uuid.UUID, row: Mapping[str, Any]) -> WorkflowRow:
    """From a row of the lake."""
    run_id = uuid.UUID(row["run_id"])
    return WorkflowRow(
        tenant_id=tenant_id,
        run_id=run_id,
        workflow_id=row["workflow_id"],
        shard=0,
        status=row["status"],
        definition=row["definition"],
        version=row["definition_version"],
        input_hash=row["input_hash"],
        region_policy=row["region_policy"],
        next_seq=row["events"] + 1,
        epoch=row["epoch"],
        takeovers=_decode(row["takeovers"]),
        decide_at=None,
        timer_at=None,
        history_bytes=row["history_bytes"],
        parent=None if row["parent"] is None else _decode(row["parent"]),
        started_at=row["started_at"].astimezone(UTC),
        closed_at=row["closed_at"].astimezone(UTC),
        result=None if row["result"] is None else row["result"].encode(),
        error=row["error"],
    )


def event_of(row: Mapping[str, Any]) -> StoredEvent:
    """From a row of the lake."""
    return StoredEvent(
        seq=row["seq"],
        epoch=row["epoch"],
        type=row["type"],
        at=row["at"].astimezone(UTC),
        data=row["data"].encode(),
    )
