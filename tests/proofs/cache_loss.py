"""cache-loss: a Valkey that is flushed, killed (-9) and restarted again and again under a steady load
of jobs costs no run: every occurrence has exactly one SUCCEEDED run, none is early, none is later
than a few seconds."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

from tests.accounts import accounted, settle
from tests.fleet import Fleet, Load, fleet
from tests.recorder import Recorder

PER_SECOND = 40
ROUNDS = 3
PAUSE_SECONDS = 5.0
#: Seconds late at most: a new generation is noticed, loaded and swept within this.
LATEST_SECONDS = 10.0


def main(rounds: int = ROUNDS, per_second: float = PER_SECOND) -> dict[str, Any]:
    with Recorder(delay_seconds=0.02) as target, fleet(target.url) as cell:
        cell.start_all("ab")
        with Load(cell, per_second=per_second) as load:
            losses = lose_again_and_again(cell, rounds)
            load.finish()
            settle(cell, load, timeout=60)
        found = accounted(cell, load, target)
    return {
        **found,
        "holds": found["holds"] and found["latest_seconds"] <= LATEST_SECONDS,
        "losses_of_the_cache": losses,
    }


def lose_again_and_again(cell: Fleet, rounds: int, *, pause_seconds: float = PAUSE_SECONDS) -> int:
    """FLUSHALL, kill -9, a gentle restart; how many times."""
    ways: tuple[Callable[[], None], ...] = (
        cell.flush_valkey,
        lambda: cell.restart_valkey(signal.SIGKILL),
        cell.restart_valkey,
        lambda: (cell.flush_valkey(), cell.restart_valkey(signal.SIGKILL))[-1],
    )
    for _ in range(rounds):
        for lose in ways:
            time.sleep(pause_seconds)
            lose()
    return rounds * len(ways)
