"""Taking up what a lost region had: each entry once, in the transaction that carries it out."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Self

import msgspec

from cells.domain.ids import RunKey, run_id
from cells.domain.job import STRICT
from cells.ports import Conflict, Fence, TenantConfig
from cells.returns import Away, AwayPage, Outcome, Return, ReturnedEntry, ReturnedIntent
from cells.store.arrays import texts, uuids
from cells.store.base import StoreBase
from cells.store.database import Connection, fetch_all, fetch_one, fetch_row, run
from cells.store.journal import Entry, Journal

_encode = msgspec.json.Encoder().encode
_config = msgspec.json.Decoder(TenantConfig).decode
Rows = Sequence[Mapping[str, Any]]
_OF_WORKFLOWS = ("workflows", "workflow_events", "workflow_signals", "workflow_inbox", "runs")
_FIRST = (datetime(1970, 1, 1, tzinfo=UTC), 0)


class JudgedAlready(Conflict):
    """Another process has judged the entry."""


class _Taking(Journal):
    """A journal whose rows say, in the same transaction, that an entry was carried out."""

    def __init__(self, journal: Journal, intent: ReturnedIntent, outcome: Outcome) -> None:
        super().__init__()
        self._journal = journal
        self._intent = intent
        self._outcome = outcome

    async def append(self, connection: Connection, host_id: int, entry: Entry) -> None:
        await _settle(connection, self._intent, self._outcome, None)
        await self._journal.append(connection, host_id, entry)


class Returned(StoreBase):
    """Entries of a lost region's tail."""

    async def returned_waiting(self, *, limit: int) -> Sequence[ReturnedIntent]:
        """Intents that can be judged now, in order."""
        async with self._database.transaction() as connection:
            return [
                ReturnedIntent(
                    tenant_id=row[0],
                    region=row[1],
                    epoch=row[2],
                    host_id=row[3],
                    seq=row[4],
                    position=row[5],
                    at=row[6],
                    verb=row[7],
                    thing=row[8],
                    policy=row[9],
                    detail=bytes(row[10]),
                    tenant_state=row[11],
                    tenant_epoch=row[12],
                    config=_config(row[13]),
                    waited_for=row[14],
                )
                for row in await fetch_all(connection, "returned_waiting", {"limit": limit})
            ]

    def taking(self, intent: ReturnedIntent, outcome: Outcome = Outcome.APPLIED) -> Self:
        """This store, whose next write settles the entry with what it does: both or neither."""
        twin = copy.copy(self)
        twin._journal = _Taking(self._journal, intent, outcome)
        return twin

    async def settle_returned(
        self, intent: ReturnedIntent, outcome: Outcome, note: str | None, *, host_id: int
    ) -> None:
        """Judges an entry without doing anything. Nothing happens where it was judged."""
        async with self._database.transaction() as connection:
            try:
                await _settle(connection, intent, outcome, note)
            except JudgedAlready:
                return
            await self._journal.append(connection, host_id, Entry())

    async def returned_before(
        self, intent: ReturnedIntent, verbs: Sequence[str]
    ) -> tuple[str, Outcome | None, str | None] | None:
        """Verb, outcome (None: not judged yet) and note of the last intent with one of those verbs that its
        region had before this one on the same thing."""
        parameters = {**_place(intent), "verbs": texts(verbs)}
        async with self._database.transaction() as connection:
            row = await fetch_one(connection, "returned_before", parameters)
        return None if row is None else (row[0], None if row[1] is None else Outcome(row[1]), row[2])

    async def import_returned_job(
        self, fence: Fence, intent: ReturnedIntent, detail: Mapping[str, Rows], *, host_id: int
    ) -> Outcome:
        """A job with its versions and runs, as the region had them. `Conflict` where another has its key."""
        job = detail["jobs"][0]
        ids: dict[str, object] = {"tenant": fence.tenant_id, "job": job["job_id"]}
        async with self._write(fence, host_id) as (connection, entry):
            there, named = await fetch_row(connection, "returned_have_job", {**ids, "key": job["job_key"]})
            if named:
                raise Conflict(f"another job has the key {job['job_key']!r}")
            if there:
                await _settle(connection, intent, Outcome.ALREADY, None)
                return Outcome.ALREADY
            await _settle(connection, intent, Outcome.APPLIED, None)
            for table in ("jobs", "job_versions", "job_facets", "runs", "dlq"):
                await _put(connection, fence, table, detail.get(table, ()), unknown=_confirmed(intent))
            parent = {"tenant": fence.tenant_id, "parent": job["job_id"]}
            await run(connection, "returned_unknown_letters", parent)
            await _came_along(connection, intent, [intent.thing])
            entry.intent(fence.tenant_id, "job.create", uuid.UUID(job["job_id"]).hex, 0, job["version"])
            return Outcome.APPLIED

    async def import_confirmed_job(
        self, fence: Fence, intent: ReturnedIntent, detail: Mapping[str, Rows], *, host_id: int
    ) -> Outcome:
        """A STRICT job with its runs as the region had it, where it may have been confirmed to somebody: it
        takes the place of what is here, but for an edit of later and for runs that have ended here. Runs
        under way there are unknown."""
        job = detail["jobs"][0]
        ids: dict[str, object] = {"tenant": fence.tenant_id, "job": job["job_id"]}
        async with self._write(fence, host_id) as (connection, entry):
            here = await fetch_one(connection, "returned_lock_job", ids)
            await _settle(connection, intent, Outcome.APPLIED, None)
            if here is None or here[0] <= job["version"]:
                await run(connection, "returned_drop_job", ids)
                if here is not None and _is_ahead(here, job):
                    job = {**job, "state": here[1], "next_run_at": here[2], "due_at": here[3]}
                await _put(connection, fence, "jobs", [job])
                for table in ("job_versions", "job_facets"):
                    await _put(connection, fence, table, detail.get(table, ()))
            runs = detail.get("runs", ())
            if runs:
                dropped = {"tenant": fence.tenant_id, "rows": _encode(runs).decode()}
                await run(connection, "returned_drop_runs", dropped)
            await _put(connection, fence, "runs", runs, unknown=True)
            await _put(connection, fence, "dlq", detail.get("dlq", ()))
            parent = {"tenant": fence.tenant_id, "parent": job["job_id"]}
            await run(connection, "returned_unknown_letters", parent)
            await _came_along(connection, intent, [intent.thing])
            made = job["version"]
            entry.intent(fence.tenant_id, "job.confirmed", uuid.UUID(job["job_id"]).hex, made, made)
        return Outcome.APPLIED

    async def import_confirmed_workflow(
        self, fence: Fence, intent: ReturnedIntent, detail: Mapping[str, Rows], *, host_id: int
    ) -> Outcome:
        """A STRICT execution with its history as the region had it, where it may have been confirmed to
        somebody: it takes the place of what is here. `Conflict` where that has gone further. What
        was under way there is unknown."""
        workflow = detail["workflows"][0]
        ids: dict[str, object] = {"tenant": fence.tenant_id, "run": workflow["run_id"]}
        async with self._write(fence, host_id) as (connection, entry):
            here = await fetch_one(connection, "returned_lock_workflow", ids)
            if here is not None and here[0] > workflow["next_seq"]:
                raise Conflict(f"it has gone on to event {here[0] - 1} here")
            await _settle(connection, intent, Outcome.APPLIED, None)
            await run(connection, "returned_drop_workflow", ids)
            for table in _OF_WORKFLOWS:
                await _put(connection, fence, table, detail.get(table, ()), unknown=True)
            steps = {"tenant": fence.tenant_id, "parent": workflow["run_id"]}
            await run(connection, "returned_unknown_steps", steps)
            await _came_along(connection, intent, [intent.thing])
            made = workflow["next_seq"]
            entry.intent(fence.tenant_id, "workflow.confirmed", workflow["workflow_id"], made, made)
        self.workflows_due()
        return Outcome.APPLIED

    async def settle_unread(self, *, host_id: int) -> Sequence[str]:
        """Opens STRICT where all that it waited for is here and judged; the sites that were waited for."""
        async with self._database.transaction() as connection:
            settled = [row[0] for row in await fetch_all(connection, "cell_unread_settle")]
            if settled:
                await self._journal.append(connection, host_id, Entry())
        return settled

    async def import_returned_run(
        self, fence: Fence, intent: ReturnedIntent, detail: Mapping[str, Rows], *, host_id: int
    ) -> Outcome:
        """A run that somebody started by hand. `Conflict` where its job is not here any more."""
        given = detail["runs"][0]
        of_job = {"tenant": fence.tenant_id, "job": given["parent_id"], "ordinal": given["ordinal"]}
        async with self._write(fence, host_id) as (connection, entry):
            job = await fetch_one(connection, "returned_ordinals", of_job)
            if job is None or job[0] == "CANCELLED":
                raise Conflict("its job is not here any more")
            await _settle(connection, intent, Outcome.APPLIED, None)
            await _put(connection, fence, "runs", [given], unknown=_confirmed(intent))
            entry.intent(fence.tenant_id, intent.verb, intent.thing, given["version"], given["version"])
            return Outcome.APPLIED

    async def import_returned_workflow(
        self, fence: Fence, intent: ReturnedIntent, detail: Mapping[str, Rows], *, host_id: int
    ) -> Outcome:
        """An execution with its history, as the region had it. `Conflict` where its id is used here."""
        workflow = detail["workflows"][0]
        ids = {
            "tenant": fence.tenant_id,
            "run": workflow["run_id"],
            "workflow": workflow["workflow_id"],
        }
        async with self._write(fence, host_id) as (connection, entry):
            there, held = await fetch_row(connection, "returned_have_workflow", ids)
            if there:
                await _settle(connection, intent, Outcome.ALREADY, None)
                return Outcome.ALREADY
            if held and workflow["holds_id"]:
                raise Conflict(f"another workflow is open under the id {workflow['workflow_id']}")
            await _settle(connection, intent, Outcome.APPLIED, None)
            for table in _OF_WORKFLOWS:
                await _put(connection, fence, table, detail.get(table, ()), unknown=_confirmed(intent))
            steps = {"tenant": fence.tenant_id, "parent": workflow["run_id"]}
            await run(connection, "returned_unknown_steps", steps)
            run_hex = uuid.UUID(workflow["run_id"]).hex
            await _came_along(connection, intent, [intent.thing, f"workflow-run:{run_hex}"])
            entry.intent(fence.tenant_id, intent.verb, workflow["workflow_id"], 0, 1)
        self.workflows_due()
        return Outcome.APPLIED

    async def tell_returned(self, *, host_id: int) -> int:
        """Tells tenants whose entries are all judged; how many were told."""
        async with self._database.transaction() as connection:
            waiting = await fetch_all(connection, "returned_untold")
        for tenant_id, region, epoch, tenant_epoch in waiting:
            async with self._write(Fence(tenant_id=tenant_id, epoch=tenant_epoch), host_id) as (
                connection,
                entry,
            ):
                told = {"tenant": tenant_id, "region": region, "epoch": epoch}
                intents, effects, open_, first = await fetch_row(connection, "returned_tell", told)
                if first:
                    entry.event(
                        tenant_id, "region.returned", region, None,
                        intents=intents, effects=effects, not_applied=open_,
                    )  # fmt: skip
        return len(waiting)

    # --- of tenants who live elsewhere -----------------------------------------------------
    async def returned_away(self) -> Sequence[Away]:
        """Returns that other cells are to report, once all was judged."""
        async with self._database.transaction() as connection:
            return [
                Away(tenant_id=row[0], region=row[1], epoch=row[2], move_id=row[3], url=row[4])
                for row in await fetch_all(connection, "cell_returned_away")
            ]

    async def returned_page(self, away: Away, *, after: int, limit: int) -> AwayPage:
        """A part of one, behind the entry `after`."""
        parameters = {"tenant": away.tenant_id, "region": away.region, "after": after, "limit": limit}
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "returned_away_page", parameters)
        return AwayPage(
            tenant_id=away.tenant_id,
            region=away.region,
            epoch=away.epoch,
            rows=[msgspec.Raw(_encode(row[1])) for row in rows],
            until=rows[-1][0] if rows else after,
            last=len(rows) < limit,
        )

    async def returned_handed_on(self, away: Away, *, host_id: int) -> None:
        """Another cell reports it now."""
        parameters = {"tenant": away.tenant_id, "region": away.region, "epoch": away.epoch}
        async with self._database.transaction() as connection:
            await run(connection, "returned_handed_on", parameters)
            await self._journal.append(connection, host_id, Entry())

    async def take_report(self, page: AwayPage, *, host_id: int) -> None:
        """What another cell reports of a return to a tenant who has come from there. `NotOwner` where the
        tenant is not active here."""
        tenant = {"tenant": page.tenant_id}
        async with self._database.transaction() as connection:
            found = await fetch_one(connection, "returned_epoch_of", tenant)
        epoch = 0 if found is None else found[0]
        async with self._write(Fence(tenant_id=page.tenant_id, epoch=epoch), host_id) as (connection, _):
            rows = _encode(page.rows).decode()
            await run(connection, "returned_take_over", {**tenant, "rows": rows})
            if page.last:
                concerns = {**tenant, "region": page.region, "epoch": page.epoch}
                await run(connection, "returned_concerns", concerns)

    # --- reading -------------------------------------------------------------------------
    async def reconciliation(
        self, tenant_id: uuid.UUID, *, after: tuple[datetime, int] | None, limit: int
    ) -> Sequence[ReturnedEntry]:
        """A page of a tenant's report, oldest first."""
        at, entry = after or _FIRST
        parameters = {"tenant": tenant_id, "after_at": at, "after_entry": entry, "limit": limit}
        async with self._database.transaction() as connection:
            return [_entry(row) for row in await fetch_all(connection, "returned_list", parameters)]

    async def returns(self) -> Sequence[Return]:
        """What was handed in to this cell, the latest first."""
        async with self._database.transaction() as connection:
            return [
                Return(
                    region=row[0],
                    epoch=row[1],
                    began_at=row[2],
                    read_at=row[3],
                    transactions=row[4],
                    entries=row[5],
                    dropped=row[6],
                )
                for row in await fetch_all(connection, "cell_returns")
            ]

    async def returned_counts(self) -> Sequence[tuple[uuid.UUID, str, str, str, int]]:
        """How many entries stand how: (tenant, region, kind, outcome, number)."""
        async with self._database.transaction() as connection:
            rows = await fetch_all(connection, "cell_returned_counts")
            return [(row[0], row[1], row[2], row[3], row[4]) for row in rows]


