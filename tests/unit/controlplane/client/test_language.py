"""What is written about definitions is what the engine takes: every kind, function and limit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cells.api.workflows import INPUT_LIMIT
from cells.domain.workflow import costs, events, expressions, parsing, steps
from cells.domain.workflow.parsing import DefinitionError, parse_definition
from cells.workflows import calculating
from controlplane.client.language import language, sample
from controlplane.console.definitions import FIRST

ROOT = Path(__file__).resolve().parents[4]
#: Enough around a kind of step that it can be read, with its parts filled in.
KINDS = {
    "activity: { target_id, path, method }": "activity: { target_id: t, path: /p, method: PUT }",
    "activity: { task_queue, type }": "activity: { task_queue: q, type: t }",
    "wait_for_signal: { name, timeout }": "wait_for_signal: { name: n, timeout: 3d }",
    "sleep: 3d": "sleep: 3d",
    "sleep_until: ${…}": "sleep_until: ${input.at}",
    "parallel: { branches: [[…], […]] }": (
        "parallel: { branches: [[{ id: x, sleep: 1s }], [{ id: y, sleep: 1s }]] }"
    ),
    "map: { over: ${…}, as: item, steps: […], max_concurrency: 10 }": (
        'map: { over: "${input.items}", as: item, steps: [{ id: x, sleep: 1s }], max_concurrency: 10 }'
    ),
    "start_workflow: { definition, version, input, wait }": (
        'start_workflow: { definition: d, version: 1, input: "${input}", wait: false }'
    ),
    "continue_as_new: { input }": 'continue_as_new: { input: "${input}" }',
}  # fmt: skip


def section(title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", language(), re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def test_each_kind_of_step_is_written_as_it_is_read() -> None:
    table = section("Steps").partition("\n| beside")[0]
    written = set(re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE))
    assert written == KINDS.keys()
    assert {kind.partition(":")[0] for kind in written} == set(steps._KINDS)
    for step in KINDS.values():
        parse_definition(f"workflow: w\nversion: 1\nsteps:\n  - id: s\n    {step}\n")


def test_what_stands_beside_a_kind_is_said() -> None:
    beside = section("Steps").partition("| beside")[2]
    said: dict[str, set[str]] = {}
    for field, kinds in re.findall(r"^\| `(\w+)` \| ([^|]+) \|", beside, re.MULTILINE):
        for kind in re.findall(r"`(\w+)`", kinds):
            said.setdefault(kind, set()).add(field)
    assert said == {kind: set(fields) for kind, fields in steps._OWN.items()}


def test_the_fields_at_the_top_are_all_there_are() -> None:
    said = re.findall(r"^\| `(\w+)` \|", section("The top of a definition"), re.MULTILINE)
    with pytest.raises(DefinitionError) as refused:
        parse_definition("nothing: 1")
    (known,) = re.findall(r"there are (.*?);", str(refused.value) + ";")
    assert set(said) == set(known.split(", "))


def test_functions_and_words() -> None:
    said = section("Expressions").partition("Functions:")[2]
    assert set(re.findall(r"`([\w.]+)`", said)) == expressions.FUNCTIONS | costs.COMPREHENSIONS


def test_limits_are_those_of_the_engine() -> None:
    said = section("Limits")
    for words in (
        f"{parsing.SOURCE_LIMIT // 1024} KiB, {parsing.STEP_LIMIT} steps, {steps._DEPTH_LIMIT} levels",
        f"{expressions.SOURCE_LIMIT:,} bytes, {expressions.TERM_LIMIT} terms",
        f"{expressions.NESTING_LIMIT} levels of brackets",
        f"{costs.LIST_LIMIT:,} elements",
        f"{costs.OUTSIDE_LIST_LIMIT:,} elements; what is more than {costs.LIST_LIMIT:,}",
        f"{calculating.CPU_SECONDS} seconds of processor time and {calculating.MEMORY_BYTES >> 30} GiB",
        f"{expressions.TEXT_LIMIT // 1024} KiB; {expressions.RESULT_LIMIT // 1024} KiB",
        f"| input of a start | {INPUT_LIMIT // 1024} KiB |",
        f"{steps.BRANCH_LIMIT} branches",
        f"{steps.DEFAULT_CONCURRENCY} if absent, {steps.CONCURRENCY_LIMIT} at most",
        f"{steps.ATTEMPTS_LIMIT:,}, or `unlimited`",
        f"{events.EVENT_LIMIT:,} events or {events.BYTE_LIMIT // 2**20} MiB",
    ):
        assert words in said, words
    retries = " ".join(section("Retries").split())
    left_out = steps.RETRY
    assert (
        f"{left_out.max_attempts} attempts, {left_out.initial_ms // 1000}s and {left_out.max_ms // 60_000}m"
        in retries
    )


def test_every_definition_that_is_shown_is_whole() -> None:
    shown = re.findall(r"```yaml\n(.*?)```", language(), re.DOTALL)
    assert shown == [sample()]
    readme = (ROOT / "README.md").read_text()
    assert re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL) == [sample()], "the README shows the same"
    for text in (sample(), FIRST):
        parse_definition(text)
