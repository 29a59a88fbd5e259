"""The local stores of a cell as its API reaches them, and the snapshots they are told.

A store is told at once where a request to it needs the latest snapshot; whatever changes otherwise is told by
the role `stores`, again and again until the store has it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from cells.config import Settings
from cells.contract import Caller, Scope
from cells.domain import ids
from cells.observability.logs import logger
from cells.observability.metrics import Metrics
from cells.ports import Clock, Fence, Retryable, Terminal
from cells.records import Unconfirmed
from cells.stores.link import Link, Refused, Reply, Unreachable
from cells.stores.ports import LocalStores, Used
from cells.stores.registry import LocalStore, Registry

log = logger(__name__)

#: What is known of a tenant's stores is read again after so long (seconds).
KNOWN_SECONDS = 1.0
#: Between looks for snapshots to tell (seconds), and how many of them one look takes.
_LOOK_SECONDS, _LOOK = 1.0, 100
_KEPT = 50_000
#: A tenant whose snapshot a store refuses, or nobody can make, is left alone for so long (seconds).
PUT_OFF_SECONDS = 10.0
#: Polls pass a store that did not answer for so long (seconds).
SILENT_SECONDS = 5.0


class Host(Protocol):
    """This process's incarnation (`execution.host_agent.HostAgent`)."""

    @property
    def host_id(self) -> int: ...


def elsewhere_of(
    settings: Settings, store: LocalStores, host: Host, clock: Clock, metrics: Metrics
) -> Elsewhere | None:
    """The other stores of a process's cell; None where there are none, or for a process in front of one."""
    if not settings.stores:
        return None
    return Elsewhere(
        settings.stores,
        store,
        clock,
        metrics,
        cell=settings.cell_name,
        installation_key=settings.installation_keys[0],
        host_id=lambda: host.host_id,
    )


def lake_name(settings: Settings) -> str:
    """Whose the files of a store's history are: a local store's lie beside the cell's."""
    own = settings.stores.own
    return f"{settings.cell_name}.{own}" if own else settings.cell_name


class _Place(msgspec.Struct):
    epoch: int
    version: int


