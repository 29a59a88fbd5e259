"""One cell's part in moves: which verb does what, and what follows for the queue."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from cells.contract import MoveOrder, MoveSide, MoveVerb
from cells.observability.logs import logger
from cells.ports import Clock, Completion, Conflict, Queue, Retryable
from cells.returns import AwayPage
from cells.store.postgres import PostgresStore
from cells.store.transfer import TransferStore
from cells.transfer import destination, source
from cells.transfer.steps import Step, tenant_of
from cells.transfer_ports import Answer

log = logger(__name__)


class TransferService:
    """`transfer_ports.Transfers` on PostgreSQL."""

    def __init__(
        self,
        store: PostgresStore,
        transfers: TransferStore,
        queue: Queue,
        clock: Clock,
        *,
        installation_key: bytes,
        host_id: Callable[[], int],
    ) -> None:
        self._store = store
        self._transfers = transfers
        self._queue = queue
        self._clock = clock
        self._key = installation_key
        self._host_id = host_id

    async def act(self, move_id: uuid.UUID, side: MoveSide, verb: MoveVerb, order: MoveOrder) -> Answer:
        """See `transfer_ports.Transfers.act`."""
        tenant = tenant_of(order)
        async with self._transfers.session() as connection:
            step = Step(
                store=self._transfers,
                connection=connection,
                side=side,
                tenant=tenant,
                move=move_id,
                order=order,
            )
            if side is MoveSide.SOURCE:
                answer = await self._source(step, verb)
            else:
                answer = await self._destination(step, verb)
        log.info("move", move=str(move_id), side=side.value, verb=verb.value, tenant=order.tenant_id)
        return answer

    async def _source(self, step: Step, verb: MoveVerb) -> Answer:
        match verb:
            case MoveVerb.PUBLISH:
                return await source.publish(step, self._key)
            case MoveVerb.BARRIER:
                return await source.barrier(step)
            case MoveVerb.SEAL:
                return await source.seal(step, self._store.fold_stats)
            case MoveVerb.DEPART:
                return await source.depart(step)
            case MoveVerb.CLEAN:
                return await source.clean(step)
            case MoveVerb.PROGRESS:
                return await source.progress(step)
            case MoveVerb.ABORT:
                answer = await source.abort(step)
                await self._take_in(step, None)
                return answer
        raise Conflict(f"{verb} is not asked of the source")

    async def _destination(self, step: Step, verb: MoveVerb) -> Answer:
        match verb:
            case MoveVerb.PREPARE:
                return await destination.prepare(step)
            case MoveVerb.SUBSCRIBE:
                return await destination.subscribe(step, self._key)
            case MoveVerb.VERIFY:
                return await destination.verify(step, self._key)
            case MoveVerb.TAIL:
                return await destination.tail(step, self._key)
            case MoveVerb.ACTIVATE:
                answer = await destination.activate(step)
                await self._take_in(step, None)
                return answer
            case MoveVerb.LOAD:
                return await self._load(step)
            case MoveVerb.RELEASE:
                return await destination.release(step)
            case MoveVerb.PROGRESS:
                return await destination.progress(step)
            case MoveVerb.ABORT:
                return await destination.abort(step)
        raise Conflict(f"{verb} is not asked of the destination")

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)

    async def _take_in(self, step: Step, since: datetime | None) -> None:
        """What is due now or in a moment goes into the queue; whoever waits for work is woken. What fails
        here the sweeps make good."""
        try:
            await self._queue.add(await destination.timers(step, since, self._now() + destination.AT_ONCE))
            queues = await self._transfers.rows(step.connection, "transfer_queues", tenant=step.tenant)
            if queues:
                await self._queue.announce([(step.tenant, name) for (name,) in queues])
        except Retryable as fault:
            log.warning("the queue was not told of a tenant's timers", fault=str(fault)[:200])
        self._store.workflows_due()

    async def _load(self, step: Step) -> Answer:
        """The timers of the coming hours, the nearest first."""
        loaded = 0
        for since, until in destination.spans(self._now()):
            members = await destination.timers(step, since, until)
            await self._queue.add(members)
            loaded += len(members)
        return {"timers": loaded}

    async def take_report(self, move_id: uuid.UUID, sender: str, page: AwayPage) -> None:
        """See `transfer_ports.Transfers.take_report`."""
        async with self._transfers.session() as connection:
            row = await self._transfers.get(connection, page.tenant_id, move_id, MoveSide.DESTINATION)
        if row is None or row.peer != sender:
            raise Conflict(f"no tenant came here from {sender} with this move")
        await self._store.take_report(page, host_id=self._host_id())

    async def take_over(
        self, move_id: uuid.UUID, sender: str, completions: Sequence[Completion]
    ) -> Sequence[bool]:
        """See `transfer_ports.Transfers.take_over`."""
        tenants = {completion.tenant_id for completion in completions}
        async with self._transfers.session() as connection:
            for tenant in tenants:
                row = await self._transfers.get(connection, tenant, move_id, MoveSide.DESTINATION)
                if row is None or row.peer != sender:
                    raise Conflict(f"no tenant came here from {sender} with this move")
                if row.state not in ("ACTIVE", "DONE"):
                    raise Retryable("the tenant is not at home here yet")
        done = await self._store.complete(completions, host_id=self._host_id())
        if done.retries:
            await self._queue.add(done.retries)
        return done.applied
