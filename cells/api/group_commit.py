"""Many small requests, one transaction: what workers say is written in batches.

One batch is under way at a time; what comes meanwhile makes the next one bigger. Under load a batch
waits a moment for company.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from prometheus_client import Histogram

from cells.ports import Retryable

Item = TypeVar("Item")
Result = TypeVar("Result")

#: How long a batch waits for company under load (seconds).
LINGER_SECONDS = 0.002


class GroupCommit(Generic[Item, Result]):
    """Collects items and hands them to `write`, which answers with one result for each."""

    def __init__(
        self,
        write: Callable[[Sequence[Item]], Awaitable[Sequence[Result]]],
        *,
        most: int,
        sizes: Histogram,
    ):
        self._write = write
        self._most = most
        self._sizes = sizes
        self._waiting: list[tuple[Sequence[Item], asyncio.Future[Sequence[Result]]]] = []
        self._writer: asyncio.Task[None] | None = None

    async def put(self, items: Sequence[Item]) -> Sequence[Result]:
        """Have them written together; their results. Raises what the store says of them; what it refuses
        in a batch it is asked for request by request, so that none pays for another."""
        done: asyncio.Future[Sequence[Result]] = asyncio.get_running_loop().create_future()
        self._waiting.append((items, done))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_all())
        return await done

    async def _write_all(self) -> None:
        last = 0
        try:
            while self._waiting:
                if last > 1 and len(self._waiting) < last:
                    await asyncio.sleep(LINGER_SECONDS)
                batch: list[tuple[Sequence[Item], asyncio.Future[Sequence[Result]]]] = []
                count = 0
                while self._waiting and (not batch or count + len(self._waiting[0][0]) <= self._most):
                    batch.append(self._waiting.pop(0))
                    count += len(batch[-1][0])
                last = len(batch)
                self._sizes.observe(count)
                await self._one(batch)
        finally:
            self._writer = None

    async def _one(self, batch: Sequence[tuple[Sequence[Item], asyncio.Future[Sequence[Result]]]]) -> None:
        try:
            results = await self._write([item for items, _ in batch for item in items])
        except Exception as error:  # noqa: BLE001 - each request of the batch is told; the writer goes on
            if len(batch) > 1 and not isinstance(error, Retryable):
                for one in batch:
                    await self._one([one])
                return
            for _, done in batch:
                if not done.done():
                    # One exception raised in many tasks would collect all their tracebacks.
                    done.set_exception(Retryable(*error.args) if isinstance(error, Retryable) else error)
            return
        start = 0
        for items, done in batch:
            if not done.done():
                done.set_result(results[start : start + len(items)])
            start += len(items)
