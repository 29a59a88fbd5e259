"""The routing feed: a snapshot, and what changed since a cursor.

The cursor is `<feed identity>.<xid>`: every transaction below the xid was finished when it
was handed out. Each answer holds all visible changes from there on, with present values, and
a cursor at the oldest transaction still running: commit-safe, and a long transaction elsewhere
makes routers read a few rows again but never makes a revocation late.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.db import connection

from controlplane.events.models import Change
from controlplane.sql import named_sql

_SQL = named_sql(Path(__file__).parent / "sql" / "feed.sql")
#: More changes than this in one answer: a snapshot is cheaper.
_LONGEST = 5_000
_KEEP_SECONDS = 86_400


class CursorGone(Exception):
    """The cursor is of another feed, or older than what is kept: take a snapshot."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Position:
    identity: str
    oldest_xid: int
    xmin: int
    xmax: int

    @property
    def cursor(self) -> str:
        return f"{self.identity}.{self.xmin}"


def _position() -> _Position:
    with connection.cursor() as cursor:
        cursor.execute(_SQL["position"])
        identity, oldest_xid, xmin, xmax = cursor.fetchone()
    return _Position(identity=identity, oldest_xid=oldest_xid, xmin=xmin, xmax=xmax)


def snapshot() -> dict[str, Any]:
    """Everything a router needs, and the cursor to go on from."""
    from controlplane.events import routing_values as values

    # The position comes first: what commits while the rest is read is told again by `changes`.
    # Keys name tenants and tenants name cells, so each is read before what it names.
    position = _position()
    keys = values.keys(None)
    tenants = values.tenants(None)
    return {
        "cursor": position.cursor,
        "taken_at_ms": time.time_ns() // 1_000_000,
        "cells": values.cells(None),
        "tenants": tenants,
        "keys": keys,
    }


def _xid_of(cursor: str, position: _Position) -> int:
    identity, _, xid = cursor.rpartition(".")
    if identity != position.identity or not (xid.isascii() and xid.isdigit() and len(xid) < 20):
        raise CursorGone
    if not position.oldest_xid <= int(xid) <= position.xmax:
        raise CursorGone
    return int(xid)


def changes(cursor: str) -> dict[str, Any]:
    """What changed since the cursor, with present values (None: gone), or `CursorGone`."""
    from controlplane.events import routing_values as values

    position = _position()  # first, as in `snapshot`
    xid = _xid_of(cursor, position)
    with connection.cursor() as c:
        c.execute(_SQL["changed_since"], {"xid": xid, "limit": _LONGEST + 1})
        rows = [(kind, key) for kind, key, _ in c.fetchall()]
    if len(rows) > _LONGEST:
        raise CursorGone
    present: dict[str, Mapping[str, Any]] = {}
    for kind, read in (
        (Change.Kind.KEY, values.keys),
        (Change.Kind.TENANT, values.tenants),
        (Change.Kind.CELL, values.cells),
    ):
        wanted = [key for k, key in rows if k == kind]
        present[kind] = read(wanted) if wanted else {}
    return {
        "cursor": position.cursor,
        "changes": [{"kind": kind, "id": key, "value": present[kind].get(key)} for kind, key in rows],
    }


def mark_used(used: Mapping[str, int]) -> None:
    """Notes when keys were last used (Unix milliseconds)."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["used"], {"ids": list(used), "used_ms": list(used.values())})


def prune(keep_seconds: int = _KEEP_SECONDS) -> None:
    """Forgets changes older than the kept time; cursors from before then are refused."""
    with connection.cursor() as cursor:
        cursor.execute(_SQL["prune"], {"keep_seconds": keep_seconds})
