"""The desk where pollers wait for tasks.

All polls of this process are served by one statement at a time. A poll is looked after when it comes (a
moment later where the last look at its queue came up short just now), when tasks of its queue are
announced, and once a second in case an announcement was lost. A poller
that has left gets nothing; what was claimed for it at that very moment is given back at once.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from prometheus_client import Histogram

from cells.api.handed_out import HandedOut
from cells.api.handing import Handing, is_strict
from cells.observability.logs import logger
from cells.ports import Queue, Retryable, Store, Terminal
from cells.pulling import Held, Poller, PulledTask, QueueId, WorkerSeen

log = logger(__name__)

#: Tasks claimed in one transaction at most.
MOST_TASKS = 1000
#: How long a look waits for company when the last one had some (seconds).
LINGER_SECONDS = 0.002
#: A queue that had less than was asked for is looked at again for new polls after so long, unless tasks are
#: announced: what ends under load makes its worker ask at once, mostly before there is more (seconds).
SHORT_SECONDS = 0.01
#: Looked at all queues at least this often (seconds).
LOOK_SECONDS = 1.0
#: How long a poll that does not wait may wait for its look (seconds).
ONE_LOOK_SECONDS = 5.0
#: How often it is written down who polled (seconds).
SEEN_SECONDS = 1.0
_SHORT_KEPT = 10_000


class _Waiting:
    __slots__ = ("done", "once", "poller", "promised")

    def __init__(self, poller: Poller, done: asyncio.Future[Sequence[PulledTask]], *, once: bool):
        self.poller = poller
        self.done = done
        self.once = once  # it takes what one look finds
        self.promised = False  # tasks were claimed for it, and another region is asked whether it has that


class Desk:
    """Hands tasks to pollers. `close` answers all of them with nothing."""

    def __init__(
        self,
        store: Store,
        queue: Queue,
        host_id: Callable[[], int],
        sizes: Histogram,
        handed_out: HandedOut,
        handing: Handing,
    ):
        self._store = store
        self._handing = handing
        self._promises: set[asyncio.Task[None]] = set()
        self._queue = queue
        self._host_id = host_id
        self._sizes = sizes
        self._handed_out = handed_out
        self._waiting: dict[QueueId, list[_Waiting]] = {}
        self._hungry: dict[QueueId, None] = {}
        self._short: dict[QueueId, float] = {}  # when a look at it came up short
        self._later: set[QueueId] = set()  # to be looked at in a moment
        self._server: asyncio.Task[None] | None = None
        self._looker: asyncio.Task[None] | None = None
        self._seen: dict[tuple[QueueId, str], bool] = {}
        self._writer: asyncio.Task[None] | None = None
        self._closed = False
        self._listening = False

    def __len__(self) -> int:
        """How many polls wait."""
        return sum(len(waiting) for waiting in self._waiting.values())

    async def poll(
        self, poller: Poller, *, wait_seconds: float, gone: asyncio.Future[Any]
    ) -> Sequence[PulledTask]:
        """Tasks as soon as there are some, none after `wait_seconds` (0: after one look). `gone` is done
        when the client has left: then nothing is handed out."""
        self.saw(
            WorkerSeen(tenant_id=poller.tenant_id, task_queue=poller.task_queue, worker_id=poller.worker_id)
        )
        if self._closed:
            return ()
        if not self._listening:
            self._listening = True
            self._queue.on_tasks(self._heard)
        waiting = _Waiting(poller, asyncio.get_running_loop().create_future(), once=wait_seconds <= 0)
        queue = (poller.tenant_id, poller.task_queue)
        self._waiting.setdefault(queue, []).append(waiting)
        self._came(queue, once=waiting.once)
        try:
            await asyncio.wait(
                {waiting.done, gone},
                timeout=wait_seconds if wait_seconds > 0 else ONE_LOOK_SECONDS,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            if not waiting.done.done():
                waiting.done.cancel()  # what is claimed for it from now on goes back
            self._forget(queue, waiting)
        if waiting.done.cancelled():
            return ()
        tasks = waiting.done.result()
        if gone.done():
            await self.give_back(tasks)
            return ()
        self._handed_out.keep(tasks, poller.worker_id)
        return tasks

    async def give_back(self, tasks: Sequence[PulledTask]) -> None:
        """Claimed for somebody who never got them."""
        held = [Held(tenant_id=t.claim.tenant_id, key=t.claim.key, epoch=t.claim.epoch) for t in tasks]
        if not held:
            return
        try:
            queues = await self._store.give_back(held, host_id=self._host_id())
            await self.announce([queue for queue in queues if queue is not None])
        except (Retryable, Terminal) as fault:
            # Their leases end, and the reaper takes them back.
            log.warning("undelivered tasks not given back", tasks=len(held), fault=str(fault)[:200])

    async def announce(self, queues: Sequence[QueueId]) -> None:
        """Wake those who poll these queues, here and elsewhere."""
        self._heard(queues)
        try:
            await self._queue.announce(sorted(set(queues)))
        except Retryable as fault:
            log.warning("tasks not announced", fault=str(fault)[:200])

    def saw(self, worker: WorkerSeen) -> None:
        """Have it written down, within a second, that a worker was here or has left."""
        self._seen[(worker.tenant_id, worker.task_queue), worker.worker_id] = worker.left
        if self._writer is None:
            self._writer = asyncio.create_task(self._write_seen())

    def dismiss(self, tenant_id: uuid.UUID) -> None:
        """Answer a tenant's workers with nothing: it has moved away, and asking again finds its tasks."""
        for (tenant, _), waiting in self._waiting.items():
            for one in waiting:
                if tenant == tenant_id and not one.done.done():
                    one.done.set_result(())

    def close(self) -> None:
        """Answer everybody with nothing, from now on."""
        self._closed = True
        for waiting in self._waiting.values():
            for one in waiting:
                if not one.done.done():
                    one.done.set_result(())

    async def settled(self) -> None:
        """Return when what was claimed for pollers has been handed out or given back."""
        while self._promises:
            await asyncio.wait(self._promises)
        await self._handing.settled()

    # --- inside --------------------------------------------------------------------------
    def _heard(self, queues: Sequence[QueueId] | None) -> None:
        for queue in list(self._waiting) if queues is None else queues:
            if queue in self._waiting:
                self._look_at(queue)

    def _came(self, queue: QueueId, *, once: bool) -> None:
        """A poll has come to it."""
        loop = asyncio.get_running_loop()
        if once or loop.time() - self._short.get(queue, -SHORT_SECONDS) >= SHORT_SECONDS:
            self._look_at(queue)
        elif queue not in self._later:
            self._later.add(queue)
            loop.call_later(SHORT_SECONDS, self._after_a_moment, queue)

    def _after_a_moment(self, queue: QueueId) -> None:
        self._later.discard(queue)
        self._heard([queue])

    def _look_at(self, queue: QueueId) -> None:
        self._hungry[queue] = None
        if self._server is None:
            self._server = asyncio.create_task(self._serve())
        if self._looker is None:
            self._looker = asyncio.create_task(self._look())

    def _forget(self, queue: QueueId, waiting: _Waiting) -> None:
        others = self._waiting.get(queue)
        if others is not None and waiting in others:
            others.remove(waiting)
            if not others:
                del self._waiting[queue]
                if len(self._short) > _SHORT_KEPT:
                    self._short.clear()

    async def _look(self) -> None:
        try:
            while self._waiting:
                await asyncio.sleep(LOOK_SECONDS)
                self._heard(None)
        finally:
            self._looker = None

    async def _serve(self) -> None:
        company = 0
        try:
            while self._hungry:
                # The tick in which a poll arrives may bring others; under load, so does a moment more.
                await asyncio.sleep(LINGER_SECONDS if company > 1 else 0)
                company = await self._serve_once()
        finally:
            self._server = None

    async def _serve_once(self) -> int:
        """One look for everybody who waits at hungry queues; how many they were."""
        queues, self._hungry = self._hungry, {}
        asking: list[_Waiting] = []
        cut: set[QueueId] = set()  # queues of which not everybody could be asked for
        room = MOST_TASKS
        for queue in queues:
            for waiting in self._waiting.get(queue, ()):
                if waiting.done.done() or waiting.promised:
                    continue
                if waiting.poller.count > room:
                    cut.add(queue)
                    break
                asking.append(waiting)
                room -= waiting.poller.count
        if not asking:
            return 0
        try:
            got = await self._poll([w.poller for w in asking])
        except (Retryable, Terminal) as fault:
            # They go on waiting; the next look may have more luck.
            log.warning("tasks cannot be polled", fault=str(fault)[:200])
            return 0
        except Exception:
            log.exception("polling for tasks failed in here")
            return 0
        undelivered: list[PulledTask] = []
        handed, now = 0, asyncio.get_running_loop().time()
        for waiting, tasks in zip(asking, got, strict=True):
            if len(tasks) < waiting.poller.count:
                queue = (waiting.poller.tenant_id, waiting.poller.task_queue)
                cut.discard(queue)  # nothing is left there
                self._short[queue] = now
            if not tasks:
                if waiting.once and not waiting.done.done():
                    waiting.done.set_result(())
                continue
            if waiting.done.done():
                undelivered += tasks
            elif any(map(is_strict, tasks)):
                self._promise(waiting, tasks)
            else:
                handed += len(tasks)
                waiting.done.set_result(tasks)
        self._sizes.observe(handed)
        for queue in cut:
            self._hungry[queue] = None
        if undelivered:
            await self.give_back(undelivered)
        return len(asking)

    def _promise(self, waiting: _Waiting, tasks: Sequence[PulledTask]) -> None:
        """Have a poller get tasks once the STRICT ones are confirmed. Nobody else waits for that."""
        waiting.promised = True
        task = asyncio.create_task(self._hand_out(waiting, tasks))
        self._promises.add(task)
        task.add_done_callback(self._promises.discard)

    async def _hand_out(self, waiting: _Waiting, tasks: Sequence[PulledTask]) -> None:
        ready = await self._handing.confirmed(tasks)
        waiting.promised = False
        if waiting.done.done():
            await self.give_back(ready)
        elif ready or waiting.once:
            waiting.done.set_result(ready)
        else:
            self._look_at((waiting.poller.tenant_id, waiting.poller.task_queue))

    async def _poll(self, pollers: Sequence[Poller]) -> Sequence[Sequence[PulledTask]]:
        """One look for them, within their tenants' quotas of running runs."""
        wanted: Counter[uuid.UUID] = Counter()
        for poller in pollers:
            wanted[poller.tenant_id] += poller.count
        try:
            left = dict(await self._queue.take_places(wanted))
        except Retryable as fault:
            # The count is away with all that comes through the gate; what is READY came through before.
            log.warning("polled without a count of what runs", fault=str(fault)[:200])
            left = {}
        unused = Counter(left)
        asking: list[tuple[int, Poller]] = []
        for n, poller in enumerate(pollers):
            count = min(poller.count, left.get(poller.tenant_id, poller.count))
            if poller.tenant_id in left:
                left[poller.tenant_id] -= count
            if count:
                asking.append((n, poller if count == poller.count else replace(poller, count=count)))
        got: list[Sequence[PulledTask]] = [()] * len(pollers)
        try:
            if asking:
                found = await self._store.poll([p for _, p in asking], host_id=self._host_id())
                for (n, poller), tasks in zip(asking, found, strict=True):
                    got[n] = tasks
                    if poller.tenant_id in unused:
                        unused[poller.tenant_id] -= len(tasks)
        finally:
            await self._give_places(+unused)
        return got

    async def _give_places(self, unused: Mapping[uuid.UUID, int]) -> None:
        try:
            await self._queue.give_places(unused)
        except Retryable as fault:
            # They are free again when the gate has counted twice.
            log.warning("places of running runs not given back", fault=str(fault)[:200])

    async def _write_seen(self) -> None:
        try:
            while self._seen:
                seen, self._seen = self._seen, {}
                workers = [
                    WorkerSeen(tenant_id=tenant, task_queue=name, worker_id=worker, left=left)
                    for ((tenant, name), worker), left in sorted(seen.items())
                ]
                try:
                    await self._store.saw_workers(workers, host_id=self._host_id())
                except (Retryable, Terminal) as fault:
                    # Shown to people only; they poll again.
                    log.warning("workers not written down", workers=len(workers), fault=str(fault)[:200])
                await asyncio.sleep(SEEN_SECONDS)
        finally:
            self._writer = None
