"""How tasks are shared among those who ask for them at the same moment."""

from __future__ import annotations

from collections.abc import Sequence


def shares(wanted: Sequence[int], available: int) -> list[int]:
    """How many each one gets of `available`: as evenly as their wishes allow, and none is left over
    while anybody wants more. What cannot be divided goes to those who asked first."""
    given = [0] * len(wanted)
    left = min(available, sum(wanted))
    hungry = [i for i, want in enumerate(wanted) if want > 0]
    while left:
        each = left // len(hungry) or 1
        for i in hungry[:left]:
            part = min(each, wanted[i] - given[i])
            given[i] += part
            left -= part
        hungry = [i for i in hungry if given[i] < wanted[i]]
    return given
