"""One claimed task from claim to end: the handler, its heartbeats, what is told to the server.

The worker fences itself: the lease is counted from the moment the heartbeat that renewed it was
*sent*, and a handler whose lease has ended is stopped before somebody else may have the run.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from controlplane.client import worker_calls
from controlplane.client.errors import ApiError, ClockhouseError, TransportError, UnexpectedAnswer
from controlplane.client.tasks import Failed, Reason, Stopped, Task
from controlplane.client.transport import AsyncTransport
from controlplane.client.wire import Call
from controlplane.client.worker_calls import Claimed, Lease

_LOG = logging.getLogger("clockhouse.worker")

#: A claim is given up this long before its end, so that nobody else can have it yet.
_MARGIN_SECONDS = 1.0
#: A heartbeat that failed is tried again this soon.
_RETRY_SECONDS = 1.0
#: What a thread has, once it is asked to stop because the worker ends.
_LAST_GRACE_SECONDS = 3.0
#: Characters of an error that are worth keeping.
_ERROR_LIMIT = 2000
#: Reasons for which the claim is not ours any more: nothing is told, for it would not count.
_LOST = frozenset({Reason.SUPERSEDED, Reason.LEASE_ENDED})

Handler = Callable[[Task[Any]], Any]


class Execution:
    """The life of one task. `run` ends when the server knows, or cannot be told."""

    def __init__(
        self, task: Task[Any], claimed: Claimed, handler: Handler, transport: AsyncTransport
    ) -> None:
        self.task = task
        self._handler = handler
        self._is_coroutine = inspect.iscoroutinefunction(handler)
        self._transport = transport
        self._every = max(0.05, claimed.heartbeat_every_seconds)
        self._lease_end = 0.0
        self._work: asyncio.Future[Any] | None = None
        self._renewed(claimed.lease, time.monotonic())

    def stop(self, reason: Reason) -> None:
        """Ask the handler to end: coroutines are cancelled, others see it in their task."""
        if not self.task.stop(reason) or self._work is None:
            return
        _LOG.info("stopping %s: %s", self.task.run_id, reason.value)
        if self._is_coroutine:
            self._work.cancel()
        elif reason is Reason.DRAINING:
            # A thread cannot be ended; but the process will be, and somebody must have the task.
            asyncio.get_running_loop().call_later(_LAST_GRACE_SECONDS, self._work.cancel)

    async def run(self) -> None:
        """Work, tell, end. Never raises but when cancelled itself."""
        self._work = work = asyncio.ensure_future(self._call_handler())
        beats = asyncio.create_task(self._beat())
        try:
            await asyncio.wait({work})
        finally:
            beats.cancel()
            await asyncio.gather(beats, return_exceptions=True)
        await self._tell(work)  # without heartbeats: one behind the completion would be refused

    # --- the handler -------------------------------------------------------------------------
    def _call_handler(self) -> asyncio.Future[Any] | Any:
        if self._is_coroutine:
            return self._handler(self.task)
        return self._in_thread()

    def _in_thread(self) -> asyncio.Future[Any]:
        # A thread of its own and no pool: a pool's threads would keep a drained process alive.
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def work() -> None:
            result, error = None, None
            try:
                result = self._handler(self.task)
            except Exception as raised:  # noqa: BLE001 - whatever a handler raises is its outcome
                error = raised
            try:
                loop.call_soon_threadsafe(settle, result, error)
            except RuntimeError:
                _LOG.warning("%s ended after its worker", self.task.run_id)

        threading.Thread(target=work, name=f"task {self.task.run_id}", daemon=True).start()
        return future

    # --- the end -----------------------------------------------------------------------------
    async def _tell(self, work: asyncio.Future[Any]) -> None:
        task, reason = self.task, self.task.stopping
        if reason in _LOST:
            if not work.cancelled():
                work.exception()  # seen; it does not count
            return
        outcome = self._outcome(work)
        if outcome is None:
            await self._until_lease_end(worker_calls.release(task.run_id, epoch=task.epoch))
            return
        await self._until_lease_end(worker_calls.complete(task.run_id, epoch=task.epoch, **outcome))

    def _outcome(self, work: asyncio.Future[Any]) -> dict[str, Any] | None:
        """What is to be told; None: nothing was decided, the task goes back."""
        cancelled = self.task.stopping is Reason.CANCELLED
        error = None if work.cancelled() else work.exception()
        if work.cancelled() or isinstance(error, Stopped):
            return {"outcome": "CANCELLED"} if cancelled else None
        if error is None:
            return _succeeded(work.result())
        if isinstance(error, Failed):
            return {"outcome": "FAILED", "error": _text(error), "retryable": error.retryable}
        _LOG.warning("%s failed", self.task.run_id, exc_info=error)
        return {"outcome": "FAILED", "error": _text(error), "retryable": True}

    async def _until_lease_end(self, call: Call[None]) -> None:
        pause = 0.2
        while True:
            try:
                await self._transport.send(call)
            except (TransportError, ApiError, UnexpectedAnswer) as error:
                if isinstance(error, ApiError) and error.status < 500 and error.status != 429:
                    _LOG.warning("%s: %s was refused: %s", self.task.run_id, call.path, error)
                    return
                if time.monotonic() + pause > self._lease_end:
                    _LOG.error("%s: %s could not be told before the lease ended", self.task.run_id, call.path)
                    return
            else:
                return
            await asyncio.sleep(pause * random.random())
            pause = min(pause * 2, 5.0)

    # --- heartbeats --------------------------------------------------------------------------
    def _renewed(self, lease: Lease, since: float) -> None:
        self._lease_end = since + lease.seconds - min(_MARGIN_SECONDS, lease.seconds / 4)

    async def _beat(self) -> None:
        """Renew until cancelled; stop the handler when the server, or the end of the lease, says so."""
        pause = self._every
        while True:
            left = self._lease_end - time.monotonic()
            if left <= 0:
                self.stop(Reason.LEASE_ENDED)
                return
            await asyncio.sleep(min(pause, left))
            if self._lease_end <= time.monotonic():
                continue
            sent = time.monotonic()
            try:
                async with asyncio.timeout(self._lease_end - sent):
                    lease = await self._transport.send(self._heartbeat())
            except (ClockhouseError, TimeoutError) as error:
                if isinstance(error, ApiError) and error.status in (404, 409):
                    self.stop(Reason.SUPERSEDED)
                    return
                _LOG.warning("heartbeat of %s: %s", self.task.run_id, error)
                pause = min(_RETRY_SECONDS, self._every)
                continue
            pause = self._every
            self._renewed(lease, sent)
            if lease.cancel_requested:
                self.stop(Reason.CANCELLED)

    def _heartbeat(self) -> Call[Lease]:
        return worker_calls.heartbeat(self.task.run_id, epoch=self.task.epoch, progress=self.task._reported)


def _succeeded(result: Any) -> dict[str, Any]:
    try:
        json.dumps(result, allow_nan=False)
    except (TypeError, ValueError) as fault:
        # Not stored is not done, and another attempt would return the same.
        return {"outcome": "FAILED", "error": f"the result is no JSON: {fault}", "retryable": False}
    return {"outcome": "SUCCEEDED", "result": result}


def _text(error: BaseException) -> str:
    text = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
    return text.replace("\x00", "")[:_ERROR_LIMIT]
