"""Pull workers: take tasks from queues, work on them, say how it went.

    worker = Worker(concurrency=8)

    @worker.handles("ledger-rebuild")
    async def rebuild(task: Task[dict[str, str]]) -> dict[str, int]:
        ...

    worker.run()      # until SIGTERM

A handler is a coroutine function, or an ordinary function that gets a thread of its own. What it
returns is the result; what it raises is the failure (`Failed` says whether to retry). At SIGTERM
the worker asks for no more, gives handlers `drain_seconds` to finish, and gives the rest back.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import os
import random
import secrets
import signal
import socket
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from controlplane.client import worker_calls
from controlplane.client.errors import (
    ApiError,
    ClockhouseError,
    ConfigurationError,
    Forbidden,
    Unauthenticated,
)
from controlplane.client.execution import Execution, Handler
from controlplane.client.profiles import find_settings
from controlplane.client.retrying import NEVER
from controlplane.client.tasks import Failed, Reason, Task
from controlplane.client.transport import AsyncTransport
from controlplane.client.worker_calls import Claimed

__all__ = ["Failed", "Reason", "Task", "Worker"]

T = TypeVar("T")
_LOG = logging.getLogger("clockhouse.worker")

#: What one poll may bring at most.
_MOST_AT_ONCE = 100
_LONGEST_POLL_SECONDS = 30
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Registered:
    handler: Handler
    reads: Callable[..., Any] | None


class Worker:
    """Handlers by queue, and the loop that feeds them. Address and key as for `Clockhouse`; the key
    needs the scope `workers`."""

    def __init__(
        self,
        api_url: str | None = None,
        api_key: str | None = None,
        *,
        profile: str | None = None,
        concurrency: int = 8,
        drain_seconds: float = 20.0,
        poll_seconds: int = 20,
        worker_id: str | None = None,
    ) -> None:
        """`concurrency`: tasks at once, of each queue. `poll_seconds`: how long the server holds a
        poll open, 30 at most. `worker_id` is shown to people; made up if absent."""
        if concurrency < 1:
            raise ConfigurationError("a worker needs a concurrency of at least 1")
        self._settings = functools.partial(find_settings, api_url=api_url, api_key=api_key, profile=profile)
        self.concurrency = concurrency
        self.drain_seconds = drain_seconds
        self.poll_seconds = max(0, min(poll_seconds, _LONGEST_POLL_SECONDS))
        self.worker_id = worker_id or f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._handlers: dict[tuple[str, str | None], _Registered] = {}
        self._executions: dict[asyncio.Task[None], Execution] = {}
        self._draining: asyncio.Event | None = None
        self._ended: asyncio.Event | None = None

    # --- handlers ----------------------------------------------------------------------------
    def handles(
        self, queue: str, *, kind: str | None = None, reads: Callable[..., T] | None = None
    ) -> Callable[[Callable[[Task[T]], Any]], Callable[[Task[T]], Any]]:
        """Register the decorated function for a queue, or for the tasks of one type in it (`kind`): steps
        of workflows have the type their definition says. A handler without a `kind` gets all other types;
        without one, a task of a type that is not known here fails, and may be tried by another worker.

        `reads` makes the payload: a dataclass gets the members of the JSON object, anything else
        is called with the payload. A payload it refuses fails the task for good.
        """

        def register(handler: Callable[[Task[T]], Any]) -> Callable[[Task[T]], Any]:
            if (queue, kind) in self._handlers:
                raise ConfigurationError(f"there is a handler for {queue} {kind or ''} already".strip())
            self._handlers[queue, kind] = _Registered(handler=handler, reads=reads)
            return handler

        return register

    @property
    def queues(self) -> list[str]:
        """The queues it has handlers for."""
        return sorted({queue for queue, _ in self._handlers})

    # --- running -----------------------------------------------------------------------------
    def run(self) -> None:
        """Work until SIGTERM or SIGINT; a second signal does not wait for handlers."""
        asyncio.run(self._run_with_signals())

    async def _run_with_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        try:
            await self.serve()
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    def _signalled(self) -> None:
        if self._draining is not None and self._draining.is_set():
            if self._ended is not None:
                self._ended.set()
        else:
            self.drain()

    def drain(self) -> None:
        """Ask for no more tasks, finish what is here, end. `serve` returns when that is done."""
        if self._draining is not None and not self._draining.is_set():
            _LOG.info("draining: %d tasks under way", len(self._executions))
            self._draining.set()

    async def serve(self) -> None:
        """Work until `drain`. Raises `Unauthenticated` or `Forbidden` if the key is of no use."""
        if not self._handlers:
            raise ConfigurationError("the worker has no handlers")
        self._draining, self._ended = asyncio.Event(), asyncio.Event()
        transport = AsyncTransport(self._settings(), timeout=30, retries=NEVER, product="worker")
        _LOG.info("%s works on %s", self.worker_id, ", ".join(self.queues))
        polls = [asyncio.create_task(self._feed(queue, transport)) for queue in self.queues]
        drained = asyncio.create_task(self._draining.wait())
        try:
            await asyncio.wait({*polls, drained}, return_when=asyncio.FIRST_COMPLETED)
            self._draining.set()
            # A poll that is cut off starts nothing here. A task that was on its way is claimed all the
            # same: nobody heartbeats it, so it is handed out again when its lease ends.
            for poll in (*polls, drained):
                poll.cancel()
            ends = await asyncio.gather(*polls, return_exceptions=True)
            await self._drain(self._ended)
            if not any(isinstance(end, Exception) for end in ends):  # else nobody would hear it
                await self._leave(transport)
        finally:
            await transport.close()
        for end in ends:
            if isinstance(end, Exception):
                raise end

    async def _drain(self, ended: asyncio.Event) -> None:
        impatient = asyncio.create_task(ended.wait())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.drain_seconds):
                while self._executions and not ended.is_set():
                    await asyncio.wait({*self._executions, impatient}, return_when=asyncio.FIRST_COMPLETED)
        impatient.cancel()
        left = dict(self._executions)
        for execution in left.values():
            execution.stop(Reason.DRAINING)
        if left:
            await asyncio.wait(left, timeout=10.0)

    async def _leave(self, transport: AsyncTransport) -> None:
        """Say goodbye, so that people see it left, and what was not given back comes back now and not
        when its lease ends."""

        async def goodbye(queue: str) -> None:
            try:
                await transport.send(worker_calls.leave(queue, worker_id=self.worker_id))
            except ClockhouseError as error:
                _LOG.warning("leaving %s: %s", queue, error)

        await asyncio.gather(*map(goodbye, self.queues))

    # --- polling -----------------------------------------------------------------------------
    async def _feed(self, queue: str, transport: AsyncTransport) -> None:
        """Poll one queue as long as there is room for what comes."""
        room = asyncio.Semaphore(self.concurrency)
        pause = _FIRST_PAUSE
        while True:
            await room.acquire()
            taken = 1
            while taken < _MOST_AT_ONCE and not room.locked():
                await room.acquire()
                taken += 1
            try:
                tasks = await transport.send(self._poll(queue, taken))
            except (Unauthenticated, Forbidden):
                raise
            except ClockhouseError as error:
                _release(room, taken)
                wait = error.retry_after if isinstance(error, ApiError) else None
                _LOG.warning("poll of %s: %s", queue, error)
                await asyncio.sleep(max(pause * random.random(), wait or 0.0))
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            _release(room, taken - len(tasks))
            for claimed in tasks:
                self._begin(queue, claimed, room, transport)

    def _poll(self, queue: str, room: int) -> Any:
        return worker_calls.poll(
            queue, worker_id=self.worker_id, wait_seconds=self.poll_seconds, max_tasks=room
        )

    def _begin(
        self, queue: str, claimed: Claimed, room: asyncio.Semaphore, transport: AsyncTransport
    ) -> None:
        registered = self._handlers.get((queue, claimed.type)) or self._handlers.get((queue, None))
        task: Task[Any] = Task(
            queue=queue,
            run_id=claimed.run_id,
            epoch=claimed.epoch,
            idempotency_key=claimed.idempotency_key,
            payload=claimed.payload,
            attempt=claimed.attempt,
            traceparent=claimed.traceparent,
            tracestate=claimed.tracestate,
            type=claimed.type,
            workflow_id=claimed.workflow_id,
            step=claimed.step,
            compensates=claimed.compensates,
        )
        handler = _prepared(registered, task)
        execution = Execution(task, claimed, handler, transport)
        running = asyncio.create_task(execution.run(), name=claimed.run_id)
        self._executions[running] = execution

        def over(done: asyncio.Task[None]) -> None:
            self._executions.pop(done, None)
            room.release()
            if not done.cancelled() and (error := done.exception()) is not None:
                _LOG.error("the execution of %s broke", claimed.run_id, exc_info=error)

        running.add_done_callback(over)


def _release(room: asyncio.Semaphore, count: int) -> None:
    for _ in range(count):
        room.release()


def _prepared(registered: _Registered | None, task: Task[Any]) -> Handler:
    """The handler for a task whose payload is read; or one that fails, saying why."""
    if registered is None:
        # Another worker may have one: while a new version is rolled out, some know a type and some do not.
        return _refusing(f"no handler for tasks of type {task.type} of {task.queue}", retryable=True)
    if registered.reads is not None:
        try:
            task.payload = _read(registered.reads, task.payload)
        except (TypeError, ValueError, KeyError) as fault:
            why = f"the payload is not what the handler reads: {type(fault).__name__}: {fault}"
            return _refusing(why, retryable=False)
    return registered.handler


def _read(reads: Callable[..., Any], payload: Any) -> Any:
    if dataclasses.is_dataclass(reads):
        if not isinstance(payload, Mapping):
            raise TypeError(f"an object is expected, this is {type(payload).__name__}")
        return reads(**payload)
    return reads(payload)


def _refusing(why: str, *, retryable: bool) -> Handler:
    async def refuse(task: Task[Any]) -> None:
        raise Failed(why, retryable=retryable)

    return refuse
