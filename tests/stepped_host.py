"""`python -m tests.stepped_host`: a process of a cell on a machine whose wall clock is wrong.

The file named by STEPPED_CLOCK holds how far it is ahead (milliseconds, eight bytes, negative when
it is behind) and may change at any moment. The steady clock is the machine's own, as it would be.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from pathlib import Path

from cells.clock import SystemClock
from cells.host import main

_AHEAD = struct.Struct("=q")


class SteppedClock(SystemClock):
    """The machine's clock, put ahead or back by whoever writes to a file."""

    def __init__(self, file: Path) -> None:
        with file.open("r+b") as opened:
            self._ahead = mmap.mmap(opened.fileno(), _AHEAD.size)

    def now_ms(self) -> int:
        ahead: int = _AHEAD.unpack_from(self._ahead)[0]
        return super().now_ms() + ahead


def step(file: Path, ahead_ms: int) -> None:
    """Put the clocks that read this file ahead by so much."""
    if file.exists():
        with file.open("r+b") as opened:
            opened.write(_AHEAD.pack(ahead_ms))
    else:
        file.write_bytes(_AHEAD.pack(ahead_ms))


if __name__ == "__main__":
    sys.exit(main(clock=SteppedClock(Path(os.environ["STEPPED_CLOCK"]))))
