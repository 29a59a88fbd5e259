"""What is made: in the store that its region policy says."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.responses import Response

from cells.api.problems import Problem, unavailable
from cells.api.reading import read_fields
from cells.api.routing import answer
from cells.api.spread.asked import Asked, document_of, home_region_down, response_of
from cells.domain.job import SINGLE_REGION
from cells.stores.link import Refused, Unreachable
from cells.stores.registry import LocalStore

_NOT_NOW = "The store of what is kept in one region cannot be reached right now."


def _home(asked: Asked, policy: object) -> LocalStore | None:
    """The local store for that policy (the tenant's default where there is none); None: this store."""
    config = asked.call.tenant.config
    if (policy or config.default_region_policy) != SINGLE_REGION:
        return None
    return asked.elsewhere.registry.home(config.home_region)


async def _made_at(asked: Asked, store: LocalStore) -> Response:
    try:
        await asked.elsewhere.ready(asked.call.fence, store)
    except Unreachable as fault:
        raise home_region_down(fault) from fault
    return await asked.there(store)


async def one_job(asked: Asked) -> Response:
    """`POST /v1/jobs`."""
    store = _home(asked, asked.given["body"].region_policy)
    return await (asked.here() if store is None else _made_at(asked, store))


async def start(asked: Asked) -> Response:
    """`POST /v1/workflows`: where the definition says."""
    body, call = asked.given["body"], asked.call
    known = await call.services.known_definitions.find(call.tenant_id, body.definition, body.version)
    if known is None or known.region_policy != SINGLE_REGION:
        return await asked.here()
    store = _home(asked, SINGLE_REGION)
    return await (asked.here() if store is None else _made_at(asked, store))


async def declared(asked: Asked) -> Response:
    """`PUT /v1/jobs/by-key/…`: the job that is there under the key, in whichever store, else where the policy
    says. Keys are each store's own. Where it is kept says that its policy is another one."""
    stores, call = await asked.used(now_known=True), asked.call
    if stores:
        if await call.services.store.get_job_by_key(call.tenant_id, asked.given["key"]) is not None:
            return await asked.here()
        for store in stores:
            if await _has_key(asked, store):
                return await _made_at(asked, store)
    home = _home(asked, _policy_in(call.raw_body))
    return await (asked.here() if home is None else _made_at(asked, home))


async def _has_key(asked: Asked, store: LocalStore) -> bool:
    scope = asked.call.scope
    try:
        reply = await asked.elsewhere.send(
            store, "GET", scope["raw_path"].decode("latin-1"), asked.elsewhere.as_reader(asked.call.caller)
        )
    except Unreachable as fault:
        raise home_region_down(fault) from fault
    if reply.status not in (200, 404):
        raise unavailable(f"The store of what is kept in {store.region} alone cannot say what it has.")
    return reply.status == 200


def _policy_in(body: bytes) -> object:
    try:
        raw = read_fields(body).get("region_policy")
        return None if raw is None else msgspec.json.decode(raw)
    except (Problem, msgspec.MsgspecError):
        return None  # whoever reads it says what is wrong


# --- batches -----------------------------------------------------------------------------
class _Envelope(msgspec.Struct):
    jobs: list[msgspec.Raw]


class _Policy(msgspec.Struct):
    region_policy: str | None = None


async def batch(asked: Asked) -> Response:
    """`POST /v1/jobs:batch`: split by policy, the results in the order of the jobs."""
    try:
        raws = msgspec.json.decode(asked.call.raw_body, type=_Envelope).jobs
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return await asked.here()
    parts: dict[int, list[int]] = {}
    homes: dict[int, LocalStore] = {}
    for i, raw in enumerate(raws):
        store = _home(asked, _policy_of(raw))
        number = 0 if store is None else store.number
        if store is not None:
            homes[number] = store
        parts.setdefault(number, []).append(i)
    if not homes:
        return await asked.here()
    results: list[Any] = [None] * len(raws)
    answers = await asyncio.gather(
        *(_part(asked, homes.get(n), [raws[i] for i in places]) for n, places in parts.items())
    )
    for places, found in zip(parts.values(), answers, strict=True):
        if isinstance(found, Response):
            return found
        for i, result in zip(places, found, strict=True):
            results[i] = result
    created = sum(1 for result in results if result["status"] == 201)
    failed = sum(1 for result in results if result["status"] >= 400)
    return answer({"results": results, "created": created, "failed": failed})


def _policy_of(raw: msgspec.Raw) -> str | None:
    try:
        return msgspec.json.decode(raw, type=_Policy).region_policy
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None


async def _part(asked: Asked, store: LocalStore | None, raws: list[msgspec.Raw]) -> Any:
    """The results of one store; a `Response` where it refuses all of them."""
    body = msgspec.json.encode({"jobs": raws})
    if store is None:
        return document_of(await asked.with_body(body))["results"]
    try:
        await asked.elsewhere.ready(asked.call.fence, store)
        reply = await asked.ask(store, body=body)
    except Unreachable as fault:
        refused = home_region_down(fault).document()
        return [{"status": 503, "problem": refused}] * len(raws)
    except Refused:
        return [{"status": 503, "problem": unavailable(_NOT_NOW).document()}] * len(raws)
    if reply.status == 200:
        return msgspec.json.decode(reply.body)["results"]
    if reply.status < 500:
        return response_of(reply)
    return [{"status": 503, "problem": unavailable(_NOT_NOW).document()}] * len(raws)
