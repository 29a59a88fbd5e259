"""Settings of a cell's process, read from environment variables.

`Settings.from_env` reports every fault at once, so that a misconfigured process is fixed in one go.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar, cast
from urllib.parse import urlsplit

from cells.lake_url import check_url
from cells.stores.registry import HIGHEST, LocalStore, Registry, parse_stores

ROLES = ("api", "loader", "dispatcher", "executor", "engine", "reaper", "meter", "lake")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")

_T = TypeVar("_T")


class SettingsError(ValueError):
    """The environment is not usable. `faults` names every variable and what is wrong with it."""

    def __init__(self, faults: list[str]):
        super().__init__("; ".join(faults))
        self.faults = faults


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What a cell's process was told."""

    cell_name: str  # CELL_NAME
    region: str  # CELL_REGION
    database_url: str = field(repr=False)  # CELL_DATABASE_URL
    valkey_url: str = field(repr=False)  # CELL_VALKEY_URL
    bind_host: str  # CELL_BIND
    bind_port: int
    #: CELL_KEYS: names and secrets that requests are signed with; the first is the current one.
    keys: dict[str, bytes] = field(repr=False)
    #: CELL_INSTALLATION_KEY: seals secrets; the first is the current one, the others still open.
    installation_keys: tuple[bytes, ...] = field(repr=False)
    control_url: str = ""  # CELL_CONTROL_URL; empty: meters stay here
    #: CELL_EGRESS_ALLOW: addresses that targets may have besides public ones (see execution/egress).
    egress_allow: frozenset[str] = frozenset()
    executor_slots: int = 1024  # CELL_EXECUTOR_SLOTS, over all four classes
    lateness_slo_seconds: int = 60  # CELL_LATENESS_SLO_SECONDS: what waits longer is late, and told of
    drain_seconds: float = 20.0  # CELL_DRAIN_SECONDS: how long calls in flight may take at the end
    #: CELL_LAKE: where finished runs go, `file:///folder` or `s3://bucket/prefix`; empty: nowhere, and
    #: none ever leaves the database. CELL_LAKE_ENDPOINT: an S3 that is not Amazon's.
    lake: str = ""
    lake_endpoint: str = ""
    runs_kept_days: int = 30  # CELL_RUNS_KEPT_DAYS: in the database, once they are in the lake
    history_kept_days: int = 396  # CELL_HISTORY_KEPT_DAYS: in the lake
    pool_size: int = 12  # CELL_POOL_SIZE: connections to PostgreSQL
    #: CELL_OWNERSHIP=LEASED: the cell has sites in several regions; this process works only while its region
    #: owns it, and waits until then. PERMANENT (the default): it is this region's for good.
    leased: bool = False
    #: CELL_STORES: the local stores of the cell's sites (JSON). CELL_STORE: this process is in front of one
    #: of them; 0 (the default): of the cell's own, which is replicated where the cell has several sites.
    stores: Registry = field(default_factory=Registry)
    log_level: str = "INFO"  # CELL_LOG_LEVEL
    roles: frozenset[str] = frozenset(ROLES)  # --roles, or CELL_ROLES

    @property
    def kid(self) -> str:
        """The name of the current key."""
        return next(iter(self.keys))

    @classmethod
    def from_env(cls, env: Mapping[str, str], *, roles: str | None = None) -> Settings:
        """The settings in `env`, or `SettingsError`. `roles` (comma separated) goes before CELL_ROLES."""
        read = _Reader(env)
        host, port = read.required("CELL_BIND", _bind, ("", 0))
        settings = cls(
            cell_name=read.required("CELL_NAME", _name, ""),
            region=read.required("CELL_REGION", _name, ""),
            database_url=read.required("CELL_DATABASE_URL", _url("postgresql", "postgres"), ""),
            valkey_url=read.required("CELL_VALKEY_URL", _url("redis", "rediss", "valkey", "unix"), ""),
            bind_host=host,
            bind_port=port,
            keys=read.required("CELL_KEYS", _keys, {}),
            installation_keys=read.required("CELL_INSTALLATION_KEY", _installation_keys, ()),
            control_url=read.optional("CELL_CONTROL_URL", _url("http", "https"), ""),
            egress_allow=read.optional("CELL_EGRESS_ALLOW", _egress, frozenset()),
            executor_slots=read.optional("CELL_EXECUTOR_SLOTS", _whole(4, 100_000), 1024),
            lateness_slo_seconds=read.optional("CELL_LATENESS_SLO_SECONDS", _whole(1, 86_400), 60),
            drain_seconds=read.optional("CELL_DRAIN_SECONDS", _whole(0, 3600), 20),
            lake=read.optional("CELL_LAKE", check_url, ""),
            lake_endpoint=read.optional("CELL_LAKE_ENDPOINT", _url("http", "https"), ""),
            runs_kept_days=read.optional("CELL_RUNS_KEPT_DAYS", _whole(1, 3650), 30),
            history_kept_days=read.optional("CELL_HISTORY_KEPT_DAYS", _whole(1, 36_500), 396),
            pool_size=read.optional("CELL_POOL_SIZE", _whole(2, 500), 12),
            leased=read.optional("CELL_OWNERSHIP", _ownership, False),
            stores=Registry(
                own=read.optional("CELL_STORE", _whole(0, HIGHEST), 0),
                local=read.optional("CELL_STORES", parse_stores, cast("tuple[LocalStore, ...]", ())),
            ),
            log_level=read.optional("CELL_LOG_LEVEL", _level, "INFO"),
            roles=read.given("--roles", roles, _roles)
            if roles is not None
            else read.optional("CELL_ROLES", _roles, frozenset(ROLES)),
        )
        if settings.stores.own and (settings.leased or settings.stores):
            read.faults.append("CELL_STORE is of a store of one region: neither LEASED nor with CELL_STORES")
        if settings.history_kept_days < settings.runs_kept_days:
            read.faults.append("CELL_HISTORY_KEPT_DAYS is less than CELL_RUNS_KEPT_DAYS")
        if read.faults:
            raise SettingsError(read.faults)
        return settings


