"""Three sites of a cell with their keepers, and servers that are started again whenever they end."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from cells.ownership.lease import Timing
from cells.standby.folder import CannotPrepare
from cells.store.migrate import migrate
from cells.store.postgres import PostgresStore
from controlplane.ownership.postgres import PostgresOwnershipStore
from controlplane.regions.deciding import Act
from controlplane.regions.keeper import Keeper
from controlplane.regions.prepare import prepare
from controlplane.regions.settings import Settings
from deploy import children
from deploy.engines import Postgres, new_password, postgres_binaries, temporary_folder
from deploy.ports import Reservation
from tests.component.cells.standby.clusters import SMALL
from tests.waiting import eventually_sync

REGIONS = ("a", "b", "c")
#: A third of the real times: a busy machine keeps an owner from renewing for a second or two.
TIMING = Timing().scaled(0.3)
#: The cell's key, with which the control plane signs.
KEY = bytes(range(32))


class Site:
    """A server that is started whenever it has ended, and the keeper beside it."""

    def __init__(
        self,
        engine: Postgres,
        settings: Settings,
        ownership_url: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine = engine
        self.settings = settings
        self.store = PostgresOwnershipStore(ownership_url)
        self.clock = clock
        self.keeper = Keeper(settings, self.store, clock=clock)
        self.url = settings.databases[settings.region]
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, *, founding: bool = False) -> None:
        self._stop.clear()
        self._threads = [
            threading.Thread(target=self._serve, args=(founding,), daemon=True),
            threading.Thread(target=self.keeper.run, args=(self._stop,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _serve(self, founding: bool) -> None:
        log = (self.settings.data.parent / "log").open("ab")
        while not self._stop.is_set():
            if founding or self.settings.data.exists():
                self.engine.prepare()
            else:
                self.engine._identity = children.choose_identity(
                    postgres_binaries() / "postgres", self.settings.data
                )
            children.take_over(self.settings.data.parent, self.engine._identity)  # type: ignore[arg-type]
            try:
                prepare(self.settings, self.store, sync=False)
            except CannotPrepare:
                self._stop.wait(0.1)
                continue
            child = self.engine.spawn(log)
            if self._stop.is_set():
                child.kill()
            child.wait()
        log.close()

    def die(self) -> None:
        """The whole region, at once."""
        self._stop.set()
        children.end_leftovers(self.settings.data, "postgres", how=signal.SIGKILL)
        for thread in self._threads:
            thread.join(30)
        children.end_leftovers(self.settings.data, "postgres", how=signal.SIGKILL)
        # What a new process would know: nothing.
        self.keeper = Keeper(self.settings, self.store, clock=self.clock)

    def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True, connect_timeout=3) as connection:
            cursor = connection.execute(statement, values)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def says(self, statement: str, *values: object) -> list[tuple[Any, ...]] | None:
        """What it answers; None where it does not."""
        try:
            return self.execute(statement, *values)
        except psycopg.OperationalError:
            return None

    def answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True


class Kept(dict[str, Site]):
    """The three sites."""

    store: PostgresOwnershipStore

    def owner(self) -> Site | None:
        owning = [site for site in self.values() if site.keeper.status.owns]
        assert len(owning) <= 1
        return owning[0] if owning else None

    def follow(self, owner: str) -> bool:
        return all(
            site.keeper.status.act is Act.FOLLOW and site.keeper.status.streaming
            for region, site in self.items()
            if region != owner
        )


@contextmanager
def three_regions(ownership_url: str, valkey_url: str) -> Iterator[Kept]:
    """A cell begun in `a`, with standbys in `b` and `c`."""
    password = new_password()
    kept = Kept()
    kept.store = PostgresOwnershipStore(ownership_url)
    with temporary_folder() as folder:
        ports = {region: Reservation() for region in REGIONS}
        engines = {
            region: _engine(folder / region, region, ports[region].port, password) for region in REGIONS
        }
        databases = {region: engine.url.rsplit("/", 1)[0] + "/cell" for region, engine in engines.items()}
        for region, engine in engines.items():
            settings = Settings(
                cell="cell",
                region=region,
                founder="a",
                databases=databases,
                ownership_url=ownership_url,
                valkey_url=valkey_url,
                data=folder / region / "data",
                binaries=postgres_binaries(),
                bind_host="127.0.0.1",
                bind_port=0,
                timing=TIMING,
                key=KEY,
            )
            kept[region] = Site(engine, settings, ownership_url)
        try:
            kept["a"].start(founding=True)
            eventually_sync(engines["a"].ready, timeout=60)
            with psycopg.connect(engines["a"].url, autocommit=True) as admin:
                admin.execute("CREATE DATABASE cell")
            migrate(databases["a"])
            yield kept
        finally:
            for site in kept.values():
                site.die()
                site.store.close()
            kept.store.close()
            for port in ports.values():
                port.release()


def _engine(folder: Path, region: str, port: int, password: str) -> Postgres:
    folder.mkdir()
    return Postgres(
        folder, port=port, password=password, name=region, settings={**SMALL, "cluster_name": region}
    )


def cell_store(site: Site) -> PostgresStore:
    """The cell's store in a site's database."""
    return PostgresStore(site.url, cell_name="cell", pool_size=2, leased=True)
