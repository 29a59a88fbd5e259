"""From a text (YAML or JSON) to a definition, or to every fault in it with its line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import yaml

from cells.domain.workflow.definition import Definition, Step
from cells.domain.workflow.reading import Fault, Faults, Reader
from cells.domain.workflow.scoping import check_scopes
from cells.domain.workflow.steps import read_compensations, read_steps

#: Bytes of a definition's text.
SOURCE_LIMIT = 256 * 1024
#: Steps of one definition, compensations included.
STEP_LIMIT = 500
#: How deep lists and objects may nest.
NESTING_LIMIT = 64
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
POLICIES = ("HOME_ASYNC", "STRICT", "SINGLE_REGION")


class DefinitionError(ValueError):
    """A definition that is not accepted: `faults` has all of them."""

    def __init__(self, faults: list[Fault]):
        super().__init__("; ".join(f"line {f.line}: {f.detail}" for f in faults))
        self.faults = faults


def parse_definition(text: str, *, name: str | None = None, version: int | None = None) -> Definition:
    """The definition a text holds; `name` and `version` are what it is registered under, where the
    text may leave them out and must not say otherwise. Raises `DefinitionError`."""
    faults = Faults()
    if len(text.encode()) > SOURCE_LIMIT:
        raise DefinitionError([Fault(1, "", f"the text is longer than {SOURCE_LIMIT} bytes")])
    try:
        # An alias may name a node that holds aliases, and so on: a short text without an end.
        depth = 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > NESTING_LIMIT:
                raise DefinitionError([Fault(1, "", f"it nests deeper than {NESTING_LIMIT}")])
            if isinstance(event, yaml.AliasEvent):
                line = event.start_mark.line + 1 if event.start_mark is not None else 1
                raise DefinitionError([Fault(line, "", f"aliases (*{event.anchor}) are not accepted")])
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as fault:
        mark = getattr(fault, "problem_mark", None)
        line = mark.line + 1 if mark is not None else 1
        raise DefinitionError([Fault(line, "", str(getattr(fault, "problem", fault)))]) from None
    if node is None:
        raise DefinitionError([Fault(1, "", "the text is empty")])
    top = Reader(node, "", faults)
    definition = _read(top, faults, name, version)
    if faults:
        raise DefinitionError(faults.sorted())
    return definition


def _read(top: Reader, faults: Faults, name: str | None, version: int | None) -> Definition:
    fields = top.mapping(
        required=("steps",),
        optional=(
            "workflow", "version", "region_policy", "compensations", "compensation_deadline", "output",
            "description",
        ),
    )  # fmt: skip
    workflow = _name(fields.get("workflow"), name, top)
    number = _version(fields.get("version"), version, top)
    policy, deadline, description, output = "HOME_ASYNC", None, "", None
    if reader := fields.get("region_policy"):
        policy = reader.choice(POLICIES) or policy
    if reader := fields.get("compensation_deadline"):
        deadline = reader.duration()
    if reader := fields.get("description"):
        description = reader.text(most=2000) or ""
    steps = read_steps(fields["steps"]) if "steps" in fields else ()
    compensations = read_compensations(fields["compensations"]) if "compensations" in fields else {}
    if reader := fields.get("output"):
        output = reader.template()
    definition = Definition(
        workflow=workflow,
        version=number,
        steps=steps,
        compensations=compensations,
        region_policy=policy,
        compensation_deadline_ms=deadline,
        output=output,
        description=description,
    )
    total = len(list(definition.walk())) + len(compensations)
    if total > STEP_LIMIT:
        faults.add(top, f"{total} steps are more than {STEP_LIMIT}")
    check_scopes(definition, faults, _places(fields))
    return definition


def _places(fields: dict[str, Reader]) -> Callable[[Step | None], tuple[int, str]]:
    output = fields.get("output")

    def place(step: Step | None) -> tuple[int, str]:
        if step is not None:
            return step.line, f"/steps/{step.id}"
        return (output.line, output.pointer) if output else (1, "")

    return place


def _name(reader: Reader | None, given: str | None, top: Reader) -> str:
    text = reader.text() if reader else given
    if reader and text and not _NAME.fullmatch(text):
        reader.fault("a name begins with a letter and has letters, digits, `_`, `.` and `-`, 64 at most")
    if reader and given is not None and text and text != given:
        reader.fault(f"is registered as {given!r}")
    if text is None and reader is None:
        top.fault("needs `workflow`, its name")
    return text or ""


def _version(reader: Reader | None, given: int | None, top: Reader) -> int:
    number: Any = reader.integer(least=1, most=2**31 - 1) if reader else given
    if reader and given is not None and number is not None and number != given:
        reader.fault(f"is registered as version {given}")
    if number is None and reader is None:
        top.fault("needs `version`, a whole number from 1")
    return number or 0