def _place(intent: ReturnedIntent) -> dict[str, object]:
    return {
        "tenant": intent.tenant_id, "region": intent.region, "epoch": intent.epoch,
        "host": intent.host_id, "seq": intent.seq, "position": intent.position,
    }  # fmt: skip


async def _settle(connection: Connection, intent: ReturnedIntent, outcome: Outcome, note: str | None) -> None:
    settled = await fetch_one(
        connection,
        "returned_settle",
        {
            **_place(intent),
            "outcome": outcome.value,
            "note": None if note is None else note[:500],
        },
    )
    if settled is None:
        raise JudgedAlready("the entry was judged already")


async def _came_along(connection: Connection, intent: ReturnedIntent, things: Sequence[str]) -> None:
    parameters = {"tenant": intent.tenant_id, "things": list(things), "region": intent.region}
    await run(connection, "returned_came_along", parameters)


def _confirmed(intent: ReturnedIntent) -> bool:
    """Whether what it did may have been confirmed to somebody."""
    return intent.waited_for and intent.policy == STRICT


def _is_ahead(here: Sequence[Any], there: Mapping[str, Any]) -> bool:
    """Whether a job has come further here: an occurrence was claimed that nobody confirmed."""
    if there["state"] != "ACTIVE" or here[1] not in ("ACTIVE", "DONE"):
        return False
    return here[1] == "DONE" or bool(here[2] > datetime.fromisoformat(there["next_run_at"]))