class _Reader:
    """Reads variables and remembers what was wrong."""

    def __init__(self, env: Mapping[str, str]):
        self._env = env
        self.faults: list[str] = []

    def required(self, name: str, parse: Callable[[str], _T], placeholder: _T) -> _T:
        text = self._env.get(name, "").strip()
        if not text:
            self.faults.append(f"{name} is not set")
            return placeholder
        return self._parsed(name, text, parse, placeholder)

    def optional(self, name: str, parse: Callable[[str], _T], default: _T) -> _T:
        text = self._env.get(name, "").strip()
        return self._parsed(name, text, parse, default) if text else default

    def given(self, name: str, text: str, parse: Callable[[str], frozenset[str]]) -> frozenset[str]:
        return self._parsed(name, text, parse, frozenset())

    def _parsed(self, name: str, text: str, parse: Callable[[str], _T], fallback: _T) -> _T:
        try:
            return parse(text)
        except ValueError as fault:
            self.faults.append(f"{name}: {fault}")
            return fallback


def _name(text: str) -> str:
    if not text.replace("-", "").isalnum() or not text.isascii() or len(text) > 63:
        raise ValueError("letters, digits and hyphens, 63 at most")
    return text


def _url(*schemes: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if urlsplit(text).scheme not in schemes:
            raise ValueError(f"a URL of {' or '.join(schemes)}")
        return text

    return parse


def _bind(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError("host:port")
    return host.strip("[]"), int(port)


def _hex(text: str, what: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ValueError(f"{what} is not hexadecimal") from None


def _keys(text: str) -> dict[str, bytes]:
    keys: dict[str, bytes] = {}
    for part in text.split(","):
        kid, colon, secret = part.strip().partition(":")
        if not colon or not kid:
            raise ValueError("<name>:<hex>, comma separated")
        if kid in keys:
            raise ValueError(f"{kid} is there twice")
        keys[kid] = _hex(secret, f"the key {kid}")
        if len(keys[kid]) < 16:
            raise ValueError(f"the key {kid} is shorter than 16 bytes")
    return keys


def _installation_keys(text: str) -> tuple[bytes, ...]:
    keys = tuple(_hex(part.strip(), "a key") for part in text.split(","))
    if any(len(key) != 32 for key in keys):
        raise ValueError("each key is 64 hexadecimal digits")
    return keys


def _egress(text: str) -> frozenset[str]:
    words = frozenset(word.strip().lower() for word in text.split(",") if word.strip())
    for word in words - {"loopback", "private"}:
        try:
            ipaddress.ip_network(word)
        except ValueError:
            raise ValueError(f"{word!r} is neither loopback, private nor a network") from None
    return words


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    return parse


def _ownership(text: str) -> bool:
    if text.upper() not in ("PERMANENT", "LEASED"):
        raise ValueError("PERMANENT or LEASED")
    return text.upper() == "LEASED"


def _level(text: str) -> str:
    if text.upper() not in LOG_LEVELS:
        raise ValueError(f"one of {', '.join(LOG_LEVELS)}")
    return text.upper()


def _roles(text: str) -> frozenset[str]:
    roles = frozenset(word.strip() for word in text.split(",") if word.strip())
    unknown = sorted(roles - set(ROLES))
    if unknown or not roles:
        raise ValueError(f"any of {', '.join(ROLES)}" + (f"; not {', '.join(unknown)}" if unknown else ""))
    return roles
