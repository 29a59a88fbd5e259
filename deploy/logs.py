"""Log files of children, bounded in size.

A child writes to its file itself (in append mode), so that neither a slow nor a dead supervisor
can hold it up; the supervisor cuts files that have grown.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import IO

MAX_BYTES = 20 * 2**20


def open_log(folder: Path, name: str) -> IO[bytes]:
    """The child's log file, for appending."""
    descriptor = os.open(folder / f"{name}.log", os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
    return os.fdopen(descriptor, "ab", buffering=0)


def cut_grown(folder: Path, *, max_bytes: int = MAX_BYTES) -> None:
    """Move what a grown file holds to `<name>.log.1` and go on with an empty one."""
    for log in folder.glob("*.log"):
        if log.stat().st_size > max_bytes:
            shutil.copyfile(log, log.with_name(log.name + ".1"))
            os.truncate(log, 0)


def tail(log: Path, lines: int = 25, *, since: int = 0) -> str:
    """The last lines of a log file, counted from the byte `since`."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(min(since, size), size - 64 * 1024))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return "(no log)"
    return "\n".join(text.splitlines()[-lines:]) or "(its log is empty)"
