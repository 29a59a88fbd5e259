"""Usage as the control plane asks for it: of the cell, whichever of its stores counted it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cells.api.routing import Call


def _target(call: Call) -> str:
    query = call.scope["query_string"].decode("latin-1")
    path: str = call.scope["raw_path"].decode("latin-1")
    return f"{path}?{query}" if query else path


async def whole_day(call: Call, own: dict[str, Any]) -> dict[str, Any]:
    """What all stores counted on a day. It is not complete while one of them does not answer."""
    elsewhere = call.services.elsewhere
    if elsewhere is None:
        return own
    runs: Counter[tuple[str, str]] = Counter()
    told = [own, *await elsewhere.told_by_all(_target(call))]
    answered = [each for each in told if each is not None]
    for each in answered:
        for item in each["items"]:
            runs[item["tenant_id"], item["region_policy"]] += item["job_runs"]
    return own | {
        "complete": len(answered) == len(told) and all(each["complete"] for each in answered),
        "complete_until": min(each["complete_until"] for each in answered),
        "items": [
            {"tenant_id": tenant, "region_policy": policy, "job_runs": count}
            for (tenant, policy), count in sorted(runs.items())
        ],
    }


async def by_job(call: Call, own: dict[str, Any], *, limit: int) -> dict[str, Any]:
    """A page of jobs of all stores, in the order of their ids; those of a store that does not answer are not
    in it, and `complete_until` stays with the stores that do."""
    elsewhere = call.services.elsewhere
    if elsewhere is None:
        return own
    answered = [each for each in (own, *await elsewhere.told_by_all(_target(call))) if each is not None]
    items = sorted((item for each in answered for item in each["items"]), key=lambda item: item["job_id"])
    until = min(each["complete_until"] for each in answered)
    return own | {"complete_until": until, "items": items[:limit]}
