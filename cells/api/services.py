"""What the routes work with: one object per application."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Protocol

from cells.api.creation import Creator
from cells.api.desk import Desk
from cells.api.endings import Ended, Endings, Said
from cells.api.feed import QueueFeed
from cells.api.group_commit import GroupCommit
from cells.api.handed_out import HandedOut
from cells.api.handing import Handing
from cells.api.idempotency import InFlight
from cells.api.known_definitions import KnownDefinitions
from cells.api.known_targets import KnownTargets
from cells.api.placements import Placements
from cells.api.problems import Problem
from cells.api.sparing import Sparing
from cells.config import Settings
from cells.domain import ids
from cells.domain.crowding import Statement
from cells.erasure_ports import Erasures
from cells.observability.metrics import SIZE_BUCKETS, Metrics
from cells.observability.traces import Traces
from cells.ports import Clock, Fence, History, Queue, Secrets, Store, TargetTrial
from cells.pulling import Beat, Extended
from cells.stores.elsewhere import Elsewhere
from cells.stores.ports import LocalStores
from cells.transfer_ports import Transfers
from cells.workflow_ports import NewExecution, WorkflowRow
from cells.workflows.calculators import Calculators

#: Heartbeats and endings in one transaction at most; a bulk request may be as large by itself.
_BEATS, _ENDINGS, _STARTS = 2000, 1000, 500
#: Ids for which entropy is asked for at once.
_DRAWN = 256


class Host(Protocol):
    """This process's incarnation (`execution.host_agent.HostAgent`)."""

    @property
    def host_id(self) -> int: ...

    def live(self) -> bool: ...


class Services:
    """Store, queue and everything this API keeps in memory."""

    def __init__(
        self,
        *,
        store: Store,
        queue: Queue,
        secrets: Secrets,
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
        host: Host,
        trial: TargetTrial,
        history: History | None = None,
        traces: Traces | None = None,
        transfers: Transfers | None = None,
        erasures: Erasures | None = None,
        elsewhere: Elsewhere | None = None,
        local: LocalStores | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
    ):
        self.store = store
        self.queue = queue
        self.secrets = secrets
        self.metrics = metrics
        self.settings = settings
        self.clock = clock
        self.host = host
        self.trial = trial
        self.history = history  # None: nothing leaves the store
        self.traces = traces  # None: nobody collects spans
        self.transfers = transfers  # None: this cell takes no part in moves
        self.erasures = erasures  # None: no tenant is erased through this process
        self.local = local  # this store's part in snapshots, at either end
        self.elsewhere = elsewhere  # None: this cell has no store but this one
        self.entropy = entropy
        self._drawn: Iterator[bytes] = iter(())
        self.placements = Placements(store, clock, cell=settings.cell_name)
        self.targets = KnownTargets(store, clock)
        self.in_flight = InFlight()
        self.event_waiters: Counter[uuid.UUID] = Counter()
        self.known_definitions = KnownDefinitions(store)
        self.calculators = Calculators(metrics, processes=1)
        self.delays: Sparing[Statement] = Sparing(clock)
        self.trials: Counter[tuple[uuid.UUID, str]] = Counter()
        self.requests = metrics.histogram(
            "cell_api_request_seconds", "From the authenticated request to its answer", ("route", "method")
        )
        self.answers = metrics.counter(
            "cell_api_answers_total", "Answers by status", ("route", "method", "status")
        )
        handed_out = HandedOut()
        self.heartbeats: GroupCommit[Beat, Extended | None] = GroupCommit(
            lambda beats: store.heartbeat(beats, host_id=host.host_id),
            most=_BEATS,
            sizes=metrics.histogram(
                "cell_api_heartbeat_batch", "Heartbeats in one group commit", buckets=SIZE_BUCKETS
            ),
        )
        self.feed = QueueFeed(
            queue,
            metrics.counter(
                "cell_api_queue_missed_total", "Members the queue could not be told of; the sweeps add them"
            ),
        )
        self.desk = Desk(
            store,
            queue,
            lambda: host.host_id,
            metrics.histogram("cell_api_poll_tasks", "Tasks handed out by one look", buckets=SIZE_BUCKETS),
            handed_out,
            Handing(store, queue, self.feed, lambda: host.host_id),
        )
        self.creator = Creator(
            store,
            lambda: host.host_id,
            metrics.histogram(
                "cell_api_create_batch_jobs", "Jobs in one group commit of creations", buckets=SIZE_BUCKETS
            ),
        )
        self.starts: GroupCommit[tuple[Fence, NewExecution], tuple[WorkflowRow, bool] | Exception] = (
            GroupCommit(
                lambda asked: store.start_workflows(asked, host_id=host.host_id),
                most=_STARTS,
                sizes=metrics.histogram(
                    "cell_api_start_batch", "Starts of workflows in one group commit", buckets=SIZE_BUCKETS
                ),
            )
        )
        self.endings: GroupCommit[Said, Ended | Problem] = GroupCommit(
            Endings(store, self.feed, clock, lambda: host.host_id, handed_out).write,
            most=_ENDINGS,
            sizes=metrics.histogram(
                "cell_api_complete_batch", "Endings in one group commit", buckets=SIZE_BUCKETS
            ),
        )

    async def close(self) -> None:
        """Waits for what the queue is yet to be told, and ends what makes heavy values; before the queue is
        closed."""
        await self.feed.flush()
        await self.calculators.close()

    def now(self) -> datetime:
        """The wall clock."""
        ms = self.clock.now_ms()
        return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)

    def fresh_id(self) -> uuid.UUID:
        """A new id that sorts by time."""
        entropy = next(self._drawn, None)
        if entropy is None:
            # Many at once: of a batch's ids, asking for chance would be the dearest part.
            drawn = self.entropy(10 * _DRAWN)
            self._drawn = iter([drawn[i : i + 10] for i in range(0, len(drawn), 10)])
            entropy = next(self._drawn)
        return ids.fresh_id(now_ms=self.clock.now_ms(), entropy=entropy, store=self.settings.stores.own)
