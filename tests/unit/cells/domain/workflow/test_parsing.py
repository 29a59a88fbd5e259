"""Definitions: the whole of them, or every fault with its line."""

from __future__ import annotations

import pytest

from cells.domain.workflow.definition import UNLIMITED, Activity, OnTimeout, WaitForSignal
from cells.domain.workflow.durations import parse_duration
from cells.domain.workflow.expressions import ExpressionFault, Template, compile_expression
from cells.domain.workflow.parsing import DefinitionError, parse_definition
from tests.unit.cells.domain.workflow.play import ORDER


def faults(text: str) -> list[tuple[int, str]]:
    with pytest.raises(DefinitionError) as caught:
        parse_definition(text)
    return [(f.line, f.detail) for f in caught.value.faults]


def test_the_order_workflow_is_understood() -> None:
    definition = parse_definition(ORDER)
    assert (definition.workflow, definition.version) == ("order_fulfillment", 7)
    assert [s.id for s in definition.steps] == ["charge_card", "reserve_stock", "wait_for_pickup", "ship"]
    wait = definition.steps[2].do
    assert isinstance(wait, WaitForSignal)
    assert (wait.timeout_ms, wait.on_timeout) == (3 * 86_400_000, OnTimeout.COMPENSATE)
    refund = definition.compensations["refund_card"].do
    assert isinstance(refund, Activity)
    assert (refund.retry.max_attempts, refund.retry.max_ms) == (UNLIMITED, 3_600_000)


def test_words_that_yaml_takes_for_truth_are_told_so() -> None:
    assert faults("workflow: x\nversion: 1\nsteps:\n  - {id: no, sleep: 1s}\n") == [
        (4, "is to be a text: `no` is read as false where it is not quoted")
    ]


def test_every_fault_is_told_with_its_line() -> None:
    text = """workflow: x
version: 0
colour: red
steps:
  - id: a
    activity: {task_queue: q, type: A}
    compensate_with: nope
    timeout: 3x
  - id: a
    sleep: 3d
    when: ${steps.b.result > nosuch(1)}
  - id: b
    map: {over: "${input.items}", as: item, steps: [{id: c, sleep_until: "${item.x} ${steps.zz.result}"}]}
  - id: both
    parallel: {branches: [[{id: r, sleep: 1s}], [{id: t, sleep: 1s, when: "${steps.r.result == 1}"}]]}
compensations:
  - {id: idle, activity: {task_queue: q, type: I}}
"""
    assert faults(text) == [
        (2, "is to be a whole number from 1 to 2147483647"),
        (3, ("unknown field `colour`; there are steps, workflow, version, region_policy, compensations, "
            "compensation_deadline, output, description")),
        (5, "there is no compensation `nope`"),
        (8, "'3x' is no duration; write 30s, 5m, 12h or 3d"),
        (9, "the id `a` is that of line 5, too"),
        (11, "bad expression: unknown function nosuch"),
        (13, "`steps.zz.result` reads `zz`; there is no such step"),
        (15, "`steps.r.result == 1` reads `r`, which need not have ended by then"),
        (17, "no step is undone by the compensation `idle`"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("", "the text is empty"),
        ("a: [", "expected the node content, but found '<stream end>'"),
        ("[]", "is to be an object"),
        ("workflow: &a x\nversion: 1\nsteps: [*a]", "aliases (*a) are not accepted"),
        ("workflow: x\nversion: 1\nsteps: []", "is an empty list"),
        ("workflow: x\nversion: 1\nsteps: [{id: a, sleep: 1s, wait_for_signal: {name: s}}]",
         "is to do one thing, and has wait_for_signal, sleep"),
        ("workflow: x\nversion: 1\nsteps: [{id: a, sleep: 1s, retry: {max_attempts: 2}}]",
         "`retry` does not go with `sleep`"),
        ("workflow: x\nversion: 1\nsteps: [{id: a, continue_as_new: {}}, {id: b, sleep: 1s}]",
         "`a` ends the execution before this step"),
    ],
)  # fmt: skip
def test_what_is_not_accepted(text: str, detail: str) -> None:
    assert detail in [d for _, d in faults(text)]


def test_a_deep_text_is_refused_and_does_no_harm() -> None:
    assert faults("[" * 20_000)


@pytest.mark.parametrize(
    ("text", "ms"), [("30s", 30_000), ("5m", 300_000), ("3d", 259_200_000), ("1h30m", 5_400_000), (5, 5000)]
)
def test_durations(text: object, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize("text", ["", "s", "5", "-1s", "0s", "1s1m", "1h1h", True, None, 1.5, "99999w"])
def test_no_durations(text: object) -> None:
    with pytest.raises(ValueError):
        parse_duration(text)


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ("1 +", "Syntax"), ("", "empty"), ("a" * 3000, "longer"), ("(" * 30 + "1" + ")" * 30, "nest"),
        ("+".join(["1"] * 400), "terms"), ("lists.range(1000000000)", "unknown function"),
        ("input.a.map(i, input.b.map(j, i * j))", "more than one"), ("steps['a'].result", "by name"),
        ("now()", "unknown function"),
    ],
)  # fmt: skip
def test_expressions_that_are_not_accepted(source: str, word: str) -> None:
    with pytest.raises(ExpressionFault) as caught:
        compile_expression(source)
    assert word.lower() in str(caught.value).lower() or word == "Syntax"


def test_what_comes_to_nothing_says_why() -> None:
    for source, values in [
        ("input.x", {"input": {}}),
        ("1 / input", {"input": 0}),
        ("input + 1.5", {"input": 1}),
    ]:
        with pytest.raises(ExpressionFault, match="input"):
            compile_expression(source).evaluate(values)
    with pytest.raises(ExpressionFault, match="longer than 1000"):
        compile_expression("input.map(i, i)").evaluate({"input": [1] * 1001})


def test_templates() -> None:
    template = Template(
        {"n": "${input.n}", "text": "no ${input.n} of $${x}", "list": ["${input.l}", 1], "s": "plain"}
    )
    assert template.render({"input": {"n": 3, "l": [1, {"a": None}]}}) == {
        "n": 3,
        "text": "no 3 of ${x}",
        "list": [[1, {"a": None}], 1],
        "s": "plain",
    }
    # A brace inside a text of the expression does not end it.
    assert Template("${input + '}'}").render({"input": "a"}) == "a}"
