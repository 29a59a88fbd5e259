"""A cell answers at one address or at several: one for each of its processes that serve the API.

They stand in one text, comma separated. Callers take turns between them; one that refused a
connection is asked last for a moment, so that a dead process costs one attempt and not every other
request.
"""

from __future__ import annotations

import itertools
import time

#: How long an address that refused a connection is asked last (seconds).
LAST_FOR_SECONDS = 2.0


def split(text: str) -> tuple[str, ...]:
    """The addresses in a text, without trailing slashes."""
    return tuple(address.strip().rstrip("/") for address in text.split(",") if address.strip())


class Turns:
    """Whose turn it is. One per process."""

    def __init__(self) -> None:
        self._turn = itertools.count()
        self._last_until: dict[str, float] = {}

    def order(self, text: str) -> tuple[str, ...]:
        """All addresses in the order in which to try them."""
        addresses = split(text)
        if len(addresses) < 2:
            return addresses
        start = next(self._turn) % len(addresses)
        turned = addresses[start:] + addresses[:start]
        now = time.monotonic()
        return tuple(sorted(turned, key=lambda address: self._last_until.get(address, 0.0) > now))

    def refused(self, address: str) -> None:
        """It took no connection; nothing was sent there."""
        now = time.monotonic()
        self._last_until = {a: until for a, until in self._last_until.items() if until > now}
        self._last_until[address] = now + LAST_FOR_SECONDS
