"""Where exports lie: a folder, or S3. Files are put whole or not at all."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from billing.ids import EXPORT, TENANT, encode
from billing.refusals import Conflicting
from cells.lake.files import LakeFiles, Missing, open_files
from cells.lake_url import check_url
from cells.ports import Retryable

__all__ = [
    "SCRATCH",
    "LakeFiles",
    "Missing",
    "Retryable",
    "check_url",
    "folder_of",
    "open_files",
    "open_place",
    "sweep",
    "usual_place",
]

#: How scratch folders of exports begin.
SCRATCH = "clockhouse-export-"


def usual_place() -> str:
    """Where exports go if nobody says where. `Conflicting` where the installation has no such place."""
    url = settings.BILLING_EXPORTS["url"]
    if not url:
        raise Conflicting("this installation has no place for exports: CONTROL_EXPORTS names one")
    return str(url)


def open_place(url: str) -> LakeFiles:
    """The place behind a URL."""
    return open_files(url, endpoint=settings.BILLING_EXPORTS["endpoint"])


def folder_of(export: object) -> str:
    """An export's own folder, below its place."""
    tenant_id, export_id = export.tenant_id, export.id  # type: ignore[attr-defined]
    owner = "operators" if tenant_id is None else encode(TENANT, tenant_id)
    return f"{owner}/{encode(EXPORT, export_id)}/"


def sweep(place: LakeFiles, folder: str, *, kept: frozenset[str] = frozenset()) -> int:
    """Removes what lies in an export's folder and is not to be kept: files of tries that were overtaken,
    and what a crash left half written."""
    gone = [stored.name for stored in place.list(folder) if stored.name.removeprefix(folder) not in kept]
    local: Path | None = place.local(folder)
    if local is not None and local.is_dir():
        for partial in local.glob("*.partial"):
            partial.unlink(missing_ok=True)
    place.delete(gone)
    if local is not None and not kept and local.is_dir() and not any(local.iterdir()):
        local.rmdir()
    return len(gone)
