"""Files that are either the old version or the new one, never half of one."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO


class FolderInUse(Exception):
    """Another router works in this folder."""


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file. Readable by its owner only: what we keep holds signing keys."""
    draft = path.with_name(path.name + ".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Make names in a folder last: a file that is flushed may still be lost with its name."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def occupy(folder: Path) -> IO[bytes]:
    """Make the folder and lock it for this process; keep the answer open as long as it runs."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = (folder / "lock").open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise FolderInUse(f"another router uses {folder}") from None
    return lock
