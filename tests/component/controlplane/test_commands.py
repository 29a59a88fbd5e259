"""setup_database and bootstrap, as an installation runs them: processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from controlplane.tenants.keys import new_key
from tests.component.controlplane.standin import StandInCell
from tests.engines import TestEngines

pytestmark = pytest.mark.slow
KEY = bytes(range(32))


class Installation:
    """Databases of its own, and `manage.py`."""

    def __init__(self, engines: TestEngines, root: Path) -> None:
        self._root = root
        self.control = engines.database_url("commands_control")
        self.ownership = engines.database_url("commands_ownership")
        self._environment = {
            **os.environ,
            "CONTROL_DATABASE_URL": self.control,
            "CONTROL_OWNERSHIP_URL": self.ownership,
            "CONTROL_VALKEY_URL": "redis://127.0.0.1:1/0",  # away: nothing here needs the broker
            "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        }

    def manage(self, *arguments: str, given: Any = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=self._root,
            env=self._environment,
            input=None if given is None else json.dumps(given),
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.control) as connection:
            return connection.execute(query.encode()).fetchall()


@pytest.fixture(scope="module")
def installation(engines: TestEngines, root: Path) -> Iterator[Installation]:
    """Set up by three at once, from nothing."""
    made = Installation(engines, root)
    with ThreadPoolExecutor(3) as pool:
        runs = list(pool.map(lambda _: made.manage("setup_database"), range(3)))
    assert [(r.returncode, r.stderr) for r in runs] == [(0, "")] * 3
    yield made
    with psycopg.connect(engines.postgres.url, autocommit=True) as admin:
        for name in ("commands_control", "commands_ownership"):
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def _input(*cells: StandInCell) -> dict[str, Any]:
    return {
        "region": "local",
        "cells": [{"name": c.name, "url": c.url, "key_hex": c.key.hex()} for c in cells],
        "demo": {
            "slug": "demo", "name": "Demo", "email": "Demo@example.com", "password": "demo password 1",
            "api_key": new_key().text,
        },
        "operator": {
            "email": "op@example.com", "password": "operator password 1",
            "api_key": new_key(operator=True).text,
        },
    }  # fmt: skip


def _everything(installation: Installation) -> list[tuple[Any, ...]]:
    return installation.rows(
        "SELECT id::text, version::text FROM tenants_tenant"
        " UNION ALL SELECT id, sha256 FROM tenants_apikey"
        " UNION ALL SELECT id::text, email FROM tenants_user"
        " UNION ALL SELECT id::text, action FROM events_auditevent ORDER BY 1"
    )


def test_set_up_again_does_nothing(installation: Installation) -> None:
    assert installation.rows("SELECT count(*) FROM tenant_schema_version") == [(8,)]
    again = installation.manage("setup_database")
    assert (again.returncode, again.stderr) == (0, "")
    assert "(0 workspace schemas migrated, 0 made)" in again.stdout


def test_models_and_migrations_agree(installation: Installation) -> None:
    checked = installation.manage("makemigrations", "--check", "--dry-run")
    assert checked.returncode == 0, checked.stdout


def test_the_document_is_openapi_3_1(installation: Installation) -> None:
    written = installation.manage("spectacular", "--format", "openapi-json", "--validate", "--fail-on-warn")
    assert written.returncode == 0, written.stderr
    document = json.loads(written.stdout)
    assert document["openapi"] == "3.1.0"
    assert document["components"]["securitySchemes"]["ApiKey"]["scheme"] == "bearer"


def test_bootstrap_twice_is_bootstrap_once(installation: Installation) -> None:
    with StandInCell("local-1", KEY) as one, StandInCell("local-2", KEY) as two:
        given = _input(one, two)
        first = installation.manage("bootstrap", given=given)
        assert first.returncode == 0, first.stderr
        said = json.loads(first.stdout)
        home = {"local-1": one, "local-2": two}[said["cell"]]
        told = home.tenants[said["tenant_id"]]
        # What an operator has measured is kept.
        installation.rows("UPDATE topology_cell SET capacity_runs_per_second = 77 RETURNING name")
        before = _everything(installation)
        again = installation.manage("bootstrap", given=given)
    assert json.loads(again.stdout) == said
    assert _everything(installation) == before
    assert set(installation.rows("SELECT capacity_runs_per_second FROM topology_cell")) == {(77,)}
    assert (said["slug"], said["region"], said["pushed"]) == ("demo", "local", True)
    assert said["api_key"] == given["demo"]["api_key"]
    assert (told["state"], told["config"]["job_runs_per_second"]) == ("ACTIVE", 2000)
    assert told["config"]["strict_jobs_per_second"] == 100
    members = installation.rows(
        "SELECT u.email, m.role, u.is_staff FROM tenants_user u LEFT JOIN tenants_membership m"
        " ON m.user_id = u.id ORDER BY 1"
    )
    assert members == [("demo@example.com", "owner", False), ("op@example.com", None, True)]


@pytest.mark.parametrize("given", [{}, {"region": "local", "cells": [], "demo": {}, "operator": {}, "x": 1}])
def test_bootstrap_says_what_it_cannot_read(installation: Installation, given: dict[str, Any]) -> None:
    refused = installation.manage("bootstrap", given=given)
    assert refused.returncode == 1
    assert "the input is not as expected" in refused.stderr
