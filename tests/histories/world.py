"""Three sites of a cell `x` with their keepers, a cell `y` of one region, and the ownership store: a proxy
for each directed link between them, and a clock of its own for each region."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg

from cells.ownership.lease import Timing
from cells.store.migrate import migrate
from controlplane.ownership.postgres import PostgresOwnershipStore
from controlplane.ownership.postgres import migrate as migrate_ownership
from controlplane.ownership.store import OwnershipUnavailable
from controlplane.regions.deciding import Act
from controlplane.regions.settings import Settings
from controlplane.regions.wishes import Refused, hand_over, rejoin
from deploy.engines import (
    Postgres,
    new_password,
    postgres_binaries,
    temporary_folder,
    temporary_postgres,
    temporary_valkey,
)
from deploy.ports import Reservation
from tests.component.cells.standby.clusters import SMALL
from tests.component.controlplane.regions.kept import Kept, Site
from tests.histories.links import Links
from tests.histories.script import REGIONS, STORE, Fault
from tests.waiting import eventually_sync


class Brisk(Timing):
    """A lease of little more than a second. All keepers are in one process: they look less often."""

    @property
    def look(self) -> float:
        return self.renew / 3


_TIMING = Timing().scaled(0.07)
TIMING = Brisk(lease=_TIMING.lease, renew=_TIMING.renew, stop=_TIMING.stop, start=_TIMING.start)


class Clock:
    """A region's steady clock, which may go too fast or too slow."""

    def __init__(self) -> None:
        self._rate, self._since, self._shown = 1.0, time.monotonic(), 1000.0

    def __call__(self) -> float:
        return self._shown + (time.monotonic() - self._since) * self._rate

    def goes(self, rate: float) -> None:
        self._shown, self._since, self._rate = self(), time.monotonic(), rate


@dataclass
class World:
    """Everything that histories share."""

    sites: Kept
    links: Links
    store: PostgresOwnershipStore
    clocks: dict[str, Clock]
    y_url: str
    valkey_url: str
    down: set[str] = field(default_factory=set)

    def owner(self) -> Site | None:
        """Who owns `x`, as the keepers say. One that hangs in a call may say so for too long."""
        owning = [site for site in self.sites.values() if site.keeper.status.owns]
        return max(owning, key=lambda site: site.keeper.status.epoch, default=None)

    def begin(self, fault: Fault) -> None:
        """Something goes wrong. Blocking."""
        match fault.what, fault.where:
            case "kill", (region,):
                if region not in self.down:
                    self.down.add(region)
                    self.sites[region].die()
            case "isolate", (region,):
                for pair in self.links.of(region):
                    self.links.cut(*pair)
            case "alone", (region,):  # nobody follows it, and it may own the cell
                for other in self.sites.keys() - {region}:
                    self.links.cut(other, region)
            case "cut", (source, target):
                self.links.cut(source, target)
            case "hold", (source, target):
                self.links.hold(source, target)
            case "slow", (source, target):
                self.links.slow(source, target, *fault.delays)
            case "hand-over", (region,):
                owner = self.owner()
                if owner is not None and owner.settings.region != region:
                    with contextlib.suppress(Refused, OwnershipUnavailable):
                        hand_over(owner.settings, self.store.cell(owner.settings.cell), to=region)

    def end(self, fault: Fault) -> None:
        """It is mended. Blocking."""
        match fault.what, fault.where:
            case "kill", (region,):
                if region in self.down:
                    self.down.discard(region)
                    self.sites[region].start()
            case "isolate" | "alone", (region,):
                for pair in self.links.of(region):
                    self.links.mend(*pair)
            case "cut" | "hold" | "slow", (source, target):
                self.links.mend(source, target)

    def heal(self) -> None:
        """Nothing is wrong any more."""
        self.links.mend_all()
        for region in tuple(self.down):
            self.down.discard(region)
            self.sites[region].start()

    def well(self) -> bool:
        """One site owns the cell and the others follow it. Who strayed is taken back."""
        for site in self.sites.values():
            if site.keeper.status.act is Act.STRAYED:
                with contextlib.suppress(Refused, OwnershipUnavailable):
                    rejoin(site.settings, self.store.cell(site.settings.cell))
        owner = self.owner()
        return owner is not None and self.sites.follow(owner.settings.region)


@contextmanager
def world() -> Iterator[World]:
    """Fresh clusters, with `x` owned by one site and followed by the others."""
    password = new_password()
    with (
        temporary_postgres() as beside,
        temporary_valkey() as cache,
        temporary_folder() as folder,
        Links() as links,
    ):
        with psycopg.connect(beside.url, autocommit=True) as admin:
            admin.execute("CREATE DATABASE y")
        y_url = beside.url.rsplit("/", 1)[0] + "/y"
        migrate(y_url)
        migrate_ownership(beside.url)
        ports = {region: Reservation() for region in REGIONS}
        sites = Kept()
        sites.store = PostgresOwnershipStore(beside.url)
        clocks = {region: Clock() for region in REGIONS}
        engines = {}
        for region in REGIONS:
            (folder / region).mkdir()
            engines[region] = Postgres(
                folder / region,
                port=ports[region].port,
                password=password,
                name=region,
                settings={**SMALL, "cluster_name": region, "max_connections": "60"},
            )
        for region in REGIONS:
            databases = {
                other: _at(
                    engines[other].url.rsplit("/", 1)[0] + "/cell",
                    ports[other].port,
                    ports[other].port if other == region else links.add(region, other, ports[other].port),
                )
                for other in REGIONS
            }
            ownership_url = _at(beside.url, beside.port, links.add(region, STORE, beside.port))
            settings = Settings(
                cell="x",
                region=region,
                founder="a",
                databases=databases,
                ownership_url=ownership_url,
                valkey_url=cache.url,
                data=folder / region / "data",
                binaries=postgres_binaries(),
                bind_host="127.0.0.1",
                bind_port=0,
                timing=TIMING,
            )
            sites[region] = Site(engines[region], settings, ownership_url, clock=clocks[region])
        try:
            sites["a"].start(founding=True)
            eventually_sync(engines["a"].ready, timeout=60)
            with psycopg.connect(engines["a"].url, autocommit=True) as admin:
                admin.execute("CREATE DATABASE cell")
            migrate(sites["a"].url)
            made = World(
                sites=sites,
                links=links,
                store=sites.store,
                clocks=clocks,
                y_url=y_url,
                valkey_url=cache.url,
            )
            yield made
        finally:
            for site in sites.values():
                site.die()
                site.store.close()
            sites.store.close()
            for port in ports.values():
                port.release()


def _at(url: str, port: int, there: int) -> str:
    return url.replace(f":{port}/", f":{there}/")
