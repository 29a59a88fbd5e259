"""Targets as the executor uses them: how to call one, and how many calls it may have now.

Definitions and secrets are at most a second old when a call begins, read for many targets in
one round trip. `limit` is this executor's share of the target's limit (`limits.py`); a little work
beyond it waits here, holding no slot of its class.
"""

from __future__ import annotations

import asyncio
import uuid
from base64 import b64encode
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from multidict import CIMultiDict, istr
from yarl import URL

from cells.execution.load import Load
from cells.execution.signing import Signer
from cells.observability.logs import logger
from cells.ports import Clock, SealedSecret, Secrets, Store, TargetRow
from cells.secrets import CannotOpen, target_context

if TYPE_CHECKING:
    from cells.execution.lanes import Work

log = logger(__name__)

#: A target's definition and secrets are read again when older than this (seconds).
MAX_AGE_SECONDS = 1.0
#: Targets unused for this long are forgotten (seconds).
_IDLE_SECONDS = 120.0
_URLS = 1024

TargetKey = tuple[uuid.UUID, str]

_AUTHORIZATION = istr("Authorization")


class Target:
    """One target of one tenant. `state` is None while nothing is known of it."""

    __slots__ = (
        "_urls",
        "_version",
        "base",
        "drill_percent",
        "fault",
        "headers",
        "key",
        "limit",
        "load",
        "read_at",
        "running",
        "signer",
        "state",
        "used_at",
        "waiting",
    )

    def __init__(self, key: TargetKey):
        self.key = key
        self.state: str | None = None
        self.fault: str | None = None  # of ours; calls cannot be made, but may be later
        self.limit = 1
        self.load = Load()
        self.drill_percent = 0
        self.running = 0
        self.waiting: deque[Work] = deque()
        self.base = ""
        self.signer = Signer(())
        self.headers: CIMultiDict[str] = CIMultiDict()
        self.read_at = float("-inf")  # steady clock
        self.used_at = 0.0
        self._version: object = None
        self._urls: dict[str, URL] = {}

    def url(self, path: str) -> URL:
        """The base URL with a job's path behind it."""
        url = self._urls.get(path)
        if url is None:
            if len(self._urls) >= _URLS:
                self._urls.clear()
            url = self._urls[path] = URL(self.base + path)
        return url

    def set(self, row: TargetRow, secrets: Sequence[SealedSecret], opener: Secrets) -> None:
        """Take over what was read. Costs nothing where nothing changed."""
        version = (row.version, row.state, tuple((s.purpose, s.generation) for s in secrets))
        if version == self._version:
            return
        opened = {"SIGNING": [], "CREDENTIAL": []}  # type: dict[str, list[bytes]]
        for secret in secrets:
            context = target_context(row.tenant_id, row.target_id, secret.purpose)
            opened[secret.purpose].append(opener.open(secret.sealed, context=context))
        self.signer = Signer(opened["SIGNING"])
        self.headers = _template(row.auth, opened["CREDENTIAL"])
        load = self.load
        load.most = row.max_concurrency
        load.initial = min(row.initial_concurrency, load.most)
        load.slo = row.latency_slo_ms / 1000
        # Until a share is known, and never above what its owner allows now.
        self.limit = min(self.limit, load.most) if load.limit else load.initial
        self.drill_percent = drill_percent(row.settings)
        self.base = row.base_url.rstrip("/")
        self._urls = {}
        self.state = row.state
        self.fault = None
        self._version = version

    @property
    def free(self) -> bool:
        """Whether its work need not wait for it: it is known not to be called (any more)."""
        return self.read_at > float("-inf") and self.state != "APPROVED"

    def forget(self) -> None:
        """It is not (or no longer) there."""
        self.state, self.fault, self._version = None, None, None

    def broken(self) -> None:
        """It is there, and its secrets do not open: the installation's key is at fault, not the
        target, so its runs are to be tried again."""
        self.fault, self._version = "secrets of the target do not open", None


