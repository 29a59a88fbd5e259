"""Signals of a workflow that was begun in the lost region fare as its start does."""

from __future__ import annotations

from tests.component.cells.returning.conftest import Lost
from tests.component.cells.workflows.harness import Flows


async def test_signals_of_what_was_not_taken_over_are_told_as_lost(lost: Lost, postgres_url: str) -> None:
    there, tenant = lost.world, lost.world.a.tenant_id
    async with lost.taken_over(postgres_url) as owner:
        flows, behind = Flows(world=there), Flows(world=owner.world)
        await flows.register()
        await behind.register()
        for name in ("taken", "child"):  # begun here, too, since
            await behind.start(name)
        await flows.start("unknown")
        await there.sql.execute("DELETE FROM journal")

        for name in ("taken", "child"):
            await flows.start(name)
        await there.sql.execute(
            """UPDATE workflows SET parent = '{"step": "s"}' WHERE workflow_id = 'child'"""
        )
        for name in ("taken", "child", "unknown"):
            for number in ("1", "2"):
                assert await flows.signal(name, signal_id=f"s-{number}", payload={"courier": number})
        lost.hand_in()
        await owner.judge()
        entries = await owner.world.store.reconciliation(tenant, after=None, limit=100)
        told = [(one.verb, one.thing, one.outcome.value) for one in entries if one.kind == "INTENT"]
        assert told == [
            ("workflow.start", "workflow:taken", "REFUSED"),
            ("workflow.start", "workflow:child", "NOT_APPLIED"),
            *[("workflow.signal", "workflow:taken", "REFUSED")] * 2,
            *[("workflow.signal", "workflow:child", "NOT_APPLIED")] * 2,
            *[("workflow.signal", "workflow:unknown", "REFUSED")] * 2,
        ]
        notes = {one.thing: one.note for one in entries if one.verb == "workflow.signal"}
        assert notes["workflow:taken"] == (
            "its workflow did not come along: another workflow is open under the id taken"
        )
        assert notes["workflow:unknown"] == "its workflow is not here"
        for name in ("taken", "child"):
            said = await behind.signal(name, signal_id="s-2", payload={"courier": "2"})
            assert said is not None
            assert said.status == "accepted", "nobody has said it here"
