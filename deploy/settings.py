"""What an installation on one machine consists of, and where each part is."""

from __future__ import annotations

import os
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deploy.children import MARK, CannotStart
from deploy.home import Home, State
from deploy.ports import LOOPBACK, Reservation

REGION = "local"
_CELLS = "local-shared-1,local-shared-2"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the environment of `make run` asks for."""

    cells: tuple[str, ...]  # CLOCKHOUSE_CELLS, comma separated
    #: CLOCKHOUSE_CELL_HOSTS: how many processes a cell has, or the roles of each, `;` between them.
    #: Here the roles of each, None for all.
    cell_hosts: tuple[str | None, ...]
    database_url: str | None  # CLOCKHOUSE_DATABASE_URL: an admin URL of a server to use
    valkey_url: str | None  # CLOCKHOUSE_VALKEY_URL: a server to use, its number is our first
    demo_jobs: bool  # CLOCKHOUSE_DEMO_JOBS=0: leave the demo tenant empty
    one_worker: bool  # CLOCKHOUSE_CELERY_WORKERS=1: one for all queues, where memory is short


@dataclass(frozen=True, kw_only=True)
class CellHost:
    """One process of a cell."""

    name: str  # of the process, and of its port
    cell: str
    roles: str | None  # None: all

    @property
    def serves_api(self) -> bool:
        """Whether requests may be sent to it."""
        return self.roles is None or "api" in (role.strip() for role in self.roles.split(","))


def cell_hosts(options: Options) -> list[CellHost]:
    """The processes of all cells: `cell-<name>`, `cell-<name>-b`, `cell-<name>-c`, …"""
    return [
        CellHost(
            name=f"cell-{cell}" + (f"-{string.ascii_lowercase[number]}" if number else ""),
            cell=cell,
            roles=roles,
        )
        for cell in options.cells
        for number, roles in enumerate(options.cell_hosts)
    ]


def _read_cell_hosts(text: str) -> tuple[str | None, ...]:
    text = text.strip() or "1"
    if text.isdigit():
        hosts: tuple[str | None, ...] = (None,) * int(text)
    else:
        hosts = tuple(roles.strip() for roles in text.split(";") if roles.strip())
    if not 1 <= len(hosts) <= len(string.ascii_lowercase):
        raise CannotStart(
            f"CLOCKHOUSE_CELL_HOSTS={text!r} is neither a number from 1 to 26"
            " nor roles such as 'api,loader;executor'"
        )
    return hosts


def read_options(environ: Mapping[str, str]) -> Options:
    """The options in an environment; `CannotStart` where they say nothing that can be done."""
    cells = environ.get("CLOCKHOUSE_CELLS") or _CELLS
    options = Options(
        cells=tuple(name.strip() for name in cells.split(",") if name.strip()),
        cell_hosts=_read_cell_hosts(environ.get("CLOCKHOUSE_CELL_HOSTS", "")),
        database_url=environ.get("CLOCKHOUSE_DATABASE_URL") or None,
        valkey_url=environ.get("CLOCKHOUSE_VALKEY_URL") or None,
        demo_jobs=environ.get("CLOCKHOUSE_DEMO_JOBS", "1") != "0",
        one_worker=environ.get("CLOCKHOUSE_CELERY_WORKERS", "") == "1",
    )
    hosts = cell_hosts(options)
    if len({host.name for host in hosts}) < len(hosts):
        raise CannotStart("CLOCKHOUSE_CELLS and CLOCKHOUSE_CELL_HOSTS give two processes one name")
    if not all(any(host.serves_api for host in hosts if host.cell == cell) for cell in options.cells):
        raise CannotStart("CLOCKHOUSE_CELL_HOSTS gives no process of a cell the role `api`")
    return options


@dataclass(frozen=True, kw_only=True)
class Stores:
    """Databases and logical Valkeys: one of each for the control plane and for every cell."""

    control: str
    ownership: str
    cells: Mapping[str, str]
    control_valkey: str
    router_valkey: str
    cell_valkeys: Mapping[str, str]


class Ports:
    """The loopback ports of the installation, kept between runs where they are still free."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._held: dict[str, Reservation] = {}

    def of(self, name: str) -> int:
        """The port of a part; reserved when it is first asked for."""
        if name not in self._held:
            self._held[name] = Reservation(self._state.ports.get(name))
            self._state.ports[name] = self._held[name].port
        return self._held[name].port

    def url(self, name: str) -> str:
        """Base URL of a part that speaks HTTP."""
        return f"http://{self.bind(name)}"

    def alias(self, name: str, other: str) -> None:
        """Calls another part's port by this name, too."""
        self.of(other)
        self._held[name] = self._held[other]

    def bind(self, name: str) -> str:
        """`host:port` of a part."""
        return f"{LOOPBACK}:{self.of(name)}"


