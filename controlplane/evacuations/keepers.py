"""The control plane speaking to the keepers of a cell's sites: status for anybody, wishes signed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import httpx
import msgspec

from cells.contract import Caller, Scope, body_hash, sign_request
from controlplane.topology.cell_keys import open_cell_key
from controlplane.topology.models import Cell, Site

_CALLER = Caller(actor="service:control-plane", scopes=(Scope.INTERNAL.value,))
_TIMEOUT = httpx.Timeout(3.0, connect=1.0)
_AT_ONCE = 16


class KeeperUnreachable(Exception):
    """The keeper did not answer, or not as agreed; nothing is known."""


class KeeperRefused(Exception):
    """The site is in no state for it, or the cell's epoch has changed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteStatus:
    """What a site's keeper says now. `away`: why it could not be asked; the rest means nothing then."""

    region: str
    away: str = ""
    act: str = ""
    why: str = ""
    owner: str = ""
    epoch: int = 0
    owns: bool = False
    ready: bool = False
    primary: bool = False
    streaming: bool = False
    position: int = 0  # in the log
    committed_at: float | None = None
    replayed_at: float | None = None
    standbys: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    cut: Mapping[str, Any] | None = None  # a rehearsal: which region is cut off, until when
    missing: Sequence[str] = ()  # sites whose votes the takeover that it leads waits for

    def behind(self, region: str) -> int | None:
        """What the standby in `region` has not flushed, as this primary sees it (bytes); None: it is not
        there, or does not stream."""
        for one in self.standbys:
            if one["site"] == region:
                return int(one["behind_bytes"]) if one["state"] == "streaming" else None
        return None


@lru_cache(maxsize=1)
def _http() -> httpx.Client:
    # `trust_env` off: a proxy meant for the outside must not see internal calls.
    return httpx.Client(timeout=_TIMEOUT, trust_env=False, limits=httpx.Limits(max_keepalive_connections=50))


def status_of(site: Site) -> SiteStatus:
    """What its keeper says; `away` where it does not answer."""
    if not site.keeper_url:
        return SiteStatus(region=site.region_id, away="no keeper of it is known")
    try:
        answer = _http().get(site.keeper_url + "/status")
        told = answer.json()
        if answer.status_code != 200 or not isinstance(told, dict):
            raise KeeperUnreachable(f"{answer.status_code} from its keeper")
        return SiteStatus(
            region=site.region_id,
            **{name: told[name] for name in _TOLD if told.get(name) is not None},
        )
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeeperUnreachable) as fault:
        return SiteStatus(region=site.region_id, away=f"its keeper does not answer ({type(fault).__name__})")


_TOLD = (
    *("act", "why", "owner", "epoch", "owns", "ready", "primary", "streaming", "position", "committed_at"),
    *("replayed_at", "standbys", "cut", "missing"),
)


def statuses_of(sites: Sequence[Site]) -> list[SiteStatus]:
    """Of many, asked at the same time, in their order."""
    if not sites:
        return []
    with ThreadPoolExecutor(min(_AT_ONCE, len(sites)), thread_name_prefix="keepers") as pool:
        return list(pool.map(status_of, sites))


def ask_keeper(site: Site, cell: Cell, verb: str, wish: Mapping[str, Any]) -> str:
    """Asks a site for something; what it says. It names the epoch under which it was decided."""
    content = msgspec.json.encode(wish)
    path = f"/wishes/{verb}"
    headers = sign_request(
        kid=cell.name,
        secret=open_cell_key(cell.name, bytes(cell.sealed_key)),
        now_ms=time.time_ns() // 1_000_000,
        method="POST",
        target=path,
        caller=_CALLER,
        body_sha256=body_hash(content),
    )
    try:
        answer = _http().post(
            site.keeper_url + path, content=content, headers=headers | {"Content-Type": "application/json"}
        )
        told = answer.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as fault:
        raise KeeperUnreachable(f"{site}: {type(fault).__name__}: {fault}") from fault
    if answer.status_code == 200:
        return str(told["said"])
    detail = str(told.get("detail", answer.text[:200])) if isinstance(told, dict) else answer.text[:200]
    if answer.status_code == httpx.codes.CONFLICT:
        raise KeeperRefused(detail)
    raise KeeperUnreachable(f"{site}: {answer.status_code}: {detail}")
