"""What one decision may do is bounded, however a definition is written; and cutting it changes nothing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cells.domain.workflow.commands import Command, record
from cells.domain.workflow.decide import DECISION_LIMIT, decide, decision
from cells.domain.workflow.events import BYTE_LIMIT, EVENT_LIMIT, EventType
from cells.domain.workflow.execution import Execution, Status
from cells.domain.workflow.expressions import RESULT_LIMIT, Expression, ExpressionFault, Template
from cells.domain.workflow.folding import fold
from tests.unit.cells.domain.workflow.play import DEADLINE_MS, Play

HEAD = "workflow: w\nversion: 1\nsteps:\n"
#: Maps inside of maps: n³ steps that begin at once.
NESTED = """
  - id: a
    map:
      over: ${input}
      as: x
      max_concurrency: 100
      steps:
        - id: b
          map:
            over: ${input}
            as: y
            max_concurrency: 100
            steps:
              - id: c
                map:
                  over: ${input}
                  as: z
                  max_concurrency: 100
                  steps: [{id: d, sleep: 1h, when: "${z != 1}"}]
"""


class Bounded(Play):
    """Each of its decisions is bounded by so many commands."""

    limit = DECISION_LIMIT

    def _record(self, command: Command) -> None:
        size = len(msgspec.json.encode(command.data))
        self._add(record(command, seq=len(self.history) + 1, at=self.now, size=size))

    def settle(self) -> None:
        more = True
        while more:
            commands, more, _ = decision(
                self.definition, self.execution, deadline_ms=DEADLINE_MS, limit=self.limit
            )
            assert len(commands) <= self.limit + 1
            for command in commands:
                self._record(command)
            more = more or any(c.type == EventType.COMPENSATION_STARTED for c in commands)


def test_a_decision_is_cut_and_goes_on_as_if_it_were_not() -> None:
    class Small(Bounded):
        limit = 7

    whole, cut = Bounded(HEAD + NESTED, list(range(12))), Small(HEAD + NESTED, list(range(12)))
    assert len(whole.history) == 1 + 1 + 12 + 144 + 1728
    assert [(e.type, e.data) for e in cut.history] == [(e.type, e.data) for e in whole.history]
    # Wherever a history ends, what follows in it is what is decided.
    for end in (1, 2, 3, 500, 501, 502, 999, 1500):
        (first, *_) = decide(whole.definition, fold(whole.history[:end]), deadline_ms=DEADLINE_MS)
        following = whole.history[end]
        assert (first.type, first.key) == (following.type, following.data.get("step")), end


def test_what_does_not_fit_into_a_history_ends_the_execution() -> None:
    w = Bounded(HEAD + NESTED, list(range(30)))
    assert (w.status, w.execution.error) == (Status.COMPENSATED, "the history reached its limit")
    assert len(w.history) < EVENT_LIMIT
    at = next(e.seq for e in w.history if e.type == EventType.COMPENSATION_STARTED)
    for end in (at - 2, at - 1):
        (first, *_) = decide(w.definition, fold(w.history[:end]), deadline_ms=DEADLINE_MS)
        assert first.type == w.history[end].type


def test_bytes_of_a_history_are_bounded_too() -> None:
    steps = """
  - id: each
    map:
      over: ${input.n}
      as: x
      max_concurrency: 100
      steps: [{id: a, activity: {task_queue: q, type: A}, input: "${input.text}"}]
