"""What a target can take now: its limit, its breaker, and what it has said itself.

Targets that tell (`Retry-After`, `RateLimit`) are believed within bounds: nobody is kept from being
called for longer than `MAX_PAUSE_MS` by one answer. lua/exchange.lua keeps this state for all
executors of a cell, step by step as `after` does; an executor goes on with `after` alone while Valkey
is away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from cells.domain.aimd import Limit, Seen, adjust
from cells.domain.breaker import Breaker, BreakerState, ended

#: No single answer stops the calls to a target for longer (milliseconds).
MAX_PAUSE_MS = 300_000
#: What a quota renews in, where the target does not say.
_UNSAID_MS = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What a target said about its own quota."""

    remaining: int  # calls
    renews_ms: int  # epoch milliseconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Observed:
    """What one executor saw of a target since the look before."""

    seen: Seen = field(default_factory=Seen)
    calls: int = 0  # that ended
    failures: int = 0  # of them: no answer, or one that is worth another attempt
    probes: int = 0  # of the calls: those begun while the breaker was half open
    failed_probes: int = 0
    pause_until_ms: int = 0  # by Retry-After
    told: Told | None = None  # the latest


@dataclass(frozen=True, kw_only=True, slots=True)
class Capacity:
    """A target's state."""

    limit: Limit
    breaker: Breaker = field(default_factory=Breaker)
    paused_until_ms: int = 0
    told: Told | None = None


def after(capacity: Capacity, what: Observed, *, initial: int, most: int, now_ms: int) -> Capacity:
    """The state after what was observed. A target that works again begins at `initial` at most."""
    limit = adjust(capacity.limit, what.seen, most=most, now_ms=now_ms)
    breaker = ended(
        capacity.breaker,
        calls=what.calls,
        failures=what.failures,
        probes=what.probes,
        failed_probes=what.failed_probes,
        now_ms=now_ms,
    )
    closed = breaker.state is BreakerState.CLOSED
    if closed and capacity.breaker.state is not BreakerState.CLOSED:
        limit = replace(limit, allowed=min(limit.allowed, float(initial)))
    pause = min(what.pause_until_ms, now_ms + MAX_PAUSE_MS)
    told = what.told or capacity.told
    if told is not None:
        told = replace(told, renews_ms=min(told.renews_ms, now_ms + MAX_PAUSE_MS))
        told = told if told.renews_ms > now_ms else None
    return Capacity(
        limit=limit, breaker=breaker, paused_until_ms=max(capacity.paused_until_ms, pause), told=told
    )


def usable(capacity: Capacity, *, now_ms: int) -> int:
    """Calls that all executors together may have under way. What the target says remains of its quota
    is never exceeded by calls whose answers are still to come."""
    if capacity.breaker.state is BreakerState.OPEN or capacity.paused_until_ms > now_ms:
        return 0
    calls = capacity.limit.calls
    if capacity.told is not None and capacity.told.renews_ms > now_ms:
        calls = min(calls, capacity.told.remaining)
    return min(calls, 1) if capacity.breaker.state is BreakerState.HALF_OPEN else calls


# --- the header fields (draft-ietf-httpapi-ratelimit-headers) -----------------------------
_STRING = r'"(?:[\x20\x21\x23-\x5b\x5d-\x7e]|\\["\\])*"'
_VALUE = rf"{_STRING}|-?[0-9]{{1,15}}(?:\.[0-9]{{1,3}})?|:[A-Za-z0-9+/=]*:|\?[01]|[A-Za-z*][!-+\--:<-~]*"
_PARAMETER = re.compile(rf";\x20*([a-z*][a-z0-9_.*-]*)(?:=({_VALUE}))?")
_NAME = re.compile(rf"[\x20\t]*({_STRING})")
_COMMA = re.compile(r"[\x20\t]*(,)?")
_LONGEST = 1000


def _items(text: str) -> list[tuple[str, Mapping[str, str]]] | None:
    """A structured list of strings with parameters; None if it is not one."""
    out: list[tuple[str, Mapping[str, str]]] = []
    at = 0
    while True:
        name = _NAME.match(text, at)
        if name is None:
            return None
        at = name.end()
        parameters: dict[str, str] = {}
        while (found := _PARAMETER.match(text, at)) is not None:
            parameters[found[1]] = found[2] or "?1"
            at = found.end()
        out.append((name[1], parameters))
        comma = _COMMA.match(text, at)
        at = comma.end() if comma is not None else at
        if at >= len(text):
            return out if comma is None or comma[1] is None else None
        if comma is None or comma[1] is None:
            return None


def told_by(ratelimit: str | None, policy: str | None, *, now_ms: int) -> Told | None:
    """What `RateLimit` says, with `RateLimit-Policy` beside it: of several quotas the tightest. What
    is malformed, or counts something else than requests, says nothing."""
    if ratelimit is None or len(ratelimit) > _LONGEST:
        return None
    policies = dict(_items(policy) or ()) if policy is not None and len(policy) <= _LONGEST else {}
    tightest: Told | None = None
    for name, parameters in _items(ratelimit) or ():
        rule = policies.get(name, {})
        remaining, renews = parameters.get("r", ""), parameters.get("t") or rule.get("w", "")
        if not remaining.isdigit() or rule.get("qu", '"requests"') != '"requests"':
            continue
        wait = min(int(renews) * 1000, MAX_PAUSE_MS) if renews.isdigit() else _UNSAID_MS
        told = Told(remaining=int(remaining), renews_ms=now_ms + wait)
        if tightest is None or (told.remaining, -told.renews_ms) < (tightest.remaining, -tightest.renews_ms):
            tightest = told
    return tightest
