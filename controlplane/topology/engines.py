"""A cell's PostgreSQL and Valkey, looked at before the cell is made: every fault at once. Changes nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import redis

from controlplane.errors import Fault
from controlplane.sql import named_sql

_SQL = named_sql(Path(__file__).parent / "sql" / "engines.sql")
_DATABASE, _VALKEY = "/database_url", "/valkey_url"
_PATIENCE_SECONDS = 5
OLDEST_POSTGRES = 18
#: The oldest that has what the scripts of the timers call.
OLDEST_VALKEY = (7, 2)
#: Moves take a slot and a sender each; standbys one more.
FEWEST_SLOTS = 4
FEWEST_CONNECTIONS = 50
MOST_SKEW_SECONDS = 5.0
_KEYS_LOOKED_AT = 200


@dataclass(kw_only=True, slots=True)
class Look:
    """What was found. With no fault among `faults` a cell can be made there; `immovable` stops only moves
    of tenants from or to it, `warnings` stop nothing."""

    faults: list[Fault] = field(default_factory=list)
    immovable: list[Fault] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    empty: bool = False  # nothing stands in the database yet
    inhabited: bool = False  # processes of this cell live on it


def plain(url: str) -> str:
    """An engine's address without user and password, for people."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.hostname or ''}{port}{parts.path}"


def look_at(*, cell: str, database_url: str, valkey_url: str) -> Look:
    """Looks at both engines for a cell of that name. Waits for one that does not answer, but not long."""
    look = Look()
    if _well_formed(look, _DATABASE, database_url, ("postgresql", "postgres")):
        _postgres(look, cell, database_url)
    if _well_formed(look, _VALKEY, valkey_url, ("redis", "rediss", "valkey", "valkeys")):
        _valkey(look, cell, valkey_url)
    return look


def _well_formed(look: Look, pointer: str, url: str, schemes: tuple[str, ...]) -> bool:
    try:
        parts = urlsplit(url)
        known = parts.scheme in schemes and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        known = False
    if not known:
        look.faults.append(Fault(pointer=pointer, detail=f"not a URL of the form {schemes[0]}://host:port/…"))
    return known


def _postgres(look: Look, cell: str, url: str) -> None:
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=_PATIENCE_SECONDS) as connection:
            settings = dict(connection.execute(_SQL["engine_settings"]).fetchall())
            _settings(look, {str(name): str(value) for name, value in settings.items()})
            _rights(look, connection)
            _contents(look, cell, connection)
    except psycopg.Error as error:
        look.faults.append(Fault(pointer=_DATABASE, detail=f"cannot be used: {_short(error)}"))


def _settings(look: Look, found: dict[str, str]) -> None:
    version = int(found["server_version_num"]) // 10_000
    if version < OLDEST_POSTGRES:
        look.faults.append(_fault(f"is PostgreSQL {version}; {OLDEST_POSTGRES} or newer is needed"))
    if found["server_encoding"] != "UTF8":
        look.faults.append(_fault(f"has the encoding {found['server_encoding']}; UTF8 is needed"))
    if found["wal_level"] != "logical":
        look.immovable.append(_fault(f"has wal_level = {found['wal_level']}; moves of tenants need logical"))
    for name in ("max_replication_slots", "max_wal_senders"):
        if int(found[name]) < FEWEST_SLOTS:
            look.immovable.append(_fault(f"has {name} = {found[name]}; at least {FEWEST_SLOTS} are needed"))
    if found["track_commit_timestamp"] != "on":
        look.immovable.append(_fault("has track_commit_timestamp = off; standbys need it"))
    if int(found["max_connections"]) < FEWEST_CONNECTIONS:
        look.faults.append(
            _fault(
                f"has max_connections = {found['max_connections']}; at least {FEWEST_CONNECTIONS} are needed"
            )
        )
    for name in ("fsync", "full_page_writes"):
        if found[name] != "on":
            look.warnings.append(f"{name} is off: what was acknowledged is lost when the machine crashes")
    if found["data_checksums"] != "on":
        look.warnings.append(
            "data_checksums is off: a damaged page is not noticed, nor copied from a standby"
        )


