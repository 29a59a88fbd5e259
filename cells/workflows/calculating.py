"""A process that makes heavy values, one after the other, and may be killed at any time: it knows nothing but
what it is sent. Its address space is bounded, and the processor time of each value; it has what time of
processors nobody else wants, and is the first to go where memory runs out.

    python -m cells.workflows.calculating < framed requests > framed answers
"""

from __future__ import annotations

import math
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from cells.domain.workflow.heavy import Outcome, make

#: Processor time of one value (seconds): several times what the most expensive one that is begun takes.
CPU_SECONDS = 20
#: Bytes of address space, the interpreter's among them.
MEMORY_BYTES = 1 << 30
#: Weight against everything else here: one to seventy, so that it is slow on a busy machine but gets done.
_NICE = 19
#: Its exit status where memory ran out beside a value, as while one is read.
NO_MEMORY = 3
#: Bytes before each message that say how long it is.
PREFIX = 4
_encode = msgspec.json.Encoder().encode


def serve(requests: BinaryIO, answers: BinaryIO, *, seconds: float = CPU_SECONDS) -> None:
    """Until the requests end. Past the processor time the system ends this process (SIGXCPU)."""
    while len(head := requests.read(PREFIX)) == PREFIX:
        payload = requests.read(int.from_bytes(head))
        used = resource.getrusage(resource.RUSAGE_SELF)
        _, hardest = resource.getrlimit(resource.RLIMIT_CPU)
        until = math.ceil(used.ru_utime + used.ru_stime + seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (until, hardest))
        try:
            outcome = make(payload)
        except MemoryError:
            outcome = Outcome(fault=f"needs more than {MEMORY_BYTES >> 20} MB of memory")
        answer = _encode(outcome)
        answers.write(len(answer).to_bytes(PREFIX) + answer)
        answers.flush()


def main() -> None:
    """Bounded, and left alone by who stops the terminal's processes: whoever started it ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICE)
    with suppress(OSError):  # a hint, which not every system takes: the limits hold everywhere
        Path("/proc/self/oom_score_adj").write_text("1000")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    sys.stdout.buffer.write(bytes(PREFIX))  # it has begun: what ends it now is a value
    sys.stdout.buffer.flush()
    seconds = float(sys.argv[1]) if sys.argv[1:] else CPU_SECONDS
    try:
        serve(sys.stdin.buffer, sys.stdout.buffer, seconds=seconds)
    except MemoryError:
        os._exit(NO_MEMORY)  # leaving in good order may need some


if __name__ == "__main__":
    main()
