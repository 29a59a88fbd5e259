"""The lake in a folder of this machine."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from cells.lake.files import Missing, Stored
from cells.ports import Retryable

#: What is being written ends so; a crash leaves it, and nobody lists it.
_PARTIAL = ".partial"


class FolderFiles:
    """Implements `LakeFiles`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, name: str, source: Path) -> None:
        """Written beside its place, flushed to disk, then renamed."""
        path = self._path(name)
        partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}{_PARTIAL}")
        with _retryable():
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copyfile(source, partial)
                _flush(partial)
                partial.replace(path)
            finally:
                partial.unlink(missing_ok=True)
            _flush(path.parent)

    def fetch(self, name: str, to: Path) -> None:
        try:
            with _retryable():
                shutil.copyfile(self._path(name), to)
        except FileNotFoundError:
            raise Missing(name) from None

    def local(self, name: str) -> Path | None:
        return self._path(name)

    def list(self, prefix: str) -> Iterator[Stored]:
        folder = self._path(prefix) if prefix.endswith("/") else self._root
        found = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(_PARTIAL))
        for path in sorted(found):
            name = path.relative_to(self._root).as_posix()
            if name.startswith(prefix):
                try:
                    stat = path.stat()
                except FileNotFoundError:
                    continue  # deleted just now
                yield Stored(
                    name=name, bytes=stat.st_size, modified=datetime.fromtimestamp(stat.st_mtime, UTC)
                )

    def delete(self, names: Sequence[str]) -> None:
        with _retryable():
            for name in names:
                path = self._path(name)
                path.unlink(missing_ok=True)
                folder = path.parent
                while folder != self._root and folder.is_dir() and not any(folder.iterdir()):
                    folder.rmdir()
                    folder = folder.parent

    def _path(self, name: str) -> Path:
        path = self._root / name
        if ".." in Path(name).parts or Path(name).is_absolute():
            raise ValueError(f"{name} is no name in the lake")
        return path


@contextmanager
def _retryable() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as fault:
        raise Retryable(f"the lake's folder: {fault}") from fault


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
