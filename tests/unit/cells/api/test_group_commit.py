"""Many requests in one write: one that is refused costs nobody else anything."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from cells.api.group_commit import GroupCommit
from cells.observability.metrics import Metrics
from cells.ports import Retryable


def group(write: object) -> GroupCommit[int, int]:
    return GroupCommit(write, most=100, sizes=Metrics().histogram("sizes", "Sizes"))  # type: ignore[arg-type]


async def test_one_that_is_refused_costs_the_others_nothing() -> None:
    async def write(items: Sequence[int]) -> Sequence[int]:
        if 2 in items:
            raise ValueError("not 2")
        return [10 * item for item in items]

    made = group(write)
    puts = [made.put([1]), made.put([2, 3]), made.put([4, 5])]
    first, second, third = await asyncio.gather(*puts, return_exceptions=True)
    assert (first, third) == ([10], [40, 50])
    assert isinstance(second, ValueError)


async def test_while_the_store_is_away_nobody_asks_one_by_one() -> None:
    asked: list[int] = []

    async def write(items: Sequence[int]) -> Sequence[int]:
        asked.append(len(items))
        raise Retryable("away")

    made = group(write)
    answers = await asyncio.gather(made.put([1]), made.put([2]), return_exceptions=True)
    assert [type(answer) for answer in answers] == [Retryable, Retryable]
    assert asked == [2]


async def test_alone_it_is_told() -> None:
    async def write(items: Sequence[int]) -> Sequence[int]:
        raise ValueError(len(items))

    with pytest.raises(ValueError, match="1"):
        await group(write).put([1])