"""
    w = Bounded(HEAD + steps, {"n": list(range(100)), "text": "x" * 250_000})
    assert w.execution.error == "the history reached its limit"
    assert BYTE_LIMIT * 0.8 < w.execution.bytes < BYTE_LIMIT


CHILD = "  - {id: a, start_workflow: {definition: other, wait: false}}\n"


@pytest.mark.parametrize(
    ("steps", "more", "ends"),
    [
        ("  - {id: b, continue_as_new: {}}\n", "", ["CONTINUED_AS_NEW"]),
        ("  - {id: b, sleep_until: '${input.none}'}\n", "", ["STEP_FAILED", "COMPENSATION_STARTED"]),
        ("", "output: ${input.none}\n", ["COMPENSATION_STARTED"]),
    ],
    ids=["goes_on_as_new", "cannot_go_on", "has_no_output"],
)
def test_what_was_walked_before_it_ended_is_recorded(steps: str, more: str, ends: list[str]) -> None:
    skipped = "  - {id: s, sleep: 1h, when: '${false}'}\n"
    w = Play(HEAD + skipped + CHILD + steps + more, {})
    types = [e.type for e in w.history]
    assert types[:3] == ["STARTED", "STEP_SKIPPED", "CHILD_STARTED"]
    assert types[3 : 3 + len(ends)] == ends


@pytest.mark.parametrize(
    ("source", "given"),
    [
        ("input.l.map(x, input.s)", {"l": list(range(1000)), "s": "s" * 20_000}),
        ("input.l.map(x, input.o)", {"l": list(range(300)), "o": [{"a": n} for n in range(500)]}),
        ("input.l.map(x, x)", {"l": [{"a": "s" * 2_000} for _ in range(1000)]}),
        ("(input.l + input.l).filter(x, true)", {"l": [{"a": "s" * 2_000} for _ in range(500)]}),
        (" + ".join(["input.l"] * 60), {"l": [{"a": n} for n in range(20_000)]}),
    ],
)
def test_an_expression_that_costs_too_much_is_not_run(source: str, given: Any) -> None:
    with pytest.raises(ExpressionFault, match="too much work"):
        Expression(source).evaluate({"input": given})


def test_what_people_write_is_not_too_much() -> None:
    items = [{"sku": f"sku-{n}", "pieces": n, "price": 1.5, "tags": ["a", "b"]} for n in range(500)]
    values = {"input": {"items": items, "order_id": 7, "note": "n" * 100_000}}
    made = Expression("input.items.map(i, {'sku': i.sku, 'n': i.pieces, 'of': input.order_id})").evaluate(
        values
    )
    assert made[499] == {"sku": "sku-499", "n": 499, "of": 7}
    assert Expression("input.items.exists(i, i.pieces > 498 && input.order_id == 7)").evaluate(values) is True
    assert len(Expression("input.items.filter(i, i.pieces < 10)").evaluate(values)) == 10
    assert Template({"all": "${input}"}).render(values)["all"]["order_id"] == 7


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("input.items.filter(i, i.qty > 3)", 600),
        ("input.items.map(i, {'sku': i.sku, 'qty': i.qty})", 1000),
        ("input.items.exists(i, i.sku == 'sku-999')", 1000),
    ],
)
def test_the_largest_input_can_be_worked_on(source: str, count: int) -> None:
    place = {"a": 1, "b": "y" * 40}
    items = [{"sku": f"sku-{n:03}", "qty": n % 7, "name": "x" * 120, "place": place} for n in range(count)]
    given = {"input": {"items": items}}
    assert 128 * 1024 < len(msgspec.json.encode(given)) < 256 * 1024
    assert Expression(source).evaluate(given)


def test_a_value_is_no_larger_than_what_may_be_recorded() -> None:
    given = {"input": {"text": "x" * 100_000}}
    with pytest.raises(ExpressionFault, match=f"more than {RESULT_LIMIT} bytes"):
        Template(["${input.text}"] * 10).render(given)
    with pytest.raises(ExpressionFault, match="bytes are more than"):
        Template("${input.text}").render({"input": {"text": "\x01" * 100_000}})


def test_a_map_over_what_is_too_large_fails_its_step() -> None:
    w = Play(
        HEAD + "  - {id: m, map: {over: '${[input, input]}', as: x, steps: [{id: a, sleep: 1h}]}}\n",
        "\x01" * 50_000,
    )
    assert (w.status, w.execution.failed_step) == (Status.COMPENSATED, "m")


@pytest.mark.parametrize("at", ["1e20", "-5.0", "'2300-01-01T00:00:00Z'"])
def test_an_instant_beyond_the_calendar_fails_its_step(at: str) -> None:
    w = Play(HEAD + f'  - {{id: s, sleep_until: "${{{at}}}"}}\n', {})
    assert w.execution.failed_step == "s"
    assert "between the years 1970 and 2200" in (w.execution.error or "")


def test_an_execution_that_was_never_begun_decides_nothing() -> None:
    w = Play(HEAD + "  - {id: s, sleep: 1h}\n")
    closed = fold(w.history, Execution())
    closed.status = Status.TERMINATED
    assert decision(w.definition, closed, deadline_ms=DEADLINE_MS) == ([], False, False)
