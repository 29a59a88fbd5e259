"""Files of the lake that are at hand on this machine, verified when they were fetched."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from cells.history import LakeFile
from cells.lake.files import LakeFiles, Missing
from cells.ports import Retryable


class Damaged(Retryable):
    """A file of the lake is not there, or not what was written."""


#: What fetched files may take (bytes); the longest unused go first.
LIMIT = 1 << 30


class Cache:
    """Gives the path of a file. A folder's files are read in place."""

    def __init__(self, files: LakeFiles, scratch: Path, *, limit: int = LIMIT) -> None:
        self._files, self._folder, self._limit = files, scratch / "files", limit
        self._held: dict[str, int] = {}  # name → bytes, the longest unused first
        self._lock = asyncio.Lock()

    async def paths(self, wanted: list[LakeFile]) -> list[Path]:
        """Where they are. `Retryable` when one is not there or not what it should be."""
        async with self._lock:
            paths = [await self._path(file) for file in wanted]
            await self._make_room(kept={file.name for file in wanted})
            return paths

    async def _path(self, file: LakeFile) -> Path:
        in_place = self._files.local(file.name)
        if in_place is not None:
            if not await asyncio.to_thread(in_place.is_file):
                raise Retryable(f"the lake has no {file.name}")
            return in_place
        path = self._folder / file.name.replace("/", "_")
        if file.name not in self._held:
            await asyncio.to_thread(fetch_verified, self._files, file, path)
        self._held.pop(file.name, None)
        self._held[file.name] = file.size
        return path

    async def _make_room(self, *, kept: set[str]) -> None:
        total = sum(self._held.values())
        for name in [name for name in self._held if name not in kept]:
            if total <= self._limit:
                return
            total -= self._held.pop(name)
            await asyncio.to_thread((self._folder / name.replace("/", "_")).unlink, missing_ok=True)


def fetch_verified(files: LakeFiles, file: LakeFile, to: Path) -> None:
    """Copy a file; `Damaged` if it is not there or not what was written."""
    to.parent.mkdir(parents=True, exist_ok=True)
    partial = to.with_name(to.name + ".partial")
    try:
        files.fetch(file.name, partial)
        with partial.open("rb") as copy:
            if hashlib.file_digest(copy, "sha256").digest() != file.sha256:
                raise Damaged(f"{file.name} is not what was written")
        partial.replace(to)
    except Missing as gone:
        raise Damaged(f"the lake has no {file.name}") from gone
    finally:
        partial.unlink(missing_ok=True)
