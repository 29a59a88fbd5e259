"""Three clusters of one cell: a primary and two standbys, that tests stop, kill and promote."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from cells.standby.cluster import Cluster
from cells.standby.lines import Place
from deploy import children
from deploy.engines import Postgres, new_password, postgres_binaries, temporary_folder, wait_until_ready
from deploy.home import ROOT
from deploy.ports import Reservation
from deploy.sites import SITE_SETTINGS
from tests.waiting import eventually_sync

SITES = ("a", "b", "c")
#: Small, and not flushed; full pages are written, as rewinding needs them.
SMALL: Mapping[str, str] = {
    **SITE_SETTINGS,
    "fsync": "off",
    "shared_buffers": "16MB",
    "max_connections": "30",
    "wal_keep_size": "64MB",
    "max_wal_size": "128MB",
}


class Site:
    """One cluster with its server."""

    def __init__(self, folder: Path, name: str, password: str) -> None:
        self.name = name
        self._folder = folder / name
        self._folder.mkdir()
        self._reservation = Reservation()
        self.engine = Postgres(
            self._folder,
            port=self._reservation.port,
            password=password,
            name=name,
            settings={**SMALL, "cluster_name": name},
        )
        self.url = self.engine.url
        self.cluster = Cluster(self.url, site=name, cell="cell")
        self._child: subprocess.Popen[bytes] | None = None
        self.log = self._folder / "log"

    def start(self) -> None:
        self.engine.prepare()
        with self.log.open("ab") as log:
            self._child = self.engine.spawn(log)
        wait_until_ready(self.engine, self._child, self.log)

    def stop(self) -> None:
        """In order, with a checkpoint."""
        self.cluster.close()
        if self._child is not None:
            children.stop(self._child, how=signal.SIGINT)

    def kill(self) -> None:
        """As when its machine dies: nothing is flushed any more, nobody is told."""
        self.cluster.close()
        if self._child is not None:
            children.end_leftovers(self._folder / "data", "postgres", how=signal.SIGKILL)
            self._child.wait()

    def release(self) -> None:
        self._reservation.release()

    def folder(self, verb: str, *, primary: Site | None = None, epoch: int = 0) -> str:
        """`python -m cells.standby`; what it says."""
        data = self._folder / "data"
        identity = children.choose_identity(postgres_binaries() / "postgres", data)
        os.chown(self._folder, *children.owner_of_files(identity))
        return children.run(
            [
                *(sys.executable, "-m", "cells.standby", verb, "--data", str(data), "--site", self.name),
                *("--binaries", str(postgres_binaries()), "--no-sync"),
                *(() if primary is None else ("--primary", primary.name, "--epoch", str(epoch))),
            ],
            children.Identity.SELF,
            env={"PYTHONPATH": str(ROOT), **({} if primary is None else {"SITE_PRIMARY_URL": primary.url})},
        )

    def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True, connect_timeout=3) as connection:
            cursor = connection.execute(statement, values)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def rows(self) -> list[int]:
        return [row[0] for row in self.execute("SELECT n FROM facts ORDER BY n")]


class Sites(dict[str, Site]):
    """The three, `a` being the primary under epoch 1."""

    def follow(self, primary: str, *, epoch: int, but: tuple[str, ...] = ()) -> None:
        for site in self.values():
            if site.name not in (primary, *but):
                site.cluster.follow(self[primary].url, primary=primary, epoch=epoch)

    def caught_up(self, primary: str, *followers: str) -> None:
        """Wait until the followers have flushed what the primary has."""
        at = self[primary].cluster.look().replayed

        def there() -> bool:
            told = {standby.site: standby for standby in self[primary].cluster.standbys()}
            return all(name in told and told[name].flushed >= at for name in followers)

        eventually_sync(there, timeout=30)

    def votes(self, epoch: int, *names: str) -> dict[str, Place]:
        return {name: self[name].cluster.vote(epoch, seconds=20) for name in names}


@contextmanager
def three_sites() -> Iterator[Sites]:
    """A cell with `a` as primary and `b`, `c` streaming from it."""
    password = new_password()
    with temporary_folder() as folder:
        sites = Sites({name: Site(folder, name, password) for name in SITES})
        try:
            sites["a"].start()
            sites["a"].execute("CREATE TABLE facts (n int PRIMARY KEY)")
            sites["a"].cluster.prepare_for_others(("b", "c"))
            for name in ("b", "c"):
                sites[name].folder("clone", primary=sites["a"], epoch=1)
                sites[name].start()
                sites[name].cluster.prepare_for_others(set(SITES) - {name})
            sites.caught_up("a", "b", "c")
            yield sites
        finally:
            for site in sites.values():
                site.kill()
                site.release()
