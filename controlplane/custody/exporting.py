"""Exports of everything a tenant has: asked for, written under a lease, gone after a week.

A crash anywhere costs the file that was being written: what is put and kept stays, and whoever takes over
goes on behind it. Files are put whole and named after their content, so whoever is overtaken replaces none.
"""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from django.conf import settings
from django.db import connection, transaction

from billing.exports.places import SCRATCH, LakeFiles, Retryable, open_place, sweep, usual_place
from billing.exports.writing import part_of
from billing.refusals import Refused as BillingRefused
from controlplane.actors import Actor, service
from controlplane.custody.contents import KINDS, plain, still_there
from controlplane.custody.going import is_going
from controlplane.custody.models import OPEN, ExportState, TenantExport
from controlplane.errors import Conflicting, Forbidden, NotFound
from controlplane.events.recording import record
from controlplane.identity import TENANT, encode
from controlplane.locks import lock_tenant
from controlplane.sql import named_sql

_SQL = named_sql(Path(__file__).parent / "sql" / "exports.sql")
_LOG = structlog.get_logger(__name__)
FORMAT, MANIFEST = "clockhouse-tenant-export/1", "manifest.json"
#: Tries in a row without a file written, and the longest pause between two (seconds).
_TRIES, _LONGEST_PAUSE = 12, 600


class Overtaken(Exception):
    """The lease is somebody else's: nothing that is done from here on counts."""


@transaction.atomic
def request_export(*, tenant_id: uuid.UUID, actor: Actor, reason: str, key: bool = False) -> TenantExport:
    """Asks for everything of a tenant. Owners and operators may; with `key`, a key of the whole tenant."""
    if not (actor.owner or actor.operator or key):
        raise Forbidden("only owners export everything")
    lock_tenant(tenant_id)
    if is_going(tenant_id):
        raise Conflicting("the workspace is being erased: nothing of it is exported any more")
    under_way = TenantExport.objects.filter(tenant_id=tenant_id, state__in=OPEN).first()
    if under_way is not None:
        raise Conflicting(f"{under_way.public_id} is under way already")
    try:
        place = usual_place()
    except BillingRefused as e:
        raise Conflicting(str(e)) from e
    made = TenantExport.objects.create(tenant_id=tenant_id, place=place, requested_by=actor.name)
    made.refresh_from_db()
    record(
        action="tenant_export.request", subject=made.public_id, tenant_id=tenant_id, actor=actor,
        reason=reason, after={"kinds": [name for name, _ in KINDS]},
    )  # fmt: skip
    transaction.on_commit(partial(_wake, made.id))
    return made


def _wake(export_id: uuid.UUID) -> None:
    from controlplane.custody.tasks import wake  # tasks import use-cases

    wake(export_id)


def find_export(export_id: uuid.UUID | None, *, tenant_id: uuid.UUID) -> TenantExport:
    """An export of a tenant; of others there is none."""
    found = (
        None if export_id is None else TenantExport.objects.filter(pk=export_id, tenant_id=tenant_id).first()
    )
    if found is None:
        raise NotFound("no such export")
    return found


def folder_of(export: TenantExport) -> str:
    """An export's own folder, below its place."""
    return f"{encode(TENANT, export.tenant_id)}/{export.public_id}/"


def _execute(name: str, **parameters: Any) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(_SQL[name], parameters)
        return cursor.fetchone() is not None


