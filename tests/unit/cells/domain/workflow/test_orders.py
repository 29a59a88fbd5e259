"""The order workflow of the first customers, traced through what may happen to it."""

from __future__ import annotations

import pytest

from cells.domain.workflow.events import EventType
from cells.domain.workflow.execution import Status
from tests.unit.cells.domain.workflow.play import DAY, ORDER, ORDER_INPUT, Play


@pytest.fixture
def order() -> Play:
    return Play(ORDER, ORDER_INPUT)


def types(play: Play) -> list[str]:
    return [e.type for e in play.history]


def test_all_goes_well(order: Play) -> None:
    order.succeed("charge_card", {"charge": "ch_1"})
    order.succeed("reserve_stock")
    order.signal("picked_up", payload={"courier": "ACME"})
    order.succeed("ship", {"parcel": 7})
    assert order.status is Status.COMPLETED
    assert order.execution.result == {"parcel": 7}
    assert order.keys() == ["order-88213:charge_card", "order-88213:reserve_stock", "order-88213:ship"]
    assert order.execution.steps["wait_for_pickup"].result == {"courier": "ACME"}
    assert order.execution.steps["charge_card"].input == ORDER_INPUT


def test_a_failure_at_the_second_step_undoes_the_first(order: Play) -> None:
    order.succeed("charge_card", {"charge": "ch_1"})
    order.fail("reserve_stock", "out of stock")
    assert order.status is Status.COMPENSATING
    refund = order.execution.steps["refund_card"]
    assert refund.idempotency_key == "order-88213:refund_card"
    assert refund.input == {
        "input": ORDER_INPUT,
        "step": "charge_card",
        "result": {"charge": "ch_1"},
        "outcome": "COMPLETED",
        "idempotency_key": "order-88213:charge_card",
    }
    order.succeed("refund_card")
    assert order.status is Status.COMPENSATED
    # What failed for certain has nothing to undo.
    assert order.scheduled() == ["charge_card", "reserve_stock", "refund_card"]


def test_what_may_have_happened_is_undone_too_and_in_reverse(order: Play) -> None:
    order.succeed("charge_card")
    order.fail("reserve_stock", "timeout", known=False)
    assert order.execution.steps["release_stock"].input["outcome"] == "UNKNOWN"
    order.succeed("release_stock")
    order.succeed("refund_card")
    assert order.scheduled()[2:] == ["release_stock", "refund_card"]
    assert order.status is Status.COMPENSATED


def test_a_success_that_is_told_late_is_undone_again(order: Play) -> None:
    order.succeed("charge_card")
    order.fail("reserve_stock", "timeout", known=False)
    order.succeed("release_stock")
    order.succeed("refund_card")
    assert order.status is Status.COMPENSATED
    order.succeed("reserve_stock", {"late": True})
    assert order.status is Status.COMPENSATING
    assert order.keys()[-1] == "order-88213:release_stock:again-1"
    order.succeed("release_stock#2")
    assert order.status is Status.COMPENSATED


def test_nobody_picks_it_up(order: Play) -> None:
    order.succeed("charge_card")
    order.succeed("reserve_stock")
    order.wait(3 * DAY)
    assert order.execution.steps["wait_for_pickup"].timed_out
    order.succeed("release_stock")
    order.succeed("refund_card")
    assert order.status is Status.COMPENSATED
    assert order.execution.failed_step == "wait_for_pickup"
    order.signal("picked_up", "courier-evt-1")
    assert order.execution.late_signals == ["courier-evt-1"]
    assert order.status is Status.COMPENSATED


def test_the_signal_came_before_anybody_waited(order: Play) -> None:
    order.signal("picked_up", payload={"early": True})
    order.succeed("charge_card")
    order.succeed("reserve_stock")
    assert list(order.runs()) == ["ship"]
    assert order.execution.late_signals == []


def test_whichever_is_recorded_first_wins_once(order: Play) -> None:
    order.succeed("charge_card")
    order.succeed("reserve_stock")
    at = order.execution.next_timer()
    assert at is not None
    order.now = at
    order.signal("picked_up")
    order.append(EventType.TIMER_FIRED, step="wait_for_pickup", then="compensate")
    assert order.execution.ignored == [order.history[-1].seq]
    assert order.status is Status.RUNNING
    assert list(order.runs()) == ["ship"]


def test_a_refund_that_fails_past_the_deadline_needs_a_person(order: Play) -> None:
    order.succeed("charge_card")
    order.fail("reserve_stock")
    order.wait(DAY)
    assert order.status is Status.COMPENSATION_STUCK
    assert types(order).count(EventType.COMPENSATION_STUCK) == 1
    # It goes on trying all the while, and may yet succeed.
    order.succeed("refund_card")
    assert order.status is Status.COMPENSATED


def test_a_refund_that_failed_for_good_is_tried_again_under_its_key(order: Play) -> None:
    order.succeed("charge_card")
    order.fail("reserve_stock")
    order.fail("refund_card", "no such charge")
    assert order.status is Status.COMPENSATION_STUCK
    order.append(EventType.COMPENSATION_RESOLVED, action="retry", actor="ops")
    assert order.scheduled()[-1] == "refund_card#2"
    assert order.keys()[-1] == "order-88213:refund_card"
    order.fail("refund_card#2", "still not")
    assert order.status is Status.COMPENSATION_STUCK
    order.append(EventType.COMPENSATION_RESOLVED, action="close", note="refunded by hand", actor="ops")
    assert order.status is Status.FAILED
    assert order.history[-1].data["note"] == "refunded by hand"


def test_a_cancel_waits_for_what_is_under_way(order: Play) -> None:
    order.succeed("charge_card")
    order.append(EventType.CANCEL_REQUESTED, actor="key_1")
    assert types(order)[-2:] == [EventType.COMPENSATION_STARTED, EventType.CANCEL_SENT]
    assert order.scheduled() == ["charge_card", "reserve_stock"]
    order.succeed("reserve_stock")
    order.succeed("release_stock")
    order.succeed("refund_card")
    assert order.status is Status.CANCELLED


def test_later_executions_have_keys_of_their_own() -> None:
    order = Play(ORDER, ORDER_INPUT, run_id="wr_9", first=False)
    assert order.keys() == ["order-88213:wr_9:charge_card"]
