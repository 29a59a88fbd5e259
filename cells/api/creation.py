"""Group commit of creations.

A single `POST /v1/jobs` costs the store a transaction; a hundred at once cost it hardly more.
So requests hand their job to the `Creator` and wait. An idle creator writes at once. While a
write is in flight the next batch gathers, and under load a batch waits a moment longer for
company, which costs each request a millisecond and saves most of the work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from prometheus_client import Histogram

from cells.ports import Created, Fence, NewJob, Retryable, Store

#: Jobs in one write at most.
BATCH_LIMIT = 500
#: How long a batch waits for company under load (seconds).
LINGER_SECONDS = 0.001

_Waiting = tuple[Fence, NewJob, "asyncio.Future[Created]"]


class Creator:
    """Collects new jobs and writes them in batches, one write at a time."""

    def __init__(self, store: Store, host_id: Callable[[], int], batch_size: Histogram):
        self._store = store
        self._host_id = host_id
        self._batch_size = batch_size
        self._waiting: list[_Waiting] = []
        self._writer: asyncio.Task[None] | None = None

    async def create(self, fence: Fence, job: NewJob) -> Created:
        """Write one job; what became of it. Raises what the store says about this job."""
        done: asyncio.Future[Created] = asyncio.get_running_loop().create_future()
        self._waiting.append((fence, job, done))
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_all())
        return await done

    async def _write_all(self) -> None:
        try:
            size = 0
            while self._waiting:
                # Company is likely only where the last batch had some.
                if 1 < size < BATCH_LIMIT and len(self._waiting) < size:
                    await asyncio.sleep(LINGER_SECONDS)
                batch, self._waiting = self._waiting[:BATCH_LIMIT], self._waiting[BATCH_LIMIT:]
                size = len(batch)
                await self._write(batch)
        finally:
            self._writer = None

    async def _write(self, batch: list[_Waiting]) -> None:
        self._batch_size.observe(len(batch))
        try:
            results = await self._store.create_jobs(
                [fence for fence, _, _ in batch], [job for _, job, _ in batch], host_id=self._host_id()
            )
            told = list(zip(batch, results, strict=True))
        except Exception as error:  # noqa: BLE001 - each request of the batch is told; the writer goes on
            for _, _, done in batch:
                if not done.done():
                    done.set_exception(_copy(error))
            return
        for (_, _, done), result in told:
            if done.done():
                continue  # its request has gone away; the job is written all the same
            if isinstance(result, Exception):
                done.set_exception(result)
            else:
                done.set_result(result)


def _copy(error: Exception) -> Exception:
    # One exception object raised in many tasks would collect all their tracebacks.
    if isinstance(error, Retryable):
        return Retryable(*error.args)
    return error
