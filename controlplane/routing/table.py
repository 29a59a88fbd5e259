"""The routing table: who a key is, where a tenant lives, which part answers a path.

Plain dictionaries in memory. Nothing here does I/O; the feed fills it.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """A cell as the router needs it."""

    url: str
    secret_hex: str
    state: str = "OPEN"

    @property
    def secret(self) -> bytes:
        return bytes.fromhex(self.secret_hex)


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """Where a tenant lives and how much API it may use."""

    cell: str | None = None  # not placed yet
    epoch: int = 0
    state: str = "ACTIVE"
    api_requests_per_second: int = 100


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """An API key: the hash of its whole text and what it may do."""

    sha256: str
    tenant_id: str | None = None  # None: an operator's key
    scopes: tuple[str, ...] = ()
    expires_at_ms: int | None = None


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything, as of one cursor. Also the shape of the copy on disk."""

    cursor: str
    taken_at_ms: int = 0
    cells: dict[str, Cell] = {}
    tenants: dict[str, Tenant] = {}
    keys: dict[str, Key] = {}


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was set (`value`) or removed (no value)."""

    kind: str
    id: str
    value: dict[str, Any] | None = None


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What happened since a cursor."""

    cursor: str
    changes: list[Change] = []


class Plane(enum.Enum):
    """Which part of the API answers a path."""

    MANAGEMENT = "management"  # Django
    DATA = "data"  # the tenant's cell


_MANAGEMENT = frozenset(
    {
        "tenant",
        "members",
        "api-keys",
        "audit-log",
        "quotas",
        "usage",
        "cost-reports",
        "invoices",
        "budget",
        "billing-account",
        "exports",
        "export-schedules",
        "tenant-exports",
        "notification-kinds",
        "notification-rules",
        "notification-deliveries",
        "admin",
    }
)

#: Verbs of the cells' resources that Django answers: what a schedule costs is a matter of prices.
_MANAGEMENT_VERBS = frozenset({"schedules:forecast"})

#: A tenant in one of these states is changing its owner: its requests wait a moment.
HANDOFF_STATES = frozenset({"HANDOFF", "SEALED"})


def plane_of(path: str) -> Plane | None:
    """The plane of a raw path, by its first segment behind `/v1/`. None: nobody's."""
    if not path.startswith("/v1/"):
        return None
    rest = path[4:]
    end = rest.find("/")
    segment = rest if end < 0 else rest[:end]
    verb = segment.find(":")
    name = segment if verb < 0 else segment[:verb]
    if not name:
        return None
    return Plane.MANAGEMENT if name in _MANAGEMENT or segment in _MANAGEMENT_VERBS else Plane.DATA


class Table:
    """Keys, tenants and cells. Changed only by whole snapshots and by changes in order."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.cursor = snapshot.cursor
        self.keys = dict(snapshot.keys)
        self.tenants = dict(snapshot.tenants)
        self.cells = dict(snapshot.cells)
        self._secrets: dict[str, bytes] = {}

    def snapshot(self, *, now_ms: int) -> Snapshot:
        """The table as one document."""
        return Snapshot(
            cursor=self.cursor, taken_at_ms=now_ms, cells=self.cells, tenants=self.tenants, keys=self.keys
        )

    def apply(self, changes: Changes) -> int:
        """Apply changes in order; how many were. Kinds of a later version are passed over."""
        applied = 0
        for change in changes.changes:
            if change.kind == "key":
                _set(self.keys, change, Key)
            elif change.kind == "tenant":
                _set(self.tenants, change, Tenant)
            elif change.kind == "cell":
                _set(self.cells, change, Cell)
                self._secrets.pop(change.id, None)
            else:
                continue
            applied += 1
        self.cursor = changes.cursor
        return applied

    def cell_secret(self, name: str) -> bytes:
        """The signing key of a known cell."""
        secret = self._secrets.get(name)
        if secret is None:
            secret = self._secrets[name] = self.cells[name].secret
        return secret


def _set(into: dict[str, Any], change: Change, shape: type[msgspec.Struct]) -> None:
    if change.value is None:
        into.pop(change.id, None)
    else:
        into[change.id] = msgspec.convert(change.value, shape)
