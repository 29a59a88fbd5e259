"""Durations as people write them: `30s`, `5m`, `3d`, `1h30m`."""

from __future__ import annotations

import re

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_PART = re.compile(r"(\d{1,9})(ms|s|m|h|d|w)")
_WHOLE = re.compile(r"(?:\d{1,9}(?:ms|[smhdw]))+")

#: Nothing waits longer than this (milliseconds): ten years.
LONGEST_MS = 3_660 * 86_400_000


def parse_duration(text: object) -> int:
    """Milliseconds of a duration; a bare whole number is seconds. Raises ValueError, with a
    sentence about what is wrong."""
    if isinstance(text, int) and not isinstance(text, bool):
        total = text * 1_000
    elif isinstance(text, str) and _WHOLE.fullmatch(text):
        parts = _PART.findall(text)
        sizes = [_UNITS[unit] for _, unit in parts]
        if sizes != sorted(set(sizes), reverse=True):
            raise ValueError(f"{text!r} names a unit twice or a smaller one first")
        total = sum(int(number) * _UNITS[unit] for number, unit in parts)
    else:
        raise ValueError(f"{text!r} is no duration; write 30s, 5m, 12h or 3d")
    if not 0 < total <= LONGEST_MS:
        raise ValueError(f"{text!r} is not between 1ms and {LONGEST_MS // 86_400_000}d")
    return total
