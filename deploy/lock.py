"""One lock for the whole machine: benches, proofs and chaos tests never run beside each other.

It is a file that every user may lock, in the system's folder for temporary files, whatever
clone or temporary folder the process itself uses. The kernel frees it with its holder.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# The same for every user, so not what TMPDIR says.
MACHINE_LOCK = Path("/tmp/clockhouse-machine.lock")  # noqa: S108
_HELD = "CLOCKHOUSE_MACHINE_LOCK_HELD"


@contextmanager
def whole_machine(what: str, *, lock: Path = MACHINE_LOCK, patience_seconds: float = 1800) -> Iterator[None]:
    """Hold the machine while the block runs; wait for whoever holds it.

    A process that was started by a holder holds it too.
    """
    if os.environ.get(_HELD):
        yield
        return
    descriptor = _open(lock)
    try:
        _acquire(descriptor, what, patience_seconds)
        os.environ[_HELD] = str(os.getpid())
        yield
    finally:
        os.environ.pop(_HELD, None)
        os.close(descriptor)


def _open(lock: Path) -> int:
    try:
        return os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        pass
    try:
        # Made readable for all: a lock needs no more than a file one may read.
        descriptor = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_RDONLY | os.O_CLOEXEC, 0o644)
        os.fchmod(descriptor, 0o644)
        return descriptor
    except FileExistsError:
        return os.open(lock, os.O_RDONLY | os.O_CLOEXEC)


def _acquire(descriptor: int, what: str, patience_seconds: float) -> None:
    deadline = time.monotonic() + patience_seconds
    told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{what}: another bench, proof or chaos test has held this machine"
                    f" for {patience_seconds:.0f} s"
                ) from None
        if not told:
            told = True
            print(f"{what}: waiting for another bench, proof or chaos test", file=sys.stderr, flush=True)
        time.sleep(0.2)
