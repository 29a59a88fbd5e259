"""Where the lake's files lie: a port, and which implementation a URL means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from cells.lake_url import check_url


class Missing(Exception):
    """There is no file of that name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stored:
    """A file that is there."""

    name: str
    bytes: int
    modified: datetime


class LakeFiles(Protocol):
    """Names are relative, with slashes. Every call blocks; call it from a thread. An outage is a
    `Retryable`."""

    def put(self, name: str, source: Path) -> None:
        """Store a file, replacing one of that name. Nobody ever sees half of it."""
        ...

    def fetch(self, name: str, to: Path) -> None:
        """Copy a file to where nothing is yet; `Missing` if there is none."""
        ...

    def local(self, name: str) -> Path | None:
        """Where the file can be read in place, if it can."""
        ...

    def list(self, prefix: str) -> Iterator[Stored]:
        """Every file whose name begins so, in the order of names."""
        ...

    def delete(self, names: Sequence[str]) -> None:
        """Remove files; those that are not there do not matter."""
        ...


def open_files(url: str, *, endpoint: str = "") -> LakeFiles:
    """What a URL means. `endpoint`: an S3 that is not Amazon's. Credentials and region are found as
    boto3 finds them."""
    parts = urlsplit(check_url(url))
    if parts.scheme == "file":
        from cells.lake.folder import FolderFiles

        return FolderFiles(Path(unquote(parts.path)))
    from cells.lake.s3 import S3Files  # boto3 takes long to load, and few processes need it

    return S3Files(bucket=parts.netloc, prefix=parts.path.strip("/"), endpoint=endpoint or None)