def due(limit: int = 20) -> list[uuid.UUID]:
    """Exports that can be taken now."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["due"], {"limit": limit})
        return [row[0] for row in cursor.fetchall()]


def run(export_id: uuid.UUID, *, seconds: float = float("inf")) -> bool:
    """Writes an export that waits, from where it was, for so long at most: then it waits for its next turn,
    behind a file that is kept. True: it is done."""
    until = time.monotonic() + seconds
    lease = uuid.uuid4()
    if not _execute("take", id=export_id, lease=lease, seconds=int(settings.CUSTODY["lease_seconds"])):
        return False
    export = TenantExport.objects.get(pk=export_id)
    mine = {"id": export_id, "lease": lease}
    if export.attempts > _TRIES:
        # Whoever tried was silent each time, and could not say why.
        _execute("give_up", **mine, error=export.error or f"no file could be written in {_TRIES} tries")
        return False
    try:
        with tempfile.TemporaryDirectory(prefix=SCRATCH) as scratch:
            writer = _Writer(export, mine, Path(scratch), until)
            token = still_there.set(writer.still_there)
            try:
                return writer.write()
            finally:
                still_there.reset(token)
    except Overtaken:
        _LOG.warning("a tenant's export was taken over", export=str(export))
        return False
    except Exception as e:  # noqa: BLE001 - whatever went wrong, it is kept, counted and tried again
        faults = "".join(f"; {fault.place} {fault.detail}" for fault in getattr(e, "faults", ()))
        said = f"{type(e).__name__}: {e}{faults}"[:1000]
        _LOG.warning("a tenant's export failed", export=str(export), error=said)
        tries = TenantExport.objects.values_list("attempts", flat=True).get(pk=export_id)
        if tries >= _TRIES:
            _execute("give_up", **mine, error=said)
        else:
            _execute("retry", **mine, error=said, delay=min(_LONGEST_PAUSE, 2**tries))
        return False


class _Writer:
    """One try."""

    def __init__(self, export: TenantExport, mine: dict[str, Any], scratch: Path, until: float) -> None:
        self._export, self._mine, self._scratch, self._until = export, mine, scratch, until
        self._place: LakeFiles = open_place(export.place)
        self._folder = folder_of(export)
        self._seconds = int(settings.CUSTODY["lease_seconds"])
        self._rows_per_file = int(settings.CUSTODY["rows_per_file"])
        self._bytes_per_file = int(settings.CUSTODY["bytes_per_file"])
        self._renewed = time.monotonic()

    def still_there(self) -> None:
        """Renews the lease, now and then: a page may take longer than it lasts. Raises `Overtaken`."""
        if time.monotonic() - self._renewed < self._seconds / 4:
            return
        if not _execute("renew", **self._mine, seconds=self._seconds):
            raise Overtaken(str(self._export))
        self._renewed = time.monotonic()

    def write(self) -> bool:
        """Whether it is done: not where its turn was over before."""
        export = self._export
        while export.kind < len(KINDS):
            self._file()
            if time.monotonic() >= self._until and export.kind < len(KINDS):
                if not _execute("pause", **self._mine):
                    raise Overtaken(str(export))
                return False
        self._finish()
        return True

    def _file(self) -> None:
        """The next file of the kind that is being written, and how far that is."""
        export = self._export
        name, read = KINDS[export.kind]
        path, rows, cursor = self._scratch / name, 0, export.cursor
        with path.open("w", encoding="utf-8") as file:
            while True:
                page = read(export.tenant_id, cursor)
                for row in page.rows:
                    file.write(
                        json.dumps(row, default=plain, ensure_ascii=False, separators=(",", ":")) + "\n"
                    )
                rows, cursor = rows + len(page.rows), page.cursor
                if not cursor or rows >= self._rows_per_file or file.tell() >= self._bytes_per_file:
                    break
                if time.monotonic() >= self._until:
                    break
                if not _execute("renew", **self._mine, seconds=self._seconds):
                    raise Overtaken(str(export))
                self._renewed = time.monotonic()
        part = part_of(path, f"{name}-{export.part + 1:05d}-{{digest}}.jsonl", rows=rows)
        self._place.put(self._folder + part.name, path)
        path.unlink()
        export.files.append(
            {"name": part.name, "kind": name, "rows": rows, "bytes": part.size, "sha256": part.sha256}
        )
        export.counts[name] = export.counts.get(name, 0) + rows
        export.cursor = cursor
        export.kind, export.part = (export.kind, export.part + 1) if cursor else (export.kind + 1, 0)
        kept = _execute(
            "keep", **self._mine, seconds=self._seconds, kind=export.kind, cursor=cursor, part=export.part,
            counts=json.dumps(export.counts), files=json.dumps(export.files),
        )  # fmt: skip
        if not kept:
            raise Overtaken(str(export))

    @transaction.atomic
    def _finish(self) -> None:
        export = self._export
        manifest = {
            "format": FORMAT,
            "export_id": export.public_id,
            "tenant_id": encode(TENANT, export.tenant_id),
            "begun_at": export.created_at.isoformat(),
            "counts": export.counts,
            "files": [file for file in export.files if file["kind"] != "manifest"],
        }
        path = self._scratch / MANIFEST
        path.write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")
        part = part_of(path, MANIFEST, rows=0)
        self._place.put(self._folder + MANIFEST, path)
        files = [
            *manifest["files"],  # type: ignore[misc]
            {"name": MANIFEST, "kind": "manifest", "rows": None, "bytes": part.size, "sha256": part.sha256},
        ]
        days = settings.CUSTODY["kept_days"]
        if not _execute("finish", **self._mine, files=json.dumps(files), days=days):
            raise Overtaken(str(export))
        record(
            action="tenant_export.finish", subject=export.public_id, tenant_id=export.tenant_id,
            actor=service("custody"), reason="", after={"rows": sum(export.counts.values())},
        )  # fmt: skip
        kept = frozenset(file["name"] for file in files)
        transaction.on_commit(partial(_sweep, self._place, self._folder, kept))


def _sweep(place: LakeFiles, folder: str, kept: frozenset[str]) -> None:
    try:
        sweep(place, folder, kept=kept)
    except Retryable as away:
        _LOG.warning("files of other tries stay until the export expires", folder=folder, error=str(away))


def expire() -> int:
    """Removes exports that were kept long enough, and what failed ones left; how many."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["expire"])
    over = TenantExport.objects.filter(state__in=[ExportState.EXPIRED, ExportState.FAILED]).exclude(files=[])
    gone = 0
    for export in over.order_by("id")[:100]:
        try:
            sweep(open_place(export.place), folder_of(export))
        except Retryable as away:
            _LOG.warning("an expired export stays", export=str(export), error=str(away))
            continue
        TenantExport.objects.filter(pk=export.pk).update(files=[])
        gone += 1
    return gone
