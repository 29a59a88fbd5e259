"""Folders for what a process needs for a while: gone when it ends, and soon after it was killed.

Who uses a folder holds a lock on it, which ends with the process. A host that starts removes those that
nobody holds.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "clockhouse-cell-"
#: Between making a folder and holding it nobody may take it for one of the dead (seconds).
_YOUNG_SECONDS = 60.0


class Scratch:
    """A folder of this process's own, until `close`."""

    def __init__(self, what: str):
        self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{what}-"))
        self._held = os.open(self.path, os.O_RDONLY)
        fcntl.flock(self._held, fcntl.LOCK_EX)

    def close(self) -> None:
        """Remove it with all that is in it. Closing again changes nothing."""
        if self._held >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._held)
            self._held = -1


@contextmanager
def scratch_folder(what: str) -> Iterator[Path]:
    """A folder for the time of a block."""
    scratch = Scratch(what)
    try:
        yield scratch.path
    finally:
        scratch.close()


def forget_the_dead() -> int:
    """Remove the folders of processes that were killed; how many."""
    gone = 0
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:  # just gone, or somebody else's
            continue
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if time.time() - os.fstat(held).st_mtime > _YOUNG_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
                gone += 1
        except BlockingIOError:
            continue
        finally:
            os.close(held)
    return gone
