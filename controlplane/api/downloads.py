"""Files of exports as answers: for the API and the pages alike."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from django.http import FileResponse

from billing.exports.machine import ExportState
from billing.exports.models import Export
from billing.exports.places import Missing, Retryable, folder_of, open_place
from controlplane.errors import Conflicting, NotFound, Unavailable

_TYPES = {".csv": "text/csv; charset=utf-8", ".json": "application/json"}


def download(export: Export, name: str) -> FileResponse:
    """A file of an export that is done, streamed. What is not in its list of files is not found."""
    if export.state == ExportState.EXPIRED:
        raise NotFound("nothing left of this export: it has expired")
    if export.state != ExportState.DONE:
        raise Conflicting(f"the export is {export.state}: its files are there once it is DONE")
    found = next((file for file in export.files if file["name"] == name), None)
    if found is None:
        raise NotFound("no such file")
    response = FileResponse(
        _opened(export, name),
        as_attachment=True,
        filename=name,
        content_type=_TYPES.get(Path(name).suffix, "application/vnd.apache.parquet"),
    )
    response["Content-Length"] = str(found["bytes"])
    response["ETag"] = f'"{found["sha256"]}"'
    return response


def _opened(export: Export, name: str) -> Any:
    """The file, open; of S3 a copy that is gone once it is closed."""
    place, path = open_place(export.place), folder_of(export) + name
    try:
        local = place.local(path)
        if local is not None:
            return local.open("rb")
        with tempfile.TemporaryDirectory(prefix="clockhouse-download-") as folder:
            copy = Path(folder) / "file"
            place.fetch(path, copy)
            return copy.open("rb")  # it can be read until it is closed, though its name is gone
    except (Missing, FileNotFoundError) as e:
        raise NotFound("no such file any more") from e
    except Retryable as e:
        raise Unavailable("the place of exports cannot be reached") from e
