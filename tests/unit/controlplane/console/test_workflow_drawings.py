"""A workflow's lines on the axis, a definition's graph, and what an act will touch: pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cells.domain.workflow.parsing import parse_definition
from controlplane.console.axis import between
from controlplane.console.cells_client import Fault
from controlplane.console.definitions import FIRST, by_line, next_version
from controlplane.console.workflow_graph import Graph, layout
from controlplane.console.workflow_lines import Lines, draw
from controlplane.console.workflow_points import points_of, standing_of
from controlplane.console.workflow_words import awaited, depths, said

AT = datetime(2026, 11, 30, 8, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
NESTED = """
workflow: nested
version: 1
steps:
  - id: both
    parallel:
      branches:
        - - { id: left, sleep: 5s }
          - { id: left_again, sleep: 5s }
        - - id: right
            activity: { task_queue: q, type: T }
            compensate_with: undo
  - id: each
    map:
      over: ${input.items}
      as: item
      steps:
        - { id: one, start_workflow: { definition: other, input: "${item}" } }
  - { id: ask, wait_for_signal: { name: go }, when: "${input.ask}" }
  - { id: again, continue_as_new: {} }
compensations:
  - { id: undo, activity: { target_id: tgt_echo, path: /undo } }
"""
DEFINITION = parse_definition(NESTED)


def at(seconds: float) -> str:
    return (AT + timedelta(seconds=seconds)).isoformat()


def step(name: str, begin: float, end: float | None, **more: Any) -> dict[str, Any]:
    return {
        "step": name, "kind": "activity", "state": "OPEN" if end is None else "COMPLETED",
        "started_at": at(begin), "ended_at": None if end is None else at(end), "idempotency_key": None,
        "compensates": None, "child_workflow_id": None, "fires_at": None, "error": None,
        "outcome_known": True, "run": None, **more,
    }  # fmt: skip


def run(state: str, waited: int | None, attempt: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "run_id": "wr_1:x", "state": state, "attempt": attempt, "waited_ms": waited, "ran_ms": None,
        "next_attempt_at": None, **more,
    }  # fmt: skip


def lines_of(steps: list[dict[str, Any]], *, now: float, closed: float | None = None, **more: Any) -> Lines:
    status = "RUNNING" if closed is None else "COMPLETED"
    flow = {"started_at": at(0), "closed_at": None if closed is None else at(closed), "status": status}
    return draw(flow, steps, now=AT + timedelta(seconds=now), zone=BERLIN, **more)


# --- lines -----------------------------------------------------------------------------------
def test_an_ended_one_fills_the_width_exactly() -> None:
    found = lines_of(
        [step("a", 0, 50, run=run("SUCCEEDED", 25_000)), step("b", 50, 100)], now=9000, closed=100
    )
    (waited, ran), (second,) = (line.pieces for line in found.lines)
    assert (waited.part, waited.x, waited.width) == ("queue", 0, 25)
    assert (ran.part, ran.look, ran.x, ran.width) == ("run", "good", 25, 25)
    assert (second.x, second.width) == (50, 50)
    assert not found.now_shown
    assert [line.took for line in found.lines] == ["50 s", "50 s"]


def test_what_is_open_ends_now_and_shows_its_timer() -> None:
    wait = step("w", 0, None, kind="wait", fires_at=at(150))
    retried = step("r", 10, None, run=run("RETRY_WAIT", 5000, attempt=2, next_attempt_at=at(120)))
    found = lines_of([wait, retried], now=100)
    waits, retries = found.lines
    assert found.now_shown
    assert (waits.word, waits.pieces[0].part) == ("Waits", "wait")
    assert waits.pieces[0].x + waits.pieces[0].width == pytest.approx(found.axis.now_x, abs=0.01)
    assert retries.pieces[0].part == "retries"
    assert waits.due is not None
    assert retries.due is not None
    assert found.axis.now_x < retries.due < waits.due
    # A timer that lies far ahead does not squeeze what has happened.
    (far,) = lines_of([step("w", 0, None, kind="wait", fires_at=at(9_000_000))], now=100).lines
    assert far.due is None
    assert far.due_at is not None


def test_undoing_unknown_skipped_and_ended_steps_look_different() -> None:
    steps = [
        step("u", 0, 10, state="FAILED", outcome_known=False, error="?"),
        step("s", 10, 10, kind="skipped", state="SKIPPED"),
        step("c", 20, 30, compensates="u"),
        step("o", 0, None),
    ]
    found = lines_of(steps, now=50, closed=40).lines
    assert [line.word for line in found] == ["Outcome unknown", "Skipped", "Done", "Ended with it"]
    assert [line.pieces[0].part for line in found] == ["run", "point", "undo", "run"]
    assert found[2].what == "undoes u"


def test_groups_span_what_is_inside_them() -> None:
    steps = [
        step("each", 0, None, kind="group", state="GROUP"),
        step("one[0]", 0, 10, kind="child", child_workflow_id="x"),
        step("one[1]", 5, 30, kind="child"),
        step("ask", 30, None, kind="wait"),
    ]
    found = lines_of(steps, now=100, around=depths(DEFINITION))
    assert [line.depth for line in found.lines] == [0, 1, 1, 0]
    assert found.lines[0].took == "30 s"
    assert found.lines[1].child == "x"


def test_the_shared_scales_leave_out_what_is_not_in_them() -> None:
    found = lines_of([step("a", 0, 10), step("b", 7000, None)], now=7200, scale="1h")
    assert found.axis.scale == "1h"
    assert (found.lines[0].pieces, found.before) == ((), 1)
    assert found.lines[1].pieces[0].x > 50


@pytest.mark.parametrize("seconds", [0, 0.4, 3, 45, 600, 86_400, 30 * 86_400, 3 * 366 * 86_400])
def test_any_span_has_a_few_ticks_within_it(seconds: float) -> None:
    axis = between(start=AT, end=AT + timedelta(seconds=seconds), now=AT, zone=BERLIN)
    assert len(axis.ticks) <= 12
    assert all(0 <= tick.x <= 100 for tick in axis.ticks)
    if seconds >= 0.4:
        assert axis.ticks


# --- graphs ----------------------------------------------------------------------------------
def overlaps(graph: Graph) -> list[tuple[str, str]]:
    boxes = [(n.id, n.x, n.y, n.x + n.width, n.y + n.height) for n in graph.nodes]
    return [
        (a[0], b[0])
        for i, a in enumerate(boxes)
        for b in boxes[i + 1 :]
        if a[1] < b[3] and b[1] < a[3] and a[2] < b[4] and b[2] < a[4]
    ]


def test_a_graph_has_every_step_once_and_nothing_lies_on_anything() -> None:
    graph = layout(DEFINITION, {"left": "good"})
    assert {node.id for node in graph.nodes} == {step.id for step in DEFINITION.walk()} | {"undo"}
    assert overlaps(graph) == []
    for node in graph.nodes:
        assert min(node.x, node.y) >= 0
        assert node.x + node.width <= graph.width
        assert node.y + node.height <= graph.height
    (frame,) = graph.frames
    inner = next(node for node in graph.nodes if node.id == "one")
    assert frame.x < inner.x
    assert inner.y + inner.height < frame.y + frame.height
    by_id = {node.id: node for node in graph.nodes}
    assert by_id["left"].look == "good"
    assert by_id["left"].y == by_id["right"].y
    assert [
        by_id[a].y < by_id[b].y for a, b in pairwise(("both", "left", "left_again", "each", "ask", "again"))
    ] == [True] * 5
    assert sum(edge.dashed for edge in graph.edges) == 1


def test_deep_and_wide_graphs_do_not_overlap_either() -> None:
    branch = "[{id: B%d, parallel: {branches: [[{id: X%d, sleep: 1s}], [{id: Y%d, sleep: 1s}]]}}]"
    branches = ", ".join(branch % (i, i, i) for i in range(6))
    graph = layout(
        parse_definition(f"workflow: w\nversion: 1\nsteps: [{{id: p, parallel: {{branches: [{branches}]}}}}]")
    )
    assert overlaps(graph) == []
    assert len(graph.nodes) == 19


def test_a_definition_in_words() -> None:
    both, each, ask, again = said(DEFINITION.steps)
    assert (both.what, each.what) == ("2 branches at once", "for each item in input.items, 10 at once")
    assert both.branches[1][0].undone_by == "undo"
    assert both.branches[1][0].what == "T on queue q, 3×, 30 s each"
    assert (ask.what, ask.when) == ("waits for go, however long", "input.ask")
    assert again.kind == "again"
    assert awaited(DEFINITION) == ["go"]


# --- what an act will touch ------------------------------------------------------------------
def test_a_cancel_names_what_is_undone_and_what_stays() -> None:
    steps = [
        step("left", 0, 1, kind="timer"),
        step("right", 0, 1),
        step("one[0]", 1, 2, kind="child"),
        step("one[1]", 1, None, kind="child"),
        step("ask", 2, None, kind="wait"),
    ]
    standing = standing_of({}, steps, DEFINITION)
    assert points_of("cancel", standing, {}) == [
        "Undone: 1 step (right), the latest first.",
        "Stays done, for nothing undoes it: 1 step (one[0]).",
        "Under way: 1 step (one[1]), asked to stop, and waited for. Given up: the waiting of ask.",
    ]
    assert points_of("signal", standing, {}) == ["It waits for go now."]
    many = standing_of({}, [step(f"one[{i}]", 0, 1, kind="child") for i in range(9)], DEFINITION)
    (_, stays, under) = points_of("cancel", many, {})
    assert stays.endswith("9 steps (one[0], one[1], one[2], one[3], one[4], one[5] and 3 more).")
    assert under == "Nothing is under way."


# --- texts -----------------------------------------------------------------------------------
def test_faults_go_to_their_lines() -> None:
    faults = [
        Fault(place="", detail="b", line=2),
        Fault(place="", detail="a"),
        Fault(place="", detail="c", line=9),
    ]
    assert by_line("one\ntwo", faults) == [
        {"number": 1, "text": "one", "faults": ["a"]},
        {"number": 2, "text": "two", "faults": ["b"]},
        {"number": 9, "text": "", "faults": ["c"]},
    ]


def test_the_next_version_counts_up_and_changes_nothing_else() -> None:
    assert next_version(FIRST, 1) == FIRST.replace("version: 1", "version: 2")
    inner = "version: 3\nsteps:\n  - start_workflow:\n      version: 3\n"
    assert next_version(inner, 3) == inner.replace("version: 3", "version: 4", 1)
    assert next_version('{"version": 3}', 3) == '{"version": 3}'
