"""The API's requests about exports of everything a tenant has, and how they are verified."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from controlplane.client.decoding import Document
from controlplane.client.export_calls import ExportFile
from controlplane.client.pages import Page, reads, reads_page
from controlplane.client.wire import Call, path, query

FORMAT, MANIFEST = "clockhouse-tenant-export/1", "manifest.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class TenantExport(Document):
    """Everything of the tenant. `files` are there once it is DONE."""

    tenant_export_id: str
    state: str  # REQUESTED, RUNNING, DONE, FAILED, EXPIRED
    kinds: Sequence[str] = ()
    kinds_done: int
    counts: Mapping[str, Any]
    files: Sequence[ExportFile] = ()
    error: str | None
    created_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None

    @property
    def over(self) -> bool:
        """Whether nothing more happens."""
        return self.state not in ("REQUESTED", "RUNNING")


def create_export(*, idempotency_key: str | None = None) -> Call[TenantExport]:
    """Ask for everything."""
    return Call(
        method="POST", path="/v1/tenant-exports", read=reads(TenantExport), body={}, keyed=True,
        idempotency_key=idempotency_key,
    )  # fmt: skip


def get_export(export_id: str) -> Call[TenantExport]:
    """How far an export is."""
    return Call(method="GET", path=path("/v1/tenant-exports/{id}", id=export_id), read=reads(TenantExport))


def list_exports(*, limit: int | None = None, cursor: str | None = None) -> Call[Page[TenantExport]]:
    """Exports, the newest first."""
    return Call(
        method="GET", path="/v1/tenant-exports", read=reads_page(TenantExport),
        query=query(limit=limit, cursor=cursor),
    )  # fmt: skip


def get_file(export_id: str, name: str) -> Call[bytes]:
    """A file's content."""
    return Call(
        method="GET",
        path=path("/v1/tenant-exports/{id}/files/{name}", id=export_id, name=name),
        read=lambda answer: answer.body,
    )


def faults_of(folder: Path) -> tuple[dict[str, int], list[str]]:
    """Rows by kind that a folder holds, and everything that is wrong with it: files that are missing, are
    more than the manifest says, have other bytes, rows that are no JSON, counts that differ."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        listed = {file["name"]: file for file in manifest["files"]}
    except (OSError, ValueError, KeyError, TypeError) as e:
        return {}, [f"{MANIFEST} cannot be read: {e}"]
    faults = []
    if manifest.get("format") != FORMAT:
        faults.append(f"the format is {manifest.get('format')!r}, not {FORMAT!r}")
    counts: dict[str, int] = {}
    for name, file in listed.items():
        try:
            content = (folder / Path(name).name).read_bytes()
        except OSError:
            faults.append(f"{name} is missing")
            continue
        if (found := hashlib.sha256(content).hexdigest()) != file["sha256"]:
            faults.append(f"{name} has SHA-256 {found}, the manifest says {file['sha256']}")
        lines = content.splitlines()
        counts[file["kind"]] = counts.get(file["kind"], 0) + len(lines)
        if len(lines) != file["rows"]:
            faults.append(f"{name} has {len(lines)} rows, the manifest says {file['rows']}")
        faults += [f"{name}, line {n}: no JSON" for n, line in enumerate(lines, 1) if not _is_json(line)][:5]
    extra = {path.name for path in folder.glob("*.jsonl")} - set(listed)
    faults += [f"{name} is in no manifest" for name in sorted(extra)]
    faults += [
        f"{kind}: {counts.get(kind, 0)} rows, the manifest says {rows}"
        for kind, rows in manifest.get("counts", {}).items()
        if counts.get(kind, 0) != rows
    ]
    return counts, faults


def _is_json(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