async def _put(
    connection: Connection, fence: Fence, table: str, rows: Rows, *, unknown: bool = False
) -> None:
    if rows:
        queues = sorted({row["task_queue"] for row in rows if table == "runs" and row["task_queue"]})
        if queues:
            tenants = uuids([fence.tenant_id] * len(queues))
            await run(connection, "pull_know_queues", {"tenants": tenants, "queues": texts(queues)})
        parameters = {"tenant": fence.tenant_id, "rows": _encode(rows).decode(), "unknown": unknown}
        await run(connection, f"returned_put_{table}", parameters)


def _key_of(parent: uuid.UUID | None, at: datetime | None, ordinal: int | None) -> str | None:
    if parent is None or at is None:
        return None
    return run_id(RunKey(parent_id=parent, scheduled_for=at, ordinal=ordinal or 0))


def _entry(row: Sequence[Any]) -> ReturnedEntry:
    return ReturnedEntry(
        region=row[0],
        epoch=row[1],
        at=row[2],
        entry=row[3],
        kind=row[4],
        verb=row[5],
        thing=row[6],
        policy=row[7],
        key=row[8] or _key_of(*row[18:21]),
        run_epoch=row[9],
        state=row[10],
        detail=bytes(row[11]),
        note=row[12],
        settled_at=row[13],
        here_state=row[14],
        here_epoch=row[15],
        here_finished_at=row[16],
        outcome=Outcome(row[17]),
    )