class Elsewhere:
    """Everything this process knows of stores that are not its own."""

    def __init__(
        self,
        registry: Registry,
        store: LocalStores,
        clock: Clock,
        metrics: Metrics,
        *,
        cell: str,
        installation_key: bytes,
        host_id: Callable[[], int],
    ) -> None:
        self.registry = registry
        self._store, self._clock, self._host_id = store, clock, host_id
        self._link = Link(installation_key=installation_key, clock=clock)
        self._caller = Caller(actor=f"cell:{cell}", scopes=(Scope.INTERNAL.value,))
        self._known: dict[uuid.UUID, tuple[float, Sequence[Used]]] = {}
        self._telling: dict[tuple[uuid.UUID, int], asyncio.Lock] = {}
        self._put_off: dict[tuple[uuid.UUID, int], float] = {}  # until when
        self._silent: dict[int, float] = {}  # since when a store does not answer
        self._turns: dict[tuple[uuid.UUID, str], int] = {}
        self._unreachable = metrics.counter(
            "cell_stores_unreachable_total", "Requests to a local store that nothing answered", ("region",)
        )
        self._told = metrics.counter(
            "cell_stores_snapshots_total", "Snapshots that a local store has confirmed", ("region",)
        )

    # --- requests ------------------------------------------------------------------------
    async def used_by(self, tenant_id: uuid.UUID, *, now_known: bool = False) -> Sequence[LocalStore]:
        """The stores that may hold rows of a tenant, as known at most a second ago, or just now. Costs
        nothing in a cell that has none."""
        if not self.registry:
            return ()
        now = self._clock.monotonic()
        found = self._known.get(tenant_id)
        if found is None or now_known or now - found[0] > KNOWN_SECONDS:
            if len(self._known) > _KEPT:
                self._known.clear()
            found = self._known[tenant_id] = (now, await self._store.local_stores_of(tenant_id))
        return [store for used in found[1] if (store := self.registry.get(used.store)) is not None]

    def is_silent(self, store: LocalStore) -> bool:
        """Whether a store did not answer a moment ago."""
        since = self._silent.get(store.number)
        return since is not None and self._clock.monotonic() - since < SILENT_SECONDS

    def fell_silent(self, store: LocalStore) -> None:
        """A store did not answer in time."""
        self._silent[store.number] = self._clock.monotonic()

    def turn(self, tenant_id: uuid.UUID, queue: str) -> int:
        """How many polls a tenant's queue has had here: each begins at another store."""
        if len(self._turns) > _KEPT:
            self._turns.clear()
        turn = self._turns[tenant_id, queue] = self._turns.get((tenant_id, queue), -1) + 1
        return turn

    async def ready(self, fence: Fence, store: LocalStore) -> None:
        """Return once a store knows all of a tenant that it has to, so that something may be made there.
        `Unreachable`, `Refused`, or what the cell's own store raises."""
        used = await self._standing(fence.tenant_id, store)
        if used is None:
            await self._store.use_local_store(fence, store.number, host_id=self._host_id())
            self._known.pop(fence.tenant_id, None)
            await self._known_in_another_region(store)
        if used is None or not used.told:
            await self.tell(fence.tenant_id, store)

    async def send(
        self,
        store: LocalStore,
        method: str,
        target: str,
        caller: Caller,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Reply:
        """What a store's API answers; `Unreachable`. A store that does not know the tenant (it was set up
        anew) is told first."""
        # The epoch of the cell says nothing there.
        speaking = msgspec.structs.replace(caller, epoch=0)
        for again in (True, False):
            try:
                reply = await self._link.send(store, method, target, speaking, headers=headers, body=body)
            except Unreachable:
                self._unreachable.labels(store.region).inc()
                self.fell_silent(store)
                raise
            self._silent.pop(store.number, None)
            tenant_id = ids.decode(ids.TENANT, caller.tenant_id)
            if reply.status != 421 or tenant_id is None:
                return reply
            if again:
                try:
                    await self.tell(tenant_id, store)
                except Refused as fault:
                    raise Unreachable(store, str(fault)) from fault
        raise Unreachable(store, "it does not know the tenant")

    def as_reader(self, caller: Caller) -> Caller:
        """The caller of a write, for what has to be read before it."""
        return msgspec.structs.replace(caller, scopes=(Scope.JOBS_READ.value, Scope.WORKFLOWS_READ.value))

    # --- snapshots -----------------------------------------------------------------------
    async def tell(self, tenant_id: uuid.UUID, store: LocalStore) -> None:
        """Return once a store has a tenant's present snapshot. `Unreachable`, `Refused`, `Retryable`."""
        lock = self._telling.setdefault((tenant_id, store.number), asyncio.Lock())
        async with lock:
            body = await self._store.snapshot_of(tenant_id, store.number)
            place = msgspec.json.decode(body, type=_Place)
            path = f"/internal/snapshots/{ids.encode(ids.TENANT, tenant_id)}"
            headers = {"Content-Type": "application/json"}
            reply = await self._link.send(store, "PUT", path, self._caller, headers=headers, body=body)
            if reply.status != 200:
                raise Refused(store, f"it answered a snapshot with {reply.status}: {reply.body[:200]!r}")
            await self._store.local_store_told(
                tenant_id, store.number, epoch=place.epoch, version=place.version
            )
            self._told.labels(store.region).inc()
        if not lock.locked():
            self._telling.pop((tenant_id, store.number), None)

    async def rows_of(self, tenant_id: uuid.UUID, store: LocalStore) -> dict[str, object]:
        """How many jobs and workflows of a tenant a store holds. `Unreachable`."""
        path = f"/internal/tenants/{ids.encode(ids.TENANT, tenant_id)}/stores"
        reply = await self._link.send(store, "GET", path, self._caller)
        if reply.status != 200:
            raise Unreachable(store, f"it answered {reply.status}")
        found: dict[str, object] = msgspec.json.decode(reply.body)
        return {"reachable": True, **found}

    async def told_by(
        self, store: LocalStore, method: str, target: str, body: object = None
    ) -> dict[str, Any] | None:
        """What a store answers to an internal question; None where it does not."""
        encoded = b"" if body is None else msgspec.json.encode(body)
        kind = {"Content-Type": "application/json"} if encoded else {}
        try:
            reply = await self._link.send(store, method, target, self._caller, headers=kind, body=encoded)
        except Unreachable:
            self._unreachable.labels(store.region).inc()
            return None
        return msgspec.json.decode(reply.body) if reply.status == 200 else None

    async def told_by_all(self, target: str) -> list[dict[str, Any] | None]:
        """What each store answers to an internal question; None where it does not."""
        return list(await asyncio.gather(*(self.told_by(store, "GET", target) for store in self.registry)))

    async def run(self, stop: asyncio.Event) -> None:
        """The role `stores`: tell what changed, until `stop`."""
        silent: set[int] = set()
        unasked = list(self.registry)
        while not stop.is_set():
            try:
                silent = await self._tell_all(silent)
                unasked = [store for store in unasked if not await self._asked_whom(store)]
            except (Retryable, Terminal) as fault:
                log.warning("cannot look for snapshots to tell", fault=str(fault)[:200])
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await stop.wait()
            except TimeoutError:
                continue

    async def _tell_all(self, silent: set[int]) -> set[int]:
        """Tell whatever is behind; the stores that did not answer. One of them is asked once a round. Who
        cannot be told keeps up nobody else."""
        failed: set[int] = set()
        now = self._clock.monotonic()
        self._put_off = {who: until for who, until in self._put_off.items() if until > now}
        for tenant_id, number in await self._store.local_stores_behind(limit=_LOOK, but_not=self._put_off):
            store = self.registry.get(number)
            if store is None or number in failed:
                continue
            try:
                await self.tell(tenant_id, store)
            except Refused as fault:
                self._put_off[tenant_id, number] = now + PUT_OFF_SECONDS
                log.warning("a snapshot is refused", tenant=str(tenant_id), fault=str(fault)[:300])
            except Retryable:
                # It may be the tenant, or the cell's own store: the next round begins with others.
                self._put_off[tenant_id, number] = now + PUT_OFF_SECONDS
                raise
            except Unreachable as fault:
                failed.add(number)
                (log.debug if number in silent else log.warning)(
                    "a local store is not told what changed", store=number, fault=str(fault)
                )
        return failed

    async def _asked_whom(self, store: LocalStore) -> bool:
        """Take down the tenants that a store knows and that the cell's own store does not know to use it:
        the owner before this one may have been lost with what it wrote last. False where the store does not
        answer."""
        path = "/internal/snapshots"
        after: str | None = ""
        while after is not None:
            page = await self.told_by(store, "GET", f"{path}?after={after}" if after else path)
            if page is None:
                return False
            named = [tenant for text in page["items"] if (tenant := ids.decode(ids.TENANT, text)) is not None]
            found = await self._store.local_store_found(store.number, named, host_id=self._host_id())
            if found:
                log.warning("tenants were not known to use a local store", store=store.number, tenants=found)
                self._known.clear()
            after = page["next"]
        return True

    async def close(self) -> None:
        """Let go of the connections."""
        await self._link.close()

    async def _known_in_another_region(self, store: LocalStore) -> None:
        """Another region has it, too, that a store is used: whoever takes over from here looks there. Where
        none answers there is nobody to take over, and it is taken down again when this one comes back."""
        try:
            await self._store.confirm()
        except Unconfirmed as fault:
            log.warning("no other region knows that a store is used", store=store.number, fault=str(fault))

    async def _standing(self, tenant_id: uuid.UUID, store: LocalStore) -> Used | None:
        used = await self._store.local_stores_of(tenant_id)
        return next((one for one in used if one.store == store.number), None)
