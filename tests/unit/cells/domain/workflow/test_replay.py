"""Random definitions under random fates: what is decided depends on the history alone."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cells.domain.workflow.compatibility import DECISIONS, first_divergence
from cells.domain.workflow.decide import decide
from cells.domain.workflow.events import Event, EventType
from cells.domain.workflow.execution import Execution, Status
from cells.domain.workflow.folding import fold
from cells.domain.workflow.parsing import parse_definition
from tests.unit.cells.domain.workflow.play import DEADLINE_MS, ORDER, ORDER_INPUT, Play


@st.composite
def definitions(draw: st.DrawFn) -> dict[str, Any]:
    """The document of a definition with a few steps, groups and compensations."""
    counter = iter(range(100))
    compensations: list[dict[str, Any]] = []

    def step(depth: int) -> dict[str, Any]:
        name = f"s{next(counter)}"
        kinds = ["activity", "sleep", "wait", "skipped"] + (["parallel", "map"] if depth < 2 else [])
        match draw(st.sampled_from(kinds)):
            case "activity":
                made: dict[str, Any] = {"id": name, "activity": {"task_queue": "q", "type": name}}
                if draw(st.booleans()):
                    made["compensate_with"] = f"undo_{name}"
                    compensations.append({"id": f"undo_{name}", "activity": {"task_queue": "q", "type": "U"}})
                return made
            case "sleep":
                return {"id": name, "sleep": "1h"}
            case "wait":
                then = draw(st.sampled_from(["continue", "compensate", "fail"]))
                return {"id": name, "wait_for_signal": {"name": "s", "timeout": "1d"}, "on_timeout": then}
            case "skipped":
                return {"id": name, "sleep": "1s", "when": "${input.n > 5}"}
            case "parallel":
                return {"id": name, "parallel": {"branches": [sequence(depth + 1) for _ in range(2)]}}
        over = {"over": "${input.items}", "as": f"item_{name}", "max_concurrency": 2}
        return {"id": name, "map": {**over, "steps": sequence(depth + 1)}}

    def sequence(depth: int) -> list[dict[str, Any]]:
        return [step(depth) for _ in range(draw(st.integers(1, 3 if depth == 0 else 2)))]

    return {"workflow": "w", "version": 1, "steps": sequence(0), "compensations": compensations}


def fates(draw: st.DrawFn) -> Any:
    return draw(st.sampled_from([(True, True), (True, True), (True, True), (False, True), (False, False)]))


@st.composite
def plays(draw: st.DrawFn) -> Play:
    play = Play(yaml.safe_dump(draw(definitions())), {"n": draw(st.integers(0, 9)), "items": [1, 2, 3]})
    for _ in range(60):
        execution = play.execution
        if not execution.is_open:
            break
        runs = sorted(play.runs())
        at = execution.next_timer()
        choices = ["end"] * 3 * bool(runs) + ["time"] * (at is not None) + ["signal"]
        match draw(st.sampled_from(choices)):
            case "end":
                step = draw(st.sampled_from(runs))
                good, known = fates(draw)
                undoes = execution.steps[step].undoes is not None
                if good or undoes:
                    play.succeed(step, {"of": step})
                else:
                    play.fail(step, known=known)
            case "time":
                play.wait((at or 0) - play.now)
            case "signal":
                play.signal("s", f"sig-{len(play.history)}")
                if not runs and at is None:
                    break
    return play


def meaning(execution: Execution) -> Any:
    steps = {
        key: {name: getattr(record, name) for name in record.__slots__ if hasattr(record, name)}
        for key, record in execution.steps.items()
    }
    skip = ("steps", "open", "waiting")
    rest = {name: getattr(execution, name) for name in execution.__slots__ if name not in skip}
    return (
        rest,
        steps,
        sorted(execution.open),
        {k: [r.key for r in v] for k, v in execution.waiting.items() if v},
    )


@settings(max_examples=60, deadline=None)
@given(plays(), st.data())
def test_any_prefix_means_the_same_however_it_is_folded(play: Play, data: st.DataObject) -> None:
    end = data.draw(st.integers(1, len(play.history)))
    cut = data.draw(st.integers(0, end))
    whole = fold(play.history[:end])
    resumed = fold(play.history[cut:end], fold(play.history[:cut]))
    assert meaning(whole) == meaning(resumed)
    first = decide(play.definition, whole, deadline_ms=DEADLINE_MS)
    assert decide(play.definition, resumed, deadline_ms=DEADLINE_MS) == first
    assert decide(play.definition, whole, deadline_ms=DEADLINE_MS) == first  # deciding changes nothing


@settings(max_examples=60, deadline=None)
@given(plays())
def test_what_was_recorded_is_what_would_be_decided(play: Play) -> None:
    assert first_divergence(play.definition, play.history) is None


@settings(max_examples=60, deadline=None)
@given(plays())
def test_steps_are_scheduled_once_and_undone_in_reverse(play: Play) -> None:
    scheduled = play.scheduled()
    assert len(scheduled) == len(set(scheduled))
    assert len(play.keys()) == len(set(play.keys()))
    execution = play.execution
    undone = [r for r in execution.steps.values() if r.undoes is not None]
    forward = [execution.steps[r.undoes or ""].order for r in sorted(undone, key=lambda r: r.order)]
    assert forward == sorted(forward, reverse=True)
    if execution.status in (Status.COMPENSATED, Status.CANCELLED):
        needs = {s.id for s in play.definition.walk() if s.compensate_with}
        for record in execution.steps.values():
            if record.key.split("[")[0] in needs and record.may_have_happened:
                assert record.undone, record.key


def test_a_version_that_would_have_done_otherwise_is_named() -> None:
    play = Play(ORDER, ORDER_INPUT)
    play.succeed("charge_card")
    same = parse_definition(ORDER.replace("max_attempts: 8", "max_attempts: 9"))
    assert first_divergence(same, play.history) is None
    other = parse_definition(ORDER.replace("id: reserve_stock", "id: hold_stock"))
    found = first_divergence(other, play.history)
    assert found is not None
    assert (found.seq, found.step, found.expected) == (4, "reserve_stock", "ACTIVITY_SCHEDULED hold_stock")


def test_every_type_of_event_can_be_folded() -> None:
    from cells.domain.workflow.folding import _APPLY

    assert set(_APPLY) == set(EventType)
    assert set(EventType) >= DECISIONS
    started = Event(
        seq=1,
        type=EventType.STARTED,
        at=0,
        data={"workflow_id": "w", "run_id": "r", "definition": "d", "version": 1},
    )
    assert fold([started]).is_open
