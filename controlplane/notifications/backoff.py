"""When a message that did not arrive is sent again. Pure."""

from __future__ import annotations

from datetime import timedelta

#: Pauses behind the first failure, the second, …; the last one repeats (seconds).
PAUSES = (5, 30, 120, 300, 900, 1800, 3600, 7200, 10_800)
#: A message that could not be delivered for so long is dead.
GIVEN_UP = timedelta(hours=24)
#: What a receiver may ask for with Retry-After (seconds).
LONGEST_ASKED = 3600
#: While a rule's receiver fails, its other messages wait: longer with each failure in a row (seconds).
HOLDS = (5, 15, 60, 120, 300)


def pause_after(attempts: int, *, draw: float, asked: int | None = None) -> float:
    """Seconds to wait after the n-th failure. `draw` is drawn from [0, 1): pauses differ by a tenth either
    way, so that many do not come back at once. A receiver that asks for more time gets it."""
    pause = PAUSES[min(attempts, len(PAUSES)) - 1] * (0.9 + 0.2 * draw)
    return max(pause, min(asked, LONGEST_ASKED)) if asked is not None else pause


def hold_after(failures: int) -> int:
    """Seconds that a rule's messages wait after so many failures in a row."""
    return HOLDS[min(failures, len(HOLDS)) - 1]
