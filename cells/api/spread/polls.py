"""Polls of pull workers: tasks of all stores."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Message

from cells.api.routing import Call, answer
from cells.api.spread.asked import Asked, document_of, response_of
from cells.observability.logs import logger
from cells.ports import Retryable
from cells.stores.link import Unreachable
from cells.stores.registry import LocalStore

log = logger(__name__)

#: A poll that waits does so here, and looks into the other stores this often (seconds).
SLICE_SECONDS = 1
#: A store that takes longer for one look counts as silent (seconds).
LOOK_SECONDS = 3.0
_JSON = {"Content-Type": "application/json"}
#: Looks that nobody waits for any more: what they find goes back.
_late: set[asyncio.Task[None]] = set()


async def poll(asked: Asked) -> Response:
    """Tasks of one store. Each poll of a queue begins at another one, so that no backlog hides another's. A
    store that is away has none."""
    stores = [store for store in await asked.used() if not asked.elsewhere.is_silent(store)]
    if not stores:
        return await asked.here()
    one = _Poll(asked, stores)
    try:
        return await one.found()
    finally:
        one.close()


@dataclass(frozen=True, kw_only=True)
class _Found:
    """Tasks that another store has handed out."""

    store: LocalStore
    tasks: Sequence[Any]
    response: Response


class _Poll:
    """One poll: a look everywhere, then a wait here and looks into the other stores beside it."""

    def __init__(self, asked: Asked, stores: Sequence[LocalStore]) -> None:
        self._asked, self._stores = asked, stores
        loop = asyncio.get_running_loop()
        self._loop, self._body = loop, asked.given["body"]
        self._until: float = loop.time() + self._body.wait_seconds
        self._gone = asyncio.ensure_future(asked.call.receive())
        self._enough: asyncio.Future[None] = loop.create_future()

    def close(self) -> None:
        """Nobody waits any more."""
        self._gone.cancel()
        if not self._enough.done():
            self._enough.set_result(None)

    async def found(self) -> Response:
        """Tasks of the first store that has any, or none when the time is over or the client has left."""
        found = await self._look_everywhere()
        if found is None and self._left() > 0 and not self._gone.done():
            found = await self._wait()
        return answer({"tasks": []}) if found is None else found

    async def _look_everywhere(self) -> Response | None:
        everybody = [None, *self._stores]
        call = self._asked.call
        first = self._asked.elsewhere.turn(call.tenant_id, self._asked.given["queue"]) % len(everybody)
        for store in everybody[first:] + everybody[:first]:
            if store is None:
                own = await self._own(0)
                if document_of(own)["tasks"]:
                    return own
            elif (other := await self._other(store)) is not None:
                return other.response
        return None

    async def _wait(self) -> Response:
        own = asyncio.ensure_future(self._own(self._left()))
        try:
            while True:
                await asyncio.wait({own}, timeout=SLICE_SECONDS)
                if own.done():
                    return await own
                look = asyncio.ensure_future(self._look_elsewhere())
                await asyncio.wait({own, look}, return_when=asyncio.FIRST_COMPLETED)
                if not look.done():
                    _leave(self._given_back_later(look))
                    return await own
                other = look.result()
                if other is not None:
                    self._enough.set_result(None)
                    # What the own store claimed at this very moment is the answer, else it went back.
                    await asyncio.wait({own})
                    if own.exception() is not None or not document_of(own.result())["tasks"]:
                        return other.response
                    await self._give_back(other)
                    return own.result()
        finally:
            own.cancel()

    async def _own(self, wait_seconds: float) -> Response:
        asked = self._asked
        call = Call(asked.call.scope, self._ended)
        call.services, call.tenant, call.span = asked.call.services, asked.call.tenant, asked.call.span
        body = self._body.model_copy(update={"wait_seconds": wait_seconds})
        return await asked.own(call, **(asked.given | {"body": body}))

    async def _ended(self) -> Message:
        """What ends the wait here: the client has left, or has tasks of another store."""
        ends: set[asyncio.Future[Any]] = {self._gone, self._enough}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        return {"type": "http.disconnect"}

    async def _look_elsewhere(self) -> _Found | None:
        for store in self._stores:
            if (found := await self._other(store)) is not None:
                return found
        return None

    async def _other(self, store: LocalStore) -> _Found | None:
        asked = self._asked
        if asked.elsewhere.is_silent(store):
            return None
        body = self._body.model_copy(update={"wait_seconds": 0}).model_dump(mode="json")
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                reply = await asked.ask(store, body=msgspec.json.encode(body))
        except TimeoutError:
            asked.elsewhere.fell_silent(store)
            return None
        except Unreachable:
            return None
        if reply.status != 200:
            return None  # what is wrong with the request, the own store says
        tasks = msgspec.json.decode(reply.body)["tasks"]
        if not tasks:
            return None
        found = _Found(store=store, tasks=tasks, response=response_of(reply))
        if self._gone.done():
            await self._give_back(found)
            return None
        return found

    async def _give_back(self, found: _Found) -> None:
        """Nobody hears of them: what was claimed just now goes back."""
        asked = self._asked
        try:
            for task in found.tasks:
                release = f"/v1/runs/{task['run_id']}:release"
                epoch = msgspec.json.encode({"epoch": task["epoch"]})
                await asked.elsewhere.send(
                    found.store, "POST", release, asked.call.caller, headers=_JSON, body=epoch
                )
        except (Unreachable, Retryable) as fault:
            # Their leases end, and the store's reaper takes them back.
            log.warning("undelivered tasks not given back", tasks=len(found.tasks), fault=str(fault)[:200])

    async def _given_back_later(self, look: asyncio.Future[_Found | None]) -> None:
        found = await look
        if found is not None:
            await self._give_back(found)

    def _left(self) -> float:
        return max(0.0, self._until - self._loop.time())


def _leave(work: Any) -> None:
    task = asyncio.ensure_future(work)
    _late.add(task)
    task.add_done_callback(_late.discard)