class Environments:
    """The environment variables of each process."""

    def __init__(self, home: Home, state: State, ports: Ports, stores: Stores) -> None:
        self._home = home
        self._state = state
        self._ports = ports
        self._stores = stores
        # The caller's environment comes first: what we do not decide can be set there.
        self._base = {**os.environ, MARK: str(home.folder), "PYTHONUNBUFFERED": "1"}

    def cell(self, host: CellHost) -> dict[str, str]:
        """Of `cells.host`."""
        return {
            **self.of_cell(host.cell, bind=host.name),
            **({"CELL_ROLES": host.roles} if host.roles is not None else {}),
            "CELL_REGION": REGION,
            "CELL_DATABASE_URL": self._stores.cells[host.cell],
            "CELL_VALKEY_URL": self._stores.cell_valkeys[host.cell],
        }

    def of_cell(self, name: str, *, bind: str) -> dict[str, str]:
        """What a process of a cell is told wherever it is."""
        return {
            **self._base,
            "CELL_NAME": name,
            "CELL_BIND": self._ports.bind(bind),
            "CELL_KEYS": f"{name}:{self._state.cell_key(name)}",
            "CELL_INSTALLATION_KEY": self._state.cell_installation_key,
            "CELL_CONTROL_URL": self._ports.url("django"),
            "CELL_EGRESS_ALLOW": "loopback",
            "CELL_LAKE": (self._home.folder / "lake").as_uri(),
        }

    def router(self) -> dict[str, str]:
        """Of `controlplane.routing`."""
        return {
            **self._base,
            "ROUTER_BIND": self._ports.bind("router"),
            "ROUTER_FEED_URL": self._ports.url("django"),
            "ROUTER_KEY": self._state.router_key,
            "ROUTER_DATA_DIR": str(self._home.folder / "router"),
            "ROUTER_VALKEY_URL": self._stores.router_valkey,
        }

    def control(self) -> dict[str, str]:
        """Of Django, Celery and `manage.py`."""
        return {
            # The caller's own go first.
            "CONTROL_EMAIL_URL": f"file://{self._home.folder / 'mail'}",
            "CONTROL_EXPORTS": (self._home.folder / "exports").as_uri(),
            "CONTROL_LAKE": (self._home.folder / "lake").as_uri(),
            "CONTROL_EGRESS_ALLOW": "loopback",
            **self._base,
            "DJANGO_SETTINGS_MODULE": "controlplane.settings",
            "CONTROL_DATABASE_URL": self._stores.control,
            "CONTROL_OWNERSHIP_URL": self._stores.ownership,
            "CONTROL_VALKEY_URL": self._stores.control_valkey,
            "CONTROL_SECRET_KEY": self._state.secret_key,
            "CONTROL_INSTALLATION_KEY": self._state.control_installation_key,
            "CONTROL_ROUTER_KEY": self._state.router_key,
            "CONTROL_PUBLIC_API_URL": self._ports.url("router"),
            "CONTROL_CONSOLE_URL": self._ports.url("django"),
            "CONTROL_DEBUG": "0",
            "CONTROL_ALLOWED_HOSTS": "127.0.0.1,localhost",
        }

    def echo(self) -> dict[str, str]:
        """Of the echo target."""
        return {**self._base, "ECHO_BIND": self._ports.bind("echo")}


def cell_url(ports: Ports, hosts: Sequence[CellHost], cell: str) -> str:
    """Where a cell's API answers: the addresses of its processes, comma separated."""
    return ",".join(ports.url(host.name) for host in hosts if host.cell == cell and host.serves_api)


def bootstrap_request(
    state: State, ports: Ports, hosts: Sequence[CellHost], stores: Stores
) -> dict[str, object]:
    """What `manage.py bootstrap` is told."""
    return {
        "region": REGION,
        "cells": [
            {
                "name": name,
                "url": cell_url(ports, hosts, name),
                "key_hex": state.cell_key(name),
                "database_url": stores.cells[name],
                "valkey_url": stores.cell_valkeys[name],
            }
            for name in dict.fromkeys(host.cell for host in hosts)
        ],
        "demo": {
            "slug": "demo",
            "name": "Demo",
            "email": state.email,
            "password": state.password,
            "api_key": state.api_key,
        },
        "operator": {
            "email": state.operator_email,
            "password": state.operator_password,
            "api_key": state.operator_api_key,
        },
    }