def drill_percent(settings: dict[str, object]) -> int:
    """Of its calls, those that are delivered twice on purpose."""
    drill = settings.get("drill")
    percent = drill.get("duplicate_percent") if isinstance(drill, dict) else None
    return percent if isinstance(percent, int) else 0


def _template(auth: dict[str, object], credentials: Sequence[bytes]) -> CIMultiDict[str]:
    """The headers that all calls to a target have in common."""
    headers = CIMultiDict(
        {
            "Content-Type": "application/json",
            "User-Agent": "Clockhouse/1",
            "Accept-Encoding": "identity",
        }
    )
    if credentials:
        secret = credentials[0].decode()
        if auth.get("type") == "BEARER":
            headers[_AUTHORIZATION] = f"Bearer {secret}"
        elif auth.get("type") == "BASIC":
            pair = f"{auth.get('username', '')}:{secret}".encode()
            headers[_AUTHORIZATION] = f"Basic {b64encode(pair).decode()}"
    return headers


class Targets:
    """All targets this executor has lately called."""

    def __init__(self, store: Store, secrets: Secrets, clock: Clock):
        self._store = store
        self._secrets = secrets
        self._clock = clock
        self._targets: dict[TargetKey, Target] = {}
        self._reading: dict[TargetKey, asyncio.Future[None]] = {}
        self._swept_at = 0.0

    def get(self, key: TargetKey) -> Target:
        """The target of that key, perhaps not read yet."""
        target = self._targets.get(key)
        if target is None:
            target = self._targets[key] = Target(key)
        target.used_at = self._clock.monotonic()
        return target

    def all(self) -> Iterable[Target]:
        """Those known now."""
        return tuple(self._targets.values())

    def in_use(self, *, within: float) -> list[Target]:
        """Those that have work, or were asked for in the last `within` seconds."""
        since = self._clock.monotonic() - within
        return [t for t in self._targets.values() if t.used_at > since or t.load.held or t.load.parked]

    def fresh(self, target: Target) -> bool:
        """Whether it was read within the last second."""
        return self._clock.monotonic() - target.read_at <= MAX_AGE_SECONDS

    async def refresh(self, targets: Iterable[Target], *, max_age: float = MAX_AGE_SECONDS) -> None:
        """Read those that are older than `max_age` seconds, in one round trip; what is being read
        already is waited for. `Retryable` when the store is away."""
        now = self._clock.monotonic()
        old = {t.key: t for t in targets if now - t.read_at > max_age}
        awaited = [reading for key in old if (reading := self._reading.get(key)) is not None]
        mine = {key: target for key, target in old.items() if key not in self._reading}
        if mine:
            reading = asyncio.ensure_future(self._read(mine, now))
            self._reading.update(dict.fromkeys(mine, reading))
            awaited.append(reading)
        for reading in dict.fromkeys(awaited):
            # Others wait for it too: who is cancelled here must not take it along.
            await asyncio.shield(reading)

    async def _read(self, old: dict[TargetKey, Target], now: float) -> None:
        keys = tuple(old)
        try:
            found = await self._store.call_targets(keys)
        finally:
            for key in keys:
                del self._reading[key]
        missing = dict(old)
        for row, secrets in found:
            target = missing.pop((row.tenant_id, row.target_id))
            try:
                target.set(row, secrets, self._secrets)
            except (CannotOpen, UnicodeDecodeError) as fault:
                log.error(
                    "secrets of a target do not open",
                    tenant=str(row.tenant_id),
                    target=row.target_id,
                    fault=str(fault),
                )
                target.broken()
            target.read_at = now
        for target in missing.values():
            target.forget()
            target.read_at = now
        self._sweep(now)

    def _sweep(self, now: float) -> None:
        if now - self._swept_at < _IDLE_SECONDS:
            return
        self._swept_at = now
        for key, target in list(self._targets.items()):
            if now - target.used_at > _IDLE_SECONDS and not target.running and not target.load.held:
                del self._targets[key]
