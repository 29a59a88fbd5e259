"""How a client waits for something to end: short pauses first, for most runs are short. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from controlplane.client.errors import TimedOut

_FIRST, _LONGEST, _GROWTH = 0.1, 2.0, 1.5


def pauses() -> Iterator[float]:
    """Seconds between one look and the next; without end."""
    pause = _FIRST
    while True:
        yield pause
        pause = min(pause * _GROWTH, _LONGEST)


def check_deadline(what: str, state: str, pause: float, left: float, timeout: float) -> float:
    """The pause, cut to what is left; `TimedOut` if nothing is."""
    if left <= 0:
        raise TimedOut(f"{what} is still {state} after {timeout:g} s; it goes on")
    return min(pause, left)
