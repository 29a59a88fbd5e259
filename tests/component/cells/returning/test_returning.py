"""A region that was lost comes back: what only it had is done again once, or reported."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from cells.api import shapes
from cells.api.returned import entry_document
from cells.domain import ids
from cells.domain.job import JobState
from cells.domain.run import RunState
from cells.ownership.cell_row import CellRow
from cells.ownership.lease import Timing
from cells.returns import Outcome, ReturnedEntry
from cells.scheduling import CalendarContent
from cells.standby.folder import Folder
from controlplane.ownership.postgres import PostgresOwnershipStore
from controlplane.regions.returning import Returning
from controlplane.regions.settings import Settings
from tests.component.cells.returning.conftest import AFTER, Lost
from tests.component.cells.store.world import (
    TARGET,
    every,
    member_of,
    new_id,
    new_job,
    now,
    once,
    seconds_ago,
    secret,
    target,
)
from tests.component.cells.workflows.harness import Flows


async def test_what_was_decided_in_the_tail_is_done_again_once(lost: Lost, postgres_url: str) -> None:
    there = lost.world
    tenant = there.a.tenant_id
    later = (now() + timedelta(hours=2)).replace(microsecond=0)
    created, ended, held = new_job(later), new_job(seconds_ago(5), once(seconds_ago(5))), new_job(later)
    await there.create(created)
    claim = await there.claimed(ended)
    assert await there.complete(claim, RunState.SUCCEEDED)
    await there.create(held)
    await there.set_state(held, JobState.PAUSED)
    await there.store.create_target(there.a, target(tenant, "tgt_new"), [], host_id=there.host_id)

    async with lost.taken_over(postgres_url) as owner:
        first = lost.hand_in()
        assert first.dropped == 0
        assert lost.hand_in() == first  # a keeper that was killed begins again
        assert await owner.judge() == 5
        assert await owner.judge() == 0
        assert await owner.outcomes(tenant) == [
            ("job.create", "APPLIED"),
            ("job.create", "APPLIED"),
            ("CLAIMED", "IMPORTED"),
            ("FINISHED", "IMPORTED"),
            ("job.create", "APPLIED"),
            ("job.pause", "IMPORTED"),
            ("target.create", "APPLIED"),
        ]
        here = owner.world
        assert (await here.job(created)).next_run_at == later
        assert (await here.job(held)).state is JobState.PAUSED
        # What had ended there has ended: nobody runs it a second time.
        assert (await here.job(ended)).state is JobState.DONE
        run = await here.run(replace(claim))
        assert (run.state, run.epoch) == (RunState.SUCCEEDED, claim.epoch)
        assert await here.store.get_target(tenant, "tgt_new") is not None
        page = await here.store.events(tenant, after=(0, 0, 0), type_=None, limit=100)
        (told,) = [event for event in page.events if event.type == "region.returned"]
        assert told.subject == "a"
        assert told.data == b'{"intents":5,"effects":2,"not_applied":0}'


async def test_a_local_store_that_only_the_lost_region_used_is_used_again(
    lost: Lost, postgres_url: str
) -> None:
    there = lost.world
    await there.store.use_local_store(there.a, 1, host_id=there.host_id)
    async with lost.taken_over(postgres_url) as owner:
        lost.hand_in()
        await owner.judge()
        assert await owner.outcomes(there.a.tenant_id) == [("store.use", "APPLIED")]
        (used,) = await owner.world.store.local_stores_of(there.a.tenant_id)
        assert (used.store, used.told) == (1, False)


async def test_an_edit_holds_where_nobody_edited_since(lost: Lost, postgres_url: str) -> None:
    there = lost.world
    tenant = there.a.tenant_id
    assert await there.value("SELECT count(*) FROM jobs") == 0
    async with lost.taken_over(postgres_url) as owner:
        # Both know these jobs: they are written in both as if before the loss.
        here = owner.world
        at = (now() + timedelta(hours=1)).replace(microsecond=0)
        kept, changed = new_job(at, every(3600, at)), new_job(at, every(3600, at))
        for world in (there, here):
            await world.create(kept, changed)
        await there.sql.execute("DELETE FROM journal WHERE convert_from(body, 'UTF8') LIKE '%job.create%'")
        for job in (kept, changed):
            await there.store.edit_job(
                there.a,
                base_version=1,
                seen_next_run_at=job.next_run_at,
                job=replace(job, definition=every(3600, at, name="edited there")),
                host_id=there.host_id,
            )
        await here.store.edit_job(
            here.a,
            base_version=1,
            seen_next_run_at=changed.next_run_at,
            job=replace(changed, definition=every(3600, at, name="edited here")),
            host_id=here.host_id,
        )
        await there.set_state(kept, JobState.CANCELLED)
        lost.hand_in()
        await owner.judge()
        assert await owner.outcomes(tenant) == [
            ("job.edit", "APPLIED"),
            ("job.edit", "CHANGED_SINCE"),
            ("job.cancel", "APPLIED"),
        ]
        row = await here.job(kept)
        assert (row.version, row.definition.name, row.state) == (2, "edited there", JobState.CANCELLED)
        assert (await here.job(changed)).definition.name == "edited here"


async def test_strict_is_listed_and_effects_say_whether_they_were_repeated(
    lost: Lost, postgres_url: str
) -> None:
    there = lost.world
    tenant = there.a.tenant_id
    at = seconds_ago(30)
    async with lost.taken_over(postgres_url) as owner:
        here = owner.world
        both, only = new_job(at, once(at)), new_job(at, once(at))
        for world in (there, here):
            await world.create(both, only)
        await there.sql.execute("DELETE FROM journal WHERE convert_from(body, 'UTF8') LIKE '%job.create%'")
        for job in (both, only):
            (claim,) = (await there.claim(member_of(job, tenant))).claims
            assert await there.complete(claim, RunState.SUCCEEDED)
        strict = new_job(at + timedelta(days=1), once(at + timedelta(days=1), region_policy="STRICT"))
        await there.create(strict)
        (again,) = (await here.claim(member_of(both, tenant))).claims
        lost.hand_in()
        await owner.judge()
        assert await owner.outcomes(tenant) == [
            ("CLAIMED", "REPEATED"),
            ("FINISHED", "REPEATED"),
            ("CLAIMED", "NOT_REPEATED"),
            ("FINISHED", "NOT_REPEATED"),
            ("job.create", "UNCONFIRMED"),
        ]
        first = (await here.store.reconciliation(tenant, after=None, limit=1))[0]
        assert first.key == again.idempotency_key
        assert first.here_epoch == again.epoch
        assert await here.store.get_job(tenant, strict.job_id) is None


async def test_what_is_strict_comes_whole_where_a_vote_was_given_up(lost: Lost, postgres_url: str) -> None:
    there = lost.world
    tenant = there.a.tenant_id
    at = seconds_ago(30)
    async with lost.taken_over(postgres_url) as owner:
        here = owner.world
        ended, under_way = (new_job(at, once(at, region_policy="STRICT")) for _ in range(2))
        for world in (there, here):
            await world.create(ended, under_way)
        flows, behind = Flows(world=there), Flows(world=here)
        for each in (flows, behind):
            await each.register()
        order = replace(flows.new("order", "order_fulfillment"), region_policy="STRICT")
        for each in (flows, behind):
            await each.store.start_workflow(each.fence, order, host_id=each.world.host_id)
            await each.settle()
        await there.sql.execute("DELETE FROM journal")
        (did,) = (await there.claim(member_of(ended, tenant))).claims
        assert await there.complete(did, RunState.SUCCEEDED)
        (begun,) = (await there.claim(member_of(under_way, tenant))).claims
        made = new_job(at + timedelta(days=1), once(at + timedelta(days=1), region_policy="STRICT"))
        await there.create(made)
        assert (await flows.do("payments", result={"charge": "ch_1"})).claim.epoch
        # Here somebody is about to call it, and waits for that to be confirmed.
        await here.claim(member_of(ended, tenant))
        await here.sql.execute(
            "INSERT INTO unread_sites (region, epoch, lost) VALUES ('c', %s, 'a')", [AFTER]
        )
        unread = CellRow(owner.url).unread
        lost.hand_in()
        assert unread() == ["c"]
        await owner.judge()
        assert sorted(await owner.outcomes(tenant)) == [
            ("CLAIMED", "IMPORTED"),
            ("CLAIMED", "IMPORTED"),
            ("CLAIMED", "IMPORTED"),
            ("FINISHED", "IMPORTED"),
            ("FINISHED", "IMPORTED"),
            ("job.create", "APPLIED"),
            ("job.whole", "APPLIED"),
            ("job.whole", "APPLIED"),
            ("workflow.whole", "APPLIED"),
        ]
        told = [[event.type for event in await each.history("order")] for each in (flows, behind)]
        assert told[0] == told[1]
        run = await here.run(did)
        assert (run.state, run.epoch) == (RunState.SUCCEEDED, did.epoch)
        assert (await here.run(begun)).state is RunState.UNKNOWN
        assert (await here.job(ended)).state is JobState.DONE
        assert (await here.job(made)).state is JobState.ACTIVE
        assert unread() == []


async def test_cancels_and_calendars_are_done_again(lost: Lost, postgres_url: str) -> None:
    there, tenant = lost.world, lost.world.a.tenant_id
    async with lost.taken_over(postgres_url) as owner:
        here = owner.world
        flows, behind = Flows(world=there), Flows(world=here)
        await flows.register()
        await behind.register()
        running, known = flows.new("known", "order_fulfillment"), new_job(now() + timedelta(hours=1))
        at = now()
        for world in (there, here):
            await world.create(known, fence=world.a)
            await world.store.start_workflow(world.a, running, host_id=world.host_id)
            by_hand, _, _ = await world.store.trigger_job(
                world.a, job_id=known.job_id, now=at, payload=None, actor="key:test", traceparent=None,
                idempotency=None, host_id=world.host_id,
            )  # fmt: skip
        await there.sql.execute("DELETE FROM journal")

        await there.store.cancel_run(there.a, key=by_hand.key, actor="key:test", host_id=there.host_id)
        holidays = CalendarContent(dates=[("2026-12-25", "Christmas")])
        await there.store.put_calendar(
            there.a, calendar_id="holidays", name="Holidays", content=holidays, base_version=None,
            actor="key:test", host_id=there.host_id,
        )  # fmt: skip
        await there.store.tell_workflow(
            there.a, workflow_id="known", kind="CANCEL", data=b'{"reason":"no more"}', actor="key:test",
            host_id=there.host_id,
        )  # fmt: skip
        lost.hand_in()
        await owner.judge()
        assert [one for one in await owner.outcomes(tenant) if "." in one[0]] == [
            ("run.cancel", "APPLIED"),
            ("calendar.created", "APPLIED"),
            ("workflow.cancel", "APPLIED"),
        ]
        run = await here.store.get_run(tenant, by_hand.key)
        assert run is not None
        assert run.state is RunState.CANCELLED
        calendar = await here.store.get_calendar(tenant, "holidays")
        assert calendar is not None
        assert (calendar.name, calendar.version, calendar.content) == ("Holidays", 1, holidays)
        told = await here.value("SELECT convert_from(data, 'UTF8') FROM workflow_inbox WHERE kind = 'CANCEL'")
        assert '"no more"' in str(told)


async def test_workflows_signals_runs_by_hand_and_secrets_come_back(lost: Lost, postgres_url: str) -> None:
    there, tenant = lost.world, lost.world.a.tenant_id
    async with lost.taken_over(postgres_url) as owner:
        here = owner.world
        flows, behind = Flows(world=there), Flows(world=here)
        await flows.register()
        await behind.register()
        running = flows.new("known", "order_fulfillment")
        known = new_job(now() + timedelta(hours=1))
        for world in (there, here):
            await world.create(known, fence=world.a)
            await world.store.start_workflow(world.a, running, host_id=world.host_id)
        await there.sql.execute("DELETE FROM journal")

        await flows.start()
        await flows.settle()
        await flows.do("payments", result={"charge": "ch_1"})
        assert (await flows.signal("known", payload={"courier": "ACME"})) is not None
        by_hand, _, _ = await there.store.trigger_job(
            there.a, job_id=known.job_id, now=now(), payload=None, actor="key:test", traceparent=None,
            idempotency=None, host_id=there.host_id,
        )  # fmt: skip
        await there.store.rotate_secret(
            there.a, TARGET, secret(), overlap_seconds=60, host_id=there.host_id, base_version=1
        )
        lost.hand_in()
        await owner.judge()
        intents = [one for one in await owner.outcomes(tenant) if "." in one[0]]
        assert intents == [
            ("workflow.start", "APPLIED"),
            ("workflow.signal", "APPLIED"),
            ("run.trigger", "APPLIED"),
            ("target.rotate", "APPLIED"),
        ]
        # The order goes on where it was: its step waits under its own key.
        assert [event.type for event in await behind.history()] == [
            event.type for event in await flows.history()
        ]
        await behind.settle()
        waiting = await behind.poll("payments", count=5)
        keys = {task.claim.idempotency_key for task in waiting}
        assert keys == {"known:charge_card", "order-88213:charge_card"}
        again = await behind.signal("known", payload={"courier": "ACME"})
        assert again is not None
        assert again.status == "duplicate"
        run = await here.store.get_run(tenant, by_hand.key)
        assert run is not None
        assert run.state is RunState.DUE
        assert len(await here.store.target_secrets(tenant, TARGET)) == 2


async def test_entries_of_an_erased_tenant_are_dropped(lost: Lost, postgres_url: str) -> None:
    there = lost.world
    await there.create(new_job(now() + timedelta(hours=1)), fence=there.b)
    async with lost.taken_over(postgres_url) as owner:
        await owner.world.sql.execute("DELETE FROM tenants WHERE tenant_id = %s", [there.b.tenant_id])
        assert lost.hand_in(there.b.tenant_id).dropped == 1
        assert await owner.outcomes(there.b.tenant_id) == []


def test_entries_are_told_as_their_tenant_knows_things() -> None:
    at = datetime(2026, 11, 30, 6, tzinfo=UTC)
    job = new_id()
    entry = ReturnedEntry(
        region="a", epoch=4, at=at, entry=1, kind="CLAIMED", verb=None, thing=f"job:{job.hex}",
        policy="HOME_ASYNC", key="k", run_epoch=7, state=None, note=None, settled_at=None,
        detail=b'{"run":{"due_at":"2026-11-30T06:00:00+00:00"}}', here_state="RUNNING", here_epoch=9,
        here_finished_at=None, outcome=Outcome.REPEATED,
    )  # fmt: skip
    document = entry_document(entry)
    shapes.ReturnedEntry.model_validate_json(msgspec.json.encode(document))
    assert document["id"] == ids.encode(ids.JOB, job)
    assert document["times"]["due_at"] == "2026-11-30T06:00:00+00:00"


async def test_an_erased_tenant_is_dropped_and_the_tail_goes_with_it(
    lost: Lost, postgres_url: str, tmp_path: Path
) -> None:
    there, tenant = lost.world, lost.world.a.tenant_id
    await there.create(new_job(now() + timedelta(hours=2)))
    async with lost.taken_over(postgres_url) as owner:
        # Erased while the region was away; where the ownership row is still there nobody calls it gone.
        await owner.world.sql.execute("DELETE FROM tenants WHERE tenant_id = %s", [tenant])
        await owner.world.sql.execute(
            "INSERT INTO erased_tenants (tenant_id, erasure_id, erased_at) VALUES (%s, %s, now())",
            [tenant, new_id()],
        )
        settings = Settings(
            cell="cell-1", region="a", founder="a", databases={"a": lost.owner_url, "b": lost.owner_url},
            ownership_url="", valkey_url="", data=tmp_path / "data", binaries=tmp_path,
            bind_host="127.0.0.1", bind_port=0, timing=Timing(),
        )  # fmt: skip
        store = PostgresOwnershipStore(lost.url)
        folder = Folder(settings.data, site="a", binaries=tmp_path)
        handed, given_up = tmp_path / f"tail-{AFTER}.jsonl", tmp_path / "tail-3.jsonl"
        for file in (handed, given_up):
            file.write_text(tenant.hex)

        def follows() -> list[str]:
            """The files that are left when the site, a copy of the owner, looks for them."""
            Returning(settings, store, folder, lambda: 0.0).forget_tails()
            return sorted(file.name for file in tmp_path.glob("tail-*"))

        assert follows() == ["tail-3.jsonl", f"tail-{AFTER}.jsonl"]
        done = lost.hand_in()
        assert (done.entries, done.dropped) == (0, 1)
        assert await owner.world.value("SELECT count(*) FROM reconciliation") == 0
        assert follows() == ["tail-3.jsonl"]
        store.close()
