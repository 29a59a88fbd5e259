"""A cell made on given engines: every fault at once, twice the same, and gone on with where it broke off."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from controlplane.errors import Conflicting, Invalid
from controlplane.events.models import AuditEvent
from controlplane.topology.actions.cells import open_cell
from controlplane.topology.actions.provisioning import add_cell, check_cell
from controlplane.topology.cell_keys import open_engine_url
from controlplane.topology.engines import look_at
from controlplane.topology.models import Cell, Site
from deploy.home import ROOT
from deploy.ports import Reservation
from tests.component.controlplane.contents import contents
from tests.component.controlplane.factories import ACTOR, REASON, RegionFactory, TenantFactory
from tests.engines import TestEngines
from tests.waiting import eventually_sync

pytestmark = pytest.mark.usefixtures("control")
KEY = bytes(range(32))


@dataclass(frozen=True)
class Engines:
    """Where the cell of a test is to be."""

    name: str
    database_url: str
    valkey_url: str
    url: str

    def asked(self, **changes: Any) -> dict[str, Any]:
        """What `add_cell` is asked for."""
        return {
            "name": self.name, "region": "here", "url": self.url, "key": KEY,
            "database_url": self.database_url, "valkey_url": self.valkey_url, "actor": ACTOR,
            "reason": REASON, **changes,
        }  # fmt: skip


@pytest.fixture
def place(engines: TestEngines, valkey_url: str) -> Iterator[Engines]:
    """An empty database, an empty Valkey, a free port."""
    name = f"new-{uuid.uuid4().hex[:8]}"
    database = name.replace("-", "_")
    port = Reservation()
    with psycopg.connect(engines.postgres.url, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{database}"')
        RegionFactory()
        port.release()
        yield Engines(name, engines.database_url(database), valkey_url, f"http://127.0.0.1:{port.port}")
        admin.execute(f'DROP DATABASE "{database}" WITH (FORCE)')


@contextmanager
def _running(place: Engines, tmp_path: Path) -> Iterator[None]:
    """The cell's process, as an operator starts it."""
    environment = {
        "PATH": os.environ["PATH"], "CELL_NAME": place.name, "CELL_REGION": "here",
        "CELL_BIND": place.url.removeprefix("http://"), "CELL_DATABASE_URL": place.database_url,
        "CELL_VALKEY_URL": place.valkey_url, "CELL_KEYS": f"{place.name}:{KEY.hex()}",
        "CELL_INSTALLATION_KEY": "11" * 32,
    }  # fmt: skip
    with (tmp_path / "cell.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "cells.host"], cwd=ROOT, env=environment, stdout=log, stderr=log
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(timeout=60)


def test_a_cell_is_made_waited_for_and_opened(place: Engines, tmp_path: Path) -> None:
    added = add_cell(**place.asked())
    assert (added.made, added.cell.state) == (True, "CORDONED")
    assert added.applied[0] == "0001_cell.sql"
    site = Site.objects.get(cell=added.cell)
    assert site.database == place.database_url.rsplit("@", 1)[1]
    sealed = bytes(site.sealed_database_url or b"")
    assert open_engine_url(place.name, "here", "database", sealed) == place.database_url
    assert site.ready_at is None
    (event,) = AuditEvent.objects.filter(action="cell.register", subject=place.name)
    assert "clockhouse:" not in str(event.after)  # no password
    waits = check_cell(name=place.name)
    assert not waits.ready
    assert "does not answer" in waits.waits_for[0]
    with pytest.raises(Conflicting, match="was never seen ready"):
        open_cell(name=place.name, actor=ACTOR, reason=REASON)
    with _running(place, tmp_path):
        eventually_sync(lambda: check_cell(name=place.name).ready, timeout=60)
        again = add_cell(**place.asked())  # on a cell that lives
        assert (again.made, again.applied) == (False, ())
        open_cell(name=place.name, actor=ACTOR, reason=REASON)
        assert TenantFactory(slug="first").placement.cell_id == place.name
    assert not check_cell(name=place.name).ready


def test_again_changes_nothing_and_a_broken_off_run_goes_on(place: Engines) -> None:
    # As a run that broke off behind the migrations leaves it.
    subprocess.run(
        [sys.executable, "-m", "cells.store", "migrate"], cwd=ROOT, check=True, capture_output=True,
        env={"PATH": os.environ["PATH"], "CELL_DATABASE_URL": place.database_url},
    )  # fmt: skip
    first = add_cell(**place.asked())
    assert (first.made, first.applied) == (True, ())
    before = contents()
    again = add_cell(**place.asked())
    assert (again.made, again.applied) == (False, ())
    assert contents() == before


def test_every_fault_is_named_at_once_and_nothing_is_changed(place: Engines, engines: TestEngines) -> None:
    with psycopg.connect(place.database_url, autocommit=True) as database:
        database.execute("CREATE TABLE accounts (id int)")
    with redis.Redis.from_url(place.valkey_url) as valkey:
        valkey.set("sessions:1", "x")
    before = contents()
    with pytest.raises(Invalid) as refused:
        add_cell(**place.asked(name="Not A Name", region="nowhere", url="ftp://x", key=b"short"))
    faults = {fault.pointer: fault.detail for fault in refused.value.faults}
    assert faults.keys() == {"/name", "/region", "/url", "/key_hex", "/database_url", "/valkey_url"}
    assert faults["/database_url"] == "holds 1 tables of something else; give it a database of its own"
    assert "holds keys of something else (sessions:1)" in faults["/valkey_url"]
    assert contents() == before


def test_engines_that_do_not_answer_or_are_no_addresses() -> None:
    look = look_at(cell="c", database_url="postgresql://127.0.0.1:1/none", valkey_url="redis://127.0.0.1:1/0")
    assert [fault.pointer for fault in look.faults] == ["/database_url", "/valkey_url"]
    assert all("cannot be used" in fault.detail for fault in look.faults)
    look = look_at(cell="c", database_url="mysql://x/y", valkey_url="postgresql://x:port/y")
    assert all("not a URL of the form" in fault.detail for fault in look.faults)


def test_another_cells_database_is_refused_and_an_empty_one_for_a_cell_that_has_worked(
    place: Engines,
) -> None:
    add_cell(**place.asked())
    with psycopg.connect(place.database_url, autocommit=True) as database:
        database.execute("INSERT INTO cell (name) VALUES ('somebody')")
    look = look_at(cell=place.name, database_url=place.database_url, valkey_url=place.valkey_url)
    assert [fault.detail for fault in look.faults] == ["is the database of the cell somebody"]
    with psycopg.connect(place.database_url, autocommit=True) as database:
        database.execute("DROP SCHEMA public CASCADE")
        database.execute("CREATE SCHEMA public")
    Site.objects.filter(cell=place.name).update(ready_at="2026-01-01T00:00:00Z")
    with pytest.raises(Invalid, match="is empty, but"):
        add_cell(**place.asked())
    assert Cell.objects.get(pk=place.name).state == "CORDONED"


def test_durability_is_warned_of(place: Engines) -> None:
    look = look_at(cell=place.name, database_url=place.database_url, valkey_url=place.valkey_url)
    assert look.faults == []
    assert look.immovable == []
    assert [warning.split(" ")[0] for warning in look.warnings][:2] == ["fsync", "full_page_writes"]
