"""Claims of work that is polled for: it becomes READY, and its claim is its worker's."""

from __future__ import annotations

from cells.domain.ids import RunKey
from cells.domain.job import Delivery
from cells.ports import Claim
from cells.pulling import QueueId
from cells.store.arrays import (
    bools,
    from_datetime,
    from_ms,
    instants,
    int2s,
    int4s,
    labels,
    uuids,
)
from cells.store.claim_batch import ClaimBatch, is_guarded
from cells.store.database import Connection, run


async def offers(connection: Connection, batch: ClaimBatch) -> None:
    """Take what workers poll for out of the claims. No round trip."""
    if any(insert.claim.definition.target.task_queue for insert in batch.inserts):
        batch.offers = [i for i in batch.inserts if i.claim.definition.target.task_queue]
        batch.inserts = [i for i in batch.inserts if not i.claim.definition.target.task_queue]
    if any(claim.definition.target.task_queue for claim in batch.updates):
        batch.offered_again = [c for c in batch.updates if c.definition.target.task_queue]
        batch.updates = [c for c in batch.updates if not c.definition.target.task_queue]


async def write_offers(connection: Connection, batch: ClaimBatch) -> None:
    """Write them, inside the claim's pipeline."""
    if batch.offers:
        claims = [offer.claim for offer in batch.offers]
        await run(
            connection,
            "offer_insert_runs",
            {
                **_columns(claims),
                "shards": int2s([c.shard for c in claims]),
                "priorities": int2s([c.priority for c in claims]),
                "versions": int4s([c.version for c in claims]),
                "dues": instants([offer.due for offer in batch.offers]),
                "targets": labels([c.definition.target.label for c in claims]),
                "guards": bools([is_guarded(c) for c in claims]),
            },
        )
    if batch.offered_again:
        await run(connection, "offer_update_runs", _columns(batch.offered_again))
    queues = offered_queues(batch)
    if queues:
        await run(
            connection,
            "pull_know_queues",
            {
                "tenants": uuids([tenant for tenant, _ in queues]),
                "queues": labels([name for _, name in queues]),
            },
        )


def offered_queues(batch: ClaimBatch) -> list[QueueId]:
    """The queues that got tasks, each once."""
    return sorted({(c.tenant_id, c.definition.target.task_queue) for c in offered_claims(batch)})


def offered_claims(batch: ClaimBatch) -> list[Claim]:
    """What became READY."""
    return [*(offer.claim for offer in batch.offers), *batch.offered_again]


def is_at_most_once(claim: Claim) -> bool:
    """Whether nobody may try it again once it was begun."""
    return claim.definition.delivery is Delivery.AT_MOST_ONCE


def _columns(claims: list[Claim]) -> dict[str, object]:
    keys: list[RunKey] = [c.key for c in claims]
    return {
        "tenants": uuids([c.tenant_id for c in claims]),
        "parents": uuids([key.parent_id for key in keys]),
        "instants": instants([from_datetime(key.scheduled_for) for key in keys]),
        "ordinals": int4s([key.ordinal for key in keys]),
        "released": instants([from_ms(c.released_ms) if c.released_ms else None for c in claims]),
        "queues": labels([c.definition.target.task_queue for c in claims]),
        "once": bools([is_at_most_once(c) for c in claims]),
    }