def _rights(look: Look, connection: psycopg.Connection[tuple[object, ...]]) -> None:
    row = connection.execute(_SQL["engine_rights"]).fetchone()
    may_create, may_replicate = row if row is not None else (False, False)
    if not may_create:
        look.faults.append(_fault("does not let this user make tables in the schema public"))
    if not may_replicate:
        look.immovable.append(
            _fault("its user needs CREATEROLE, REPLICATION and pg_create_subscription for moves of tenants")
        )


def _contents(look: Look, cell: str, connection: psycopg.Connection[tuple[object, ...]]) -> None:
    ((tables, is_cell, has_hosts, now),) = connection.execute(_SQL["engine_contents"]).fetchall()
    skew = abs(float(str(now)) - time.time())
    if skew > MOST_SKEW_SECONDS:
        look.warnings.append(f"the clock of PostgreSQL and ours are {skew:.1f} s apart")
    if not tables:
        look.empty = True
        return
    if not is_cell:
        look.faults.append(_fault(f"holds {tables} tables of something else; give it a database of its own"))
        return
    named = connection.execute(_SQL["engine_cell"]).fetchone()
    if named is not None and named[0] != cell:
        look.faults.append(_fault(f"is the database of the cell {named[0]}"))
    if has_hosts:
        live = connection.execute(_SQL["engine_hosts"]).fetchone()
        look.inhabited = live is not None and int(str(live[0])) > 0


def _valkey(look: Look, cell: str, url: str) -> None:
    address = url.replace("valkey", "redis", 1) if url.startswith("valkey") else url
    try:
        with redis.Redis.from_url(
            address,
            socket_timeout=_PATIENCE_SECONDS,
            socket_connect_timeout=_PATIENCE_SECONDS,
        ) as client:
            info = client.info()
            version = str(info.get("valkey_version") or info.get("redis_version") or "0")
            if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_VALKEY:
                oldest = ".".join(map(str, OLDEST_VALKEY))
                look.faults.append(_fault(f"is version {version}; {oldest} or newer is needed", _VALKEY))
            policy = str(info.get("maxmemory_policy", "noeviction"))
            if int(info.get("maxmemory") or 0) and policy != "noeviction":
                look.faults.append(
                    _fault(
                        f"has maxmemory-policy {policy}; noeviction is needed: it would drop timers", _VALKEY
                    )
                )
            if info.get("redis_mode") == "cluster" or info.get("server_mode") == "cluster":
                look.faults.append(_fault("is a cluster; a cell's scripts need a single server", _VALKEY))
            if others := _others(client, cell):
                look.faults.append(
                    _fault(f"holds keys of something else ({others}); give it a database of its own", _VALKEY)
                )
    except (redis.RedisError, TypeError, ValueError, OSError) as error:  # of unknown parameters, too
        look.faults.append(_fault(f"cannot be used: {_short(error)}", _VALKEY))


def _others(client: redis.Redis, cell: str) -> str | None:
    """A key that is not this cell's, among the first that are found."""
    prefixes = (f"ch:{{{cell}}}:".encode(), b"clockhouse:")  # the braces are literal: cells/timers/keys.py
    for looked, key in enumerate(client.scan_iter(count=_KEYS_LOOKED_AT)):
        if not bytes(key).startswith(prefixes):
            return ascii(bytes(key)[:60])[2:-1]
        if looked >= _KEYS_LOOKED_AT:
            break
    return None


def _fault(detail: str, pointer: str = _DATABASE) -> Fault:
    return Fault(pointer=pointer, detail=detail)


def _short(error: Exception) -> str:
    """The first line, which holds no password."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
