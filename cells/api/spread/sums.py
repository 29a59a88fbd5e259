"""Figures of a tenant, added up over all stores that may hold rows of it.

A route that adds up asks each store for what its own figures are made of, so that quantiles and shares of
all are exact. A store that does not answer is named; the figures are without it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from cells.api.documents import instant
from cells.domain import ids
from cells.domain.crowding import Crowded, Statement, together

if TYPE_CHECKING:
    from cells.api.routing import Call

#: What of a tenant's use counts for a quota.
_USE = ("job_runs_per_second", "pending_timers", "running_runs", "strict_jobs_per_second")


async def told_elsewhere(
    call: Call, tenant_id: uuid.UUID, what: str, **query: str
) -> tuple[list[Any], list[str]]:
    """What the other stores that a tenant uses answer to `/internal/tenants/{id}/{what}`, and the regions of
    those that do not."""
    elsewhere = call.services.elsewhere
    if elsewhere is None:
        return [], []
    stores = await elsewhere.used_by(tenant_id)
    path = f"/internal/tenants/{ids.encode(ids.TENANT, tenant_id)}/{what}"
    target = f"{path}?{urlencode(query)}" if query else path
    answers = await asyncio.gather(*(elsewhere.told_by(store, "GET", target) for store in stores))
    silent = [store.region for store, answer in zip(stores, answers, strict=True) if answer is None]
    return [answer for answer in answers if answer is not None], sorted(silent)


def named(silent: Sequence[str]) -> dict[str, Any]:
    """How an answer says which regions it is without; nothing where it is whole."""
    return {"unreachable_regions": list(silent)} if silent else {}


async def use_of_all(call: Call, tenant_id: uuid.UUID, own: dict[str, Any]) -> dict[str, Any]:
    """What a tenant uses of its quotas. The busiest moments of the stores are taken as one."""
    answers, silent = await told_elsewhere(call, tenant_id, "use")
    return own | {name: sum(each[name] for each in (own, *answers)) for name in _USE} | named(silent)


async def minutes_of_all(
    call: Call,
    tenant_id: uuid.UUID,
    own: Sequence[Mapping[str, Any]],
    *,
    since: datetime,
    until: datetime,
    target_id: str | None = None,
) -> tuple[Sequence[Mapping[str, Any]], list[str]]:
    """A tenant's minutes (of a target: its calls), and regions that do not answer."""
    span = {"since": since.isoformat(), "until": until.isoformat()}
    asked = span if target_id is None else span | {"target_id": target_id}
    answers, silent = await told_elsewhere(call, tenant_id, "minutes", **asked)
    if not answers:
        return own, silent
    found = [row for each in answers for row in each["items"]]
    there = [row | {"minute": datetime.fromisoformat(row["minute"])} for row in found]
    return by_minute([*own, *there]), silent


def by_minute(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row for each minute: counts and histograms are added, the most is the most of all."""
    minutes: dict[Any, dict[str, Any]] = {}
    for row in rows:
        known = minutes.get(row["minute"])
        if known is None:
            minutes[row["minute"]] = dict(row)
            continue
        for name, value in row.items():
            if name.endswith("_le"):
                known[name] = [a + b for a, b in zip(known[name], value, strict=True)]
            elif name != "minute":
                most = name.endswith(("_max", "max_ms"))
                known[name] = max(known[name], value) if most else known[name] + value
    return [minutes[minute] for minute in sorted(minutes)]


async def delay_of_all(
    call: Call, tenant_id: uuid.UUID, own: Statement, *, since: datetime, until: datetime, exact: bool
) -> tuple[Statement, list[str]]:
    """Where a tenant's delay came from, and regions that do not answer."""
    span = {"since": instant(since) or "", "until": instant(until) or ""}
    answers, silent = await told_elsewhere(
        call, tenant_id, "delays", **span, exact="true" if exact else "false"
    )
    return together([own, *map(_statement, answers)]), silent


def _statement(told: Mapping[str, Any]) -> Statement:
    return Statement(
        runs=told["runs"],
        parts={part["part"]: part["ms"] for part in told["parts"]},
        crowded=[
            Crowded(
                minute=datetime.fromisoformat(each["minute"]),
                runs=each["runs"],
                others_ms=each["others_ms"],
                others_share=None if each["others_share"] is None else each["others_share"] / 100,
            )
            for each in told["crowded_minutes"]
        ],
    )
