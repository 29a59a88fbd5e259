"""What a process of a cell has to do with moves, put together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from cells.config import Settings
from cells.observability.metrics import Metrics
from cells.ports import Clock, Queue
from cells.store.postgres import PostgresStore
from cells.store.transfer import TransferStore
from cells.supervision import Service
from cells.transfer.keeper import TransferKeeper
from cells.transfer.onward import Onward
from cells.transfer.peers import Peer, Settler
from cells.transfer.reports import Reports
from cells.transfer.service import TransferService


class _Host(Protocol):
    @property
    def host_id(self) -> int: ...


class Moving:
    """The verbs, the keeper (role `reaper`), and handing ends of calls on (roles `executor`, `api`)."""

    def __init__(
        self,
        settings: Settings,
        store: PostgresStore,
        queue: Queue,
        host: _Host,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        name, key = settings.cell_name, settings.installation_keys[0]
        self._roles = settings.roles
        self._metrics = metrics
        self._transfers = self.sessions = TransferStore(settings.database_url, cell_name=name)
        self._settler = Settler(
            settings.control_url, cell=name, kid=settings.kid, secret=settings.keys[settings.kid], clock=clock
        )
        self.service = TransferService(
            store, self._transfers, queue, clock, installation_key=key, host_id=lambda: host.host_id
        )
        peer = Peer(cell=name, installation_key=key, clock=clock)
        self._reports = Reports(store, peer, host_id=lambda: host.host_id)
        self.onward = Onward(
            store,
            self._transfers,
            queue,
            peer,
            clock,
            metrics,
            host_id=lambda: host.host_id,
        )
        if self._roles & {"executor", "api"}:
            store.completions_refused = self.onward.take

    def roles(self) -> Iterator[tuple[str, Callable[[], Service]]]:
        """What has to run here."""
        if self._roles & {"executor", "api"}:
            yield "onward", lambda: self.onward
        if "reaper" in self._roles:
            yield "reports", lambda: self._reports
            yield (
                "moves",
                lambda: TransferKeeper(self._transfers, self.service, self._settler, self._metrics),
            )
