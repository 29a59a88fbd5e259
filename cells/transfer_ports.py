"""What the API needs of moves: the verbs of both sides, and completions that come from another cell."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Protocol

from cells.contract import MoveOrder, MoveSide, MoveVerb
from cells.ports import Completion
from cells.returns import AwayPage

#: What a verb answers: JSON values.
Answer = Mapping[str, object]


class Transfers(Protocol):
    """One cell's part in moves of tenants."""

    async def act(self, move_id: uuid.UUID, side: MoveSide, verb: MoveVerb, order: MoveOrder) -> Answer:
        """Do what is asked, again or for the first time. `Conflict` where the state of the move, the
        tenant or this cell does not allow it (any more); `Retryable` where an engine is away."""
        ...

    async def take_over(
        self, move_id: uuid.UUID, sender: str, completions: Sequence[Completion]
    ) -> Sequence[bool]:
        """Ends of calls that began in the cell the tenant came from; which of them took effect."""
        ...

    async def take_report(self, move_id: uuid.UUID, sender: str, page: AwayPage) -> None:
        """What the cell the tenant came from reports of a region that came back there."""
        ...
