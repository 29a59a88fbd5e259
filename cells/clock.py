"""The clock of this machine."""

from __future__ import annotations

import time

#: Leases are counted on a clock that goes on while the machine sleeps: a host that was
#: suspended must find its lease over when it wakes.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """Implements `ports.Clock`."""

    def now_ms(self) -> int:
        """Wall time, epoch milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds since boot, suspended time included; never steps."""
        return time.clock_gettime(_STEADY)
