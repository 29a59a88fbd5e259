"""Which stores a request concerns: by the ids it names, by region policy, or all that the tenant uses."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from cells.api.problems import conflict
from cells.api.spread import creating, feeds, lists, workers
from cells.api.spread.asked import Asked, document_of, home_region_down, response_of, store_named
from cells.api.spread.polls import poll
from cells.domain import ids
from cells.stores.link import Unreachable
from cells.stores.registry import LocalStore

Way = Callable[[Asked], Awaitable[Response]]

#: Path parameters that hold ids of ours, and so name the store.
_NAMING = ("job_id", "run_id", "backfill_id", "redrive_id", "selection_id", "operation_id")


async def first_found(asked: Asked) -> Response:
    """By a name that a client chose: of the cell's own store, else of the first other one that has it."""
    stores = await asked.used()
    if not stores:
        return await asked.here()
    found = await asked.here_or_nothing()
    if found is not None:
        return found
    answers = [await asked.there(store) for store in stores]
    return next((each for each in answers if each.status_code != 404), answers[0])


async def workflow(asked: Asked) -> Response:
    """By the id of an execution, which names the store, or by a workflow id, which a client chose."""
    value = ids.decode(ids.WORKFLOW_RUN, asked.given["workflow_id"])
    store = None if value is None else asked.elsewhere.registry.get(ids.store_of(value))
    return await (first_found(asked) if store is None else asked.there(store))


async def everywhere(asked: Asked) -> Response:
    """What is chosen by a filter: in each store by itself. The answer is that of the first store that has any
    of it, the cell's own before all others; `elsewhere` holds the others', each with ids of its own."""
    body = asked.given["body"]
    store = _named_in(asked, body)
    if store is not None:
        return await asked.there(store)
    stores = await asked.used()
    if not stores or getattr(body, "selection_id", None) is not None:
        return await asked.here()
    own = await asked.here_or_refusal()
    begun = [own] if isinstance(own, Response) else []
    # Regions where it did not begin though there may be something, and what is said of it.
    missing: list[tuple[str, Response | Exception]] = []
    for store in stores:
        try:
            reply = await asked.ask(store)
        except Unreachable as fault:
            missing.append((store.region, home_region_down(fault)))
            continue
        if reply.status < 400:
            begun.append(response_of(reply))
        elif not asked.has_nothing(reply):
            missing.append((store.region, response_of(reply)))
    if not begun:
        why = missing[0][1] if missing else own
        if isinstance(why, Response):
            return why
        raise why
    shown = document_of(begun[0]) | {"elsewhere": [document_of(each) for each in begun[1:]]}
    if missing:
        shown["unreachable_regions"] = [region for region, _ in missing]
    location = {name: value for name, value in begun[0].headers.items() if name == "location"}
    return Response(
        msgspec.json.encode(shown), begun[0].status_code, headers=location, media_type="application/json"
    )


def _named_in(asked: Asked, body: object) -> LocalStore | None:
    """The store of all ids that a filter or a selection names."""
    filter_ = getattr(body, "filter", None)
    names = [getattr(body, "selection_id", None), getattr(filter_, "job_id", None)]
    named = [name for name in (*names, *(getattr(filter_, "run_ids", None) or ())) if name is not None]
    numbers = {store_named(name) for name in named}
    if len(numbers) != 1:
        return None
    (number,) = numbers
    return None if number is None else asked.elsewhere.registry.get(number)


async def target_deleted(asked: Asked) -> Response:
    """`DELETE /v1/targets/…`: not while a job in another store calls it."""
    target = asked.given["target_id"]
    for store in await asked.used():
        for state in ("ACTIVE", "PAUSED"):
            path = f"/v1/jobs?state={state}&limit=1&target={quote(target, safe='')}"
            try:
                reply = await asked.elsewhere.send(
                    store, "GET", path, asked.elsewhere.as_reader(asked.call.caller)
                )
            except Unreachable as fault:
                raise home_region_down(fault) from fault
            if reply.status == 200 and msgspec.json.decode(reply.body)["items"]:
                raise conflict(f"Jobs that are kept in {store.region} alone still use it.")
    return await asked.here()


#: How requests are spread that name no store by an id in their path. Whatever is in neither table is the
#: business of the cell's own store: targets, definitions and calendars are told to the others.
WAYS: dict[str, Way] = {
    "POST /v1/jobs": creating.one_job,
    "POST /v1/jobs:batch": creating.batch,
    "PUT /v1/jobs/by-key/{key}": creating.declared,
    "GET /v1/jobs/by-key/{key}": first_found,
    "DELETE /v1/jobs/by-key/{key}": first_found,
    "POST /v1/workflows": creating.start,
    "GET /v1/workflows/{workflow_id}": workflow,
    "GET /v1/workflows/{workflow_id}/history": workflow,
    "GET /v1/workflows/{workflow_id}/timeline": workflow,
    "POST /v1/workflows/{workflow_id}/signals/{signal}": workflow,
    **{
        f"POST /v1/workflows/{{workflow_id}}:{verb}": workflow
        for verb in ("cancel", "terminate", "resolve", "reset", "migrate")
    },
    **{f"GET {path}": lists.merged for path in lists.ORDERED},
    "GET /v1/events": feeds.events,
    "POST /v1/selections": everywhere,
    "POST /v1/dlq:redrive": everywhere,
    "POST /v1/dlq:purge": everywhere,
    "POST /v1/task-queues/{queue}/tasks:poll": poll,
    "POST /v1/task-queues/{queue}/workers:leave": workers.leave,
    "GET /v1/task-queues": workers.queues,
    "GET /v1/task-queues/{queue}": workers.queue_wide,
    "POST /v1/task-queues/{queue}:pause": workers.queue_wide,
    "POST /v1/task-queues/{queue}:resume": workers.queue_wide,
    "POST /v1/runs:heartbeat": workers.bulk,
    "POST /v1/runs:complete": workers.bulk,
    "DELETE /v1/targets/{target_id}": target_deleted,
}


async def spread(asked: Asked) -> Response:
    """The answer of whichever stores a request concerns."""
    query = asked.given.get("query")
    for text in (*(asked.given.get(name) for name in _NAMING), getattr(query, "job_id", None)):
        number = None if text is None else store_named(text)
        store = None if number is None else asked.elsewhere.registry.get(number)
        if store is not None:
            return await asked.there(store)
    way = WAYS.get(f"{asked.method} {asked.path_format}")
    return await (asked.here() if way is None else way(asked))
