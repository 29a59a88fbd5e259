"""Pull workers: what is said of tasks to the store that handed them out, and how their queues look."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.responses import Response

from cells.api.problems import not_found
from cells.api.routing import answer
from cells.api.spread.asked import Asked, document_of, home_region_down, response_of, store_named
from cells.domain.ids import MAIN_STORE
from cells.stores.link import Unreachable
from cells.stores.registry import LocalStore


async def bulk(asked: Asked) -> Response:
    """`runs:heartbeat` and `runs:complete`: each item to the store of its run, the results in their order."""
    body = asked.given["body"]
    registry = asked.elsewhere.registry
    parts: dict[int, list[int]] = {}
    for i, item in enumerate(body.items):
        number = store_named(item.run_id) or MAIN_STORE
        parts.setdefault(number if registry.get(number) else MAIN_STORE, []).append(i)
    if parts.keys() == {MAIN_STORE}:
        return await asked.here()
    raw = msgspec.json.decode(asked.call.raw_body, type=dict[str, Any])["items"]
    answers = await asyncio.gather(
        *(
            _part(asked, registry.get(number), [raw[i] for i in places], [body.items[i] for i in places])
            for number, places in parts.items()
        )
    )
    results: list[Any] = [None] * len(body.items)
    for places, found in zip(parts.values(), answers, strict=True):
        for i, result in zip(places, found, strict=True):
            results[i] = result
    return answer({"results": results})


async def _part(asked: Asked, store: LocalStore | None, raw: list[Any], items: Sequence[Any]) -> list[Any]:
    if store is None:
        body = asked.given["body"].model_copy(update={"items": list(items)})
        found: list[Any] = document_of(await asked.here(body=body))["results"]
        return found
    try:
        reply = await asked.ask(store, body=msgspec.json.encode({"items": raw}))
    except Unreachable as fault:
        problem = home_region_down(fault)
        return [{"run_id": item.run_id, "status": 503, "problem": problem.document()} for item in items]
    if reply.status == 200:
        results: list[Any] = msgspec.json.decode(reply.body)["results"]
        return results
    problem_document = msgspec.json.decode(reply.body)
    return [{"run_id": item.run_id, "status": reply.status, "problem": problem_document} for item in items]


async def leave(asked: Asked) -> Response:
    """A worker leaves the queue in all stores."""
    response = await asked.here()
    returned = document_of(response)["returned"]
    for store in await asked.used():
        try:
            reply = await asked.ask(store)
        except Unreachable:
            continue  # its leases end by themselves there
        if reply.status == 200:
            returned += msgspec.json.decode(reply.body)["returned"]
    return answer({"returned": returned})


async def queue_wide(asked: Asked) -> Response:
    """`:pause`, `:resume` and the reading of a queue: in each store that has it. All are to follow."""
    stores = await asked.used()
    if not stores:
        return await asked.here()
    here = await asked.here_or_nothing()
    found = [] if here is None else [document_of(here)]
    for store in stores:
        try:
            reply = await asked.ask(store)
        except Unreachable as fault:
            if asked.method == "GET" and found:
                continue
            raise home_region_down(fault) from fault
        if reply.status == 200:
            found.append(msgspec.json.decode(reply.body))
        elif reply.status != 404:
            return response_of(reply)
    if not found:
        raise not_found("task queue")
    return answer(_one_queue(found))


async def queues(asked: Asked) -> Response:
    """`GET /v1/task-queues`: by name, those of all stores."""
    stores = await asked.used()
    response = await asked.here()
    if not stores:
        return response
    items, silent = [document_of(response)["items"]], []
    for store in stores:
        try:
            reply = await asked.ask(store)
        except Unreachable:
            silent.append(store.region)
            continue
        if reply.status == 200:
            items.append(msgspec.json.decode(reply.body)["items"])
    named: dict[str, list[Any]] = {}
    for each in (queue for store_ in items for queue in store_):
        named.setdefault(each["task_queue"], []).append(each)
    shown: dict[str, Any] = {
        "items": [_one_queue(found) for _, found in sorted(named.items())],
        "next_cursor": None,
    }
    if silent:
        shown["unreachable_regions"] = sorted(silent)
    return answer(shown)


#: The state of a queue of several stores is the one that most needs somebody.
_GRAVEST = ("PAUSED", "NO_WORKER", "OK", "IDLE")


def _one_queue(found: Sequence[Any]) -> Any:
    """What a queue is that has tasks in several stores. The same workers poll all of them."""
    if len(found) == 1:
        return found[0]
    gravest = min(found, key=lambda queue: _GRAVEST.index(queue["state"]))
    one = dict(gravest)
    one["backlog"] = sum(queue["backlog"] for queue in found)
    one["leases"] = sum(queue["leases"] for queue in found)
    one["workers"] = max(queue["workers"] for queue in found)
    one["created_at"] = min(queue["created_at"] for queue in found)
    one["oldest_due_at"] = min((q["oldest_due_at"] for q in found if q["oldest_due_at"]), default=None)
    one["last_polled_at"] = max((q["last_polled_at"] for q in found if q["last_polled_at"]), default=None)
    if "held" in one:
        one["held"] = [lease for queue in found for lease in queue["held"]]
    return one
