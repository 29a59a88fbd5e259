"""Decisions, one kind of step after the other."""

from __future__ import annotations

from typing import Any

from cells.domain.workflow.events import EventType
from cells.domain.workflow.execution import Status, StepState
from tests.unit.cells.domain.workflow.play import DAY, Play

HEAD = "workflow: w\nversion: 1\nsteps:\n"


def play(steps: str, given: Any = None, more: str = "") -> Play:
    return Play(HEAD + steps + more, given)


def test_a_step_is_skipped_when_its_condition_is_false() -> None:
    w = play(
        """
  - {id: a, activity: {task_queue: q, type: A}, when: "${input.n > 3}"}
  - {id: b, activity: {task_queue: q, type: B}, input: {a: "${steps.a.result}", skip: "${steps.a.skipped}"}}
""",
        {"n": 3},
    )
    assert w.execution.steps["a"].state is StepState.SKIPPED
    assert w.execution.steps["b"].input == {"a": None, "skip": True}


def test_an_expression_that_comes_to_nothing_fails_the_workflow() -> None:
    w = play("  - {id: a, activity: {task_queue: q, type: A}, input: '${input.missing}'}\n", {})
    assert w.status is Status.COMPENSATED
    assert w.execution.failed_step == "a"
    assert "missing" in (w.execution.error or "")


def test_branches_run_beside_each_other_and_end_together() -> None:
    w = play("""
  - id: both
    parallel:
      branches:
        - [{id: a, activity: {task_queue: q, type: A}}, {id: b, activity: {task_queue: q, type: B}}]
        - [{id: c, activity: {task_queue: q, type: C}}]
  - {id: last, activity: {task_queue: q, type: L}, input: "${steps.both.result}"}
""")
    assert set(w.runs()) == {"a", "c"}
    w.succeed("c", "C")
    w.succeed("a", "A")
    assert set(w.runs()) == {"b"}
    w.succeed("b", "B")
    assert w.execution.steps["last"].input == ["B", "C"]


def test_the_first_failure_of_a_branch_undoes_all() -> None:
    w = play(
        """
  - id: both
    parallel:
      branches:
        - [{id: a, activity: {task_queue: q, type: A}, compensate_with: undo_a}]
        - [{id: c, activity: {task_queue: q, type: C}, compensate_with: undo_c}]
""",
        more="""
compensations:
  - {id: undo_a, activity: {task_queue: q, type: UA}}
  - {id: undo_c, activity: {task_queue: q, type: UC}}
""",
    )
    w.fail("a")
    # The other one is asked to stop, and is waited for.
    assert w.execution.steps["c"].cancel_sent
    assert set(w.runs()) == {"c"}
    w.fail("c", "cancelled", known=False)
    assert set(w.runs()) == {"undo_c"}
    w.succeed("undo_c")
    assert w.status is Status.COMPENSATED


def test_a_map_begins_so_many_at_once_and_sees_its_element() -> None:
    w = play(
        """
  - id: each
    map:
      over: ${input.items}
      as: item
      max_concurrency: 2
      steps:
        - {id: pick, activity: {task_queue: q, type: P}, input: "${item}", compensate_with: put_back}
        - {id: pack, activity: {task_queue: q, type: K}, input: {from: "${steps.pick.result}"}}
  - {id: last, activity: {task_queue: q, type: L}, input: "${steps.each.result}"}
""",
        {"items": [{"sku": s} for s in "abc"]},
        more="""
compensations:
  - {id: put_back, activity: {task_queue: q, type: B}, input: {sku: "${item.sku}"}}
""",
    )
    assert set(w.runs()) == {"pick[0]", "pick[1]"}
    assert w.execution.steps["pick[1]"].idempotency_key == "order-88213:wr_1:pick:1"
    w.succeed("pick[1]", "B")
    assert w.execution.steps["pack[1]"].input == {"from": "B"}
    w.succeed("pack[1]", 2)
    assert set(w.runs()) == {"pick[0]", "pick[2]"}
    w.succeed("pick[2]", "C")
    w.fail("pack[2]")
    w.succeed("pick[0]", "A")
    undone = []
    while w.runs():
        (step,) = w.runs()
        undone.append((step, w.execution.steps[step].input["sku"]))
        w.succeed(step)
    assert undone == [("put_back[2]", "c"), ("put_back[1]", "b"), ("put_back[0]", "a")]
    assert w.status is Status.COMPENSATED


def test_an_empty_map_has_ended() -> None:
    w = play("  - {id: m, map: {over: '${input}', as: i, steps: [{id: a, sleep: 1s}]}}\n", [])
    assert w.status is Status.COMPLETED
    assert w.execution.result == []


def test_sleeps_end_with_their_timers() -> None:
    w = play(
        "  - {id: a, sleep: 3d}\n  - {id: b, sleep_until: '${input.at}'}\n", {"at": "2026-01-01T00:00:00Z"}
    )
    w.wait(3 * DAY - 1)
    assert w.status is Status.RUNNING
    w.wait(1)
    assert w.status is Status.COMPLETED  # the second instant was past long ago


def test_a_wait_may_go_on_without_its_signal() -> None:
    w = play(
        "  - {id: a, wait_for_signal: {name: s, timeout: 1h}, on_timeout: continue}\n",
        more="output: ${steps.a.timed_out}\n",
    )
    w.wait(3_600_000)
    assert w.status is Status.COMPLETED
    assert w.execution.result is True


def test_a_wait_may_fail_with_nothing_undone() -> None:
    w = play(
        """
  - {id: a, activity: {task_queue: q, type: A}, compensate_with: u}
  - {id: b, wait_for_signal: {name: s, timeout: 1h}, on_timeout: fail}
""",
        more="compensations: [{id: u, activity: {task_queue: q, type: U}}]\n",
    )
    w.succeed("a")
    w.wait(3_600_000)
    assert w.status is Status.FAILED
    assert w.scheduled() == ["a"]


def test_signals_are_taken_one_by_one_in_their_order() -> None:
    w = play("  - {id: a, wait_for_signal: {name: s}}\n  - {id: b, wait_for_signal: {name: s}}\n")
    w.signal("s", "1", "first")
    assert w.status is Status.RUNNING
    w.signal("s", "2", "second")
    assert w.status is Status.COMPLETED
    assert [w.execution.steps[k].result for k in "ab"] == ["first", "second"]


def test_a_child_is_waited_for_or_not() -> None:
    w = play("""
  - {id: a, start_workflow: {definition: other, wait: false}}
  - {id: b, start_workflow: {definition: other, version: 2, input: {n: 1}}}
""")
    assert set(w.runs()) == {"b"}
    assert w.execution.steps["b"].child == "order-88213-wr_1-b"
    w.append(EventType.CHILD_COMPLETED, step="b", result=5)
    assert w.status is Status.COMPLETED
    assert w.execution.result == 5


def test_it_may_go_on_as_another_execution() -> None:
    w = play(
        "  - {id: a, sleep: 1s}\n  - {id: b, continue_as_new: {input: {n: '${input.n + 1}'}}}\n", {"n": 1}
    )
    w.wait(1000)
    assert w.status is Status.CONTINUED_AS_NEW
    assert w.history[-1].data["input"] == {"n": 2}
