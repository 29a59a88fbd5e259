"""The claims this executor has, counted per target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cells.execution.lanes import Work


class Held:
    """A set of works; `target.load.held` follows it."""

    def __init__(self) -> None:
        self._works: set[Work] = set()

    def __iter__(self) -> Iterator[Work]:
        return iter(self._works)

    def __len__(self) -> int:
        return len(self._works)

    def add_all(self, works: Iterable[Work]) -> None:
        """They were claimed."""
        for work in works:
            self._works.add(work)
            work.target.load.held += 1

    def discard(self, work: Work) -> None:
        """It has been dealt with."""
        if work in self._works:
            self._works.remove(work)
            work.target.load.held -= 1
