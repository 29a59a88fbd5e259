"""Looks at all databases all the time: whether two act for one cell, or two cells for one tenant."""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType

import psycopg

_CELL = (
    "SELECT epoch, coalesce(lease_until, clock_timestamp() + interval '1 year'), clock_timestamp() FROM cell"
    " WHERE NOT pg_is_in_recovery() AND (lease_until IS NULL OR lease_until > clock_timestamp())"
)
_TENANTS = "SELECT tenant_id, ownership_epoch FROM tenants WHERE state = 'ACTIVE'"
_SECONDS = 0.15  # between looks


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """A database whose cell may act, at one moment."""

    epoch: int
    until: datetime
    at: datetime
    tenants: dict[uuid.UUID, int]  # that are active there, and under which epochs


@dataclass
class Witness:
    """Looks until it is left; `violations` are what must never be."""

    x_urls: dict[str, str]  # by region
    y_url: str
    violations: list[str] = field(default_factory=list)
    looks: int = 0

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(20)

    def _run(self) -> None:
        while not self._stop.wait(_SECONDS):
            self._look()

    def _look(self) -> None:
        before = self._sites()
        y = _look_at(self.y_url)
        after = self._sites()
        self.looks += 1
        moment = max((seen.at for seen in before.values()), default=None)
        acting = [region for region, seen in before.items() if moment is not None and seen.until > moment]
        if len(acting) > 1:
            self.violations.append(f"two act for x at {moment}: {acting}")
        for region, seen in before.items():
            again = after.get(region)
            # The same lease ran before and after the look at the other cell.
            if y is None or again is None or again.epoch != seen.epoch or seen.until <= y.at:
                continue
            for tenant, epoch in seen.tenants.items():
                if again.tenants.get(tenant) == epoch and tenant in y.tenants:
                    self.violations.append(
                        f"{tenant} is active in x ({region}, {epoch}) and in y ({y.tenants[tenant]})"
                    )

    def _sites(self) -> dict[str, Seen]:
        found = {region: _look_at(url) for region, url in self.x_urls.items()}
        return {region: seen for region, seen in found.items() if seen is not None}


def _look_at(url: str) -> Seen | None:
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=2) as connection:
            row = connection.execute(_CELL).fetchone()
            if row is None:
                return None
            tenants = dict(connection.execute(_TENANTS).fetchall())
            return Seen(epoch=row[0], until=row[1], at=row[2], tenants=tenants)
    except psycopg.Error:
        return None
