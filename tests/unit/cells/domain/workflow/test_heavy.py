"""Values that are made elsewhere: the same as if they were made here, once they are there."""

from __future__ import annotations

from typing import Any

import pytest

from cells.domain.workflow.costs import OUTSIDE_LIST_LIMIT
from cells.domain.workflow.decide import decision
from cells.domain.workflow.events import Event, EventType
from cells.domain.workflow.execution import Execution
from cells.domain.workflow.expressions import Expression, ExpressionFault, Template
from cells.domain.workflow.folding import fold
from cells.domain.workflow.heavy import NotYet, Outcome, Work, make, value_of
from cells.domain.workflow.parsing import parse_definition

ITEMS = [{"sku": f"sku-{n}", "pieces": n % 7, "note": "n" * 40} for n in range(700)]
HEAVY = "input.items.filter(i, i.pieces > 3)"
TEXT = f"""
workflow: heavy
version: 1
steps:
  - id: both
    parallel:
      branches:
        - - id: picked
            activity: {{ task_queue: q, type: PICK }}
            input: {{ picked: "${{{HEAVY}}}", of: "${{input.n}}" }}
        - - id: other
            activity: {{ task_queue: q, type: OTHER }}
"""


def begun(given: Any) -> Execution:
    data = {"workflow_id": "w", "run_id": "wr_1", "definition": "heavy", "version": 1, "input": given}
    return fold([Event(seq=1, type=EventType.STARTED, at=0, data=data, size=100)])


def test_what_waits_for_a_value_keeps_up_nothing_beside_it() -> None:
    definition, x = parse_definition(TEXT), begun({"items": ITEMS, "n": 1})
    asked: list[Work] = []
    found = decision(definition, x, deadline_ms=1, evaluate=asked.append)  # type: ignore[arg-type]
    assert ([c.key for c in found.commands], found.pending) == (["both", "other"], True)
    here = decision(definition, x, deadline_ms=1).commands
    there = decision(definition, x, deadline_ms=1, evaluate=lambda work: make(work.payload)).commands
    assert there == here
    assert [c.key for c in there] == ["both", "picked", "other"]
    # It is asked for by what it is made of: again and by anybody, it is the same.
    decision(definition, begun({"n": 1, "items": ITEMS}), deadline_ms=1, evaluate=asked.append)  # type: ignore[arg-type]
    other = {"n": 2, "items": ITEMS}
    decision(definition, begun(other), deadline_ms=1, evaluate=asked.append)  # type: ignore[arg-type]
    assert len({work.digest for work in asked}) == 3


def test_a_value_that_cannot_be_made_fails_its_step() -> None:
    definition, x = parse_definition(TEXT), begun({"items": ITEMS, "n": 1})
    fault = Outcome(fault="takes more than 20 seconds to make")
    found = decision(definition, x, deadline_ms=1, evaluate=lambda _: fault)
    assert [c.type for c in found.commands] == ["PARALLEL_STARTED"]
    x = fold([Event(seq=2, type=EventType.PARALLEL_STARTED, at=0, data={"step": "both"}, size=1)], x)
    failed = decision(definition, x, deadline_ms=1, evaluate=lambda _: fault).commands
    assert failed[0].type == "STEP_FAILED"
    assert failed[0].data == {"step": "picked", "error": fault.fault}


def test_lists_that_are_too_long_here_are_walked_elsewhere() -> None:
    values = {"input": [n % 5 for n in range(4_000)]}
    long = Expression("input.all(n, n < 5)")
    with pytest.raises(ExpressionFault, match="longer than 1000"):
        value_of(long, values, None)
    with pytest.raises(NotYet):
        value_of(long, values, lambda _: None)
    assert value_of(long, values, lambda work: make(work.payload)) is True
    values = {"input": [1] * (OUTSIDE_LIST_LIMIT + 1)}
    with pytest.raises(ExpressionFault, match=f"longer than {OUTSIDE_LIST_LIMIT}"):
        value_of(long, values, lambda _: None)


def test_what_is_too_much_anywhere_is_not_even_asked_for() -> None:
    given = {"input": {"l": [{"a": "s" * 2_000}] * 1000, "s": "s" * 60_000}}
    for source in (f"input.l.map(x, [{', '.join('x' * 12)}])", "input.l.map(x, input.s)"):
        with pytest.raises(ExpressionFault, match="too much work"):
            value_of(Expression(source), given, lambda _: pytest.fail("asked for"))


def test_a_template_is_made_whole() -> None:
    template = Template({"picked": "${" + HEAVY + "}", "text": "of ${input.n}"})
    values = {"input": {"items": ITEMS, "n": 7}, "unused": "x"}
    asked: list[Work] = []
    with pytest.raises(NotYet):
        value_of(template, values, asked.append)  # type: ignore[arg-type]
    (work,) = asked
    assert b"unused" not in work.payload
    outcome = make(work.payload)
    assert outcome.value == template.render(values)
    assert outcome.size > 1_000
