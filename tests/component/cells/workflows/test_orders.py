"""The order workflow over the store, with workers: what happens when each thing goes wrong."""

from __future__ import annotations

from cells.api.pulled import Outcome
from cells.domain.workflow.execution import Status
from tests.component.cells.workflows.harness import Flows

DAY = 86_400_000


async def begun(flows: Flows) -> None:
    await flows.register()
    _, created = await flows.start(given={"order_id": 88213, "amount_cents": 4599})
    assert created
    await flows.settle()


async def test_all_goes_well(flows: Flows) -> None:
    await begun(flows)
    charge = await flows.do("payments", result={"charge": "ch_1"})
    assert charge.claim.idempotency_key == "order-88213:charge_card"
    assert charge.claim.payload == b'{"order_id":88213,"amount_cents":4599}'
    assert (activity := charge.claim.definition.activity) is not None
    assert (activity.type, activity.workflow_id, activity.step) == ("CHARGE", "order-88213", "charge_card")
    await flows.do("inventory")
    waiting = await flows.row()
    assert (waiting.status, waiting.decide_at) == ("RUNNING", None)
    assert waiting.timer_at is not None
    signalled = await flows.signal(payload={"courier": "ACME"})
    assert signalled is not None
    assert signalled.status == "accepted"
    await flows.settle()
    await flows.do("shipping")
    row = await flows.row()
    assert (row.status, row.timer_at, row.closed_at is None) == ("COMPLETED", None, False)
    execution = await flows.execution()
    assert execution.steps["charge_card"].result == {"charge": "ch_1"}
    assert execution.signals["picked_up"]["payload"] == {"courier": "ACME"}
    assert await flows.sql(b"SELECT count(*) FROM workflow_inbox") == [(0,)]


async def test_a_failure_at_the_second_step_undoes_the_first(flows: Flows) -> None:
    await begun(flows)
    await flows.do("payments")
    await flows.do("inventory", Outcome.FAILED, error="sold out", retryable=False)
    refund = await flows.do("payments")
    assert refund.claim.idempotency_key == "order-88213:refund_card"
    assert (activity := refund.claim.definition.activity) is not None
    assert activity.forward_key == "order-88213:charge_card"
    row = await flows.row()
    assert (row.status, row.error) == ("COMPENSATED", "sold out")
    assert await flows.poll("inventory") == []


async def test_nobody_picks_it_up(flows: Flows) -> None:
    await begun(flows)
    await flows.do("payments")
    await flows.do("inventory")
    await flows.later(3 * DAY)
    await flows.do("inventory")
    await flows.do("payments")
    assert (await flows.row()).status == "COMPENSATED"
    late = await flows.signal()
    assert late is not None
    assert late.status == "late"
    await flows.settle()
    execution = await flows.execution()
    assert execution.late_signals == ["s-1"]
    assert execution.status is Status.COMPENSATED


async def test_a_refund_that_fails_past_the_deadline_needs_a_person(flows: Flows) -> None:
    await begun(flows)
    await flows.do("payments")
    await flows.do("inventory", Outcome.FAILED, error="sold out", retryable=False)
    (refund,) = await flows.poll("payments")
    assert await flows.finish(refund, Outcome.FAILED, error="provider is down")
    await flows.settle()
    assert (await flows.row()).status == "COMPENSATING"
    await flows.later(DAY)
    assert (await flows.row()).status == "COMPENSATION_STUCK"
    ((reason, state),) = await flows.sql(b"SELECT reason, state FROM dlq WHERE reason = 'COMPENSATION_STUCK'")
    assert (reason, state) == ("COMPENSATION_STUCK", "OPEN")
    types = await flows.sql(b"SELECT type FROM events ORDER BY seq")
    assert ("workflow.compensation_stuck",) in types
    await flows.tell("RESOLVE", action="close", note="refunded by hand", actor="user:1")
    await flows.settle()
    row = await flows.row()
    assert row.status == "FAILED"
    ((state,),) = await flows.sql(b"SELECT state FROM dlq WHERE reason = 'COMPENSATION_STUCK'")
    assert state == "PURGED"
    assert (await flows.history())[-1].data["note"] == "refunded by hand"


async def test_the_same_start_again_is_the_same_execution(flows: Flows) -> None:
    await flows.register()
    first, created = await flows.start(given={"n": 1})
    again, created_again = await flows.start(given={"n": 1})
    assert (created, created_again, again.run_id) == (True, False, first.run_id)


async def test_a_signal_counts_once(flows: Flows) -> None:
    await begun(flows)
    first, again = await flows.signal(), await flows.signal()
    assert first is not None
    assert again is not None
    assert (first.status, again.status) == ("accepted", "duplicate")
    await flows.settle()
    assert (await flows.told()).count("SIGNAL_RECEIVED") == 1


async def test_a_cancel_waits_for_what_is_under_way_and_undoes(flows: Flows) -> None:
    await begun(flows)
    (task,) = await flows.poll("payments")
    await flows.tell("CANCEL", actor="key:test")
    await flows.settle()
    assert (await flows.row()).status == "COMPENSATING"
    assert await flows.finish(task)
    await flows.settle()
    await flows.do("payments")
    assert (await flows.row()).status == "CANCELLED"


async def test_a_terminated_one_undoes_nothing(flows: Flows) -> None:
    await begun(flows)
    await flows.tell("TERMINATE", reason="a mistake", actor="key:test")
    await flows.settle()
    row = await flows.row()
    assert (row.status, row.error) == ("TERMINATED", "a mistake")
    assert await flows.poll("payments") == []
