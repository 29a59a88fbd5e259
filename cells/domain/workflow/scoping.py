"""What a definition's names mean: ids are unique, compensations exist, and expressions read only
what is sure to be recorded before them. A step cannot wait for a later one, so there is no cycle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from cells.domain.workflow.definition import (
    Activity,
    ContinueAsNew,
    Definition,
    Map,
    Parallel,
    Sleep,
    StartWorkflow,
    Step,
    WaitForSignal,
)
from cells.domain.workflow.expressions import Expression
from cells.domain.workflow.reading import Faults

_ROOTS = frozenset({"input", "steps", "signals", "workflow"})
Place = Callable[[Step | None], tuple[int, str]]


def check_scopes(definition: Definition, faults: Faults, place: Place) -> None:
    """Note every name that means nothing, or too much."""
    checker = _Checker(definition, faults, place)
    checker.unique()
    checker.compensations()
    seen = checker.sequence(definition.steps, frozenset(), frozenset())
    everything = frozenset(step.id for step in definition.walk())
    elements = dict(_elements(definition.steps, frozenset()))
    for step in definition.compensations.values():
        # A compensation runs when anything may have happened: it sees every step (`has` says
        # whether there is one), and the elements that the step it undoes was for.
        checker.expressions(step, _of(step), everything, elements.get(step.id, frozenset()))
    if definition.output is not None:
        checker.expressions(None, definition.output.expressions, seen, frozenset())


class _Checker:
    def __init__(self, definition: Definition, faults: Faults, place: Place):
        self._definition = definition
        self._faults = faults
        self._place = place
        self._all = {step.id: step for step in definition.walk()}
        self._depth = 0  # parallel and map around
        self._signals = {s.do.name for s in definition.walk() if isinstance(s.do, WaitForSignal)}

    def fault(self, step: Step | None, detail: str) -> None:
        line, pointer = self._place(step)
        self._faults.note(line, pointer, detail)

    def unique(self) -> None:
        """Ids, over steps and compensations alike: both name idempotency keys."""
        seen: dict[str, int] = {}
        for step in (*self._definition.walk(), *self._definition.compensations.values()):
            if step.id in seen:
                self.fault(step, f"the id `{step.id}` is that of line {seen[step.id]}, too")
            seen.setdefault(step.id, step.line)

    def compensations(self) -> None:
        """Each one that is named exists, and undoes one step."""
        used: dict[str, Step] = {}
        for step in self._definition.walk():
            name = step.compensate_with
            if name is None:
                continue
            if name not in self._definition.compensations:
                self.fault(step, f"there is no compensation `{name}`")
            elif name in used:
                self.fault(step, f"the compensation `{name}` undoes `{used[name].id}` already")
            used.setdefault(name, step)
        for name, undo in self._definition.compensations.items():
            if name not in used:
                self.fault(undo, f"no step is undone by the compensation `{name}`")

    def sequence(
        self, steps: tuple[Step, ...], before: frozenset[str], variables: frozenset[str]
    ) -> frozenset[str]:
        """Steps in their order; the ids that are recorded behind them."""
        for i, step in enumerate(steps):
            self.expressions(step, _of(step), before, variables)
            match step.do:
                case Parallel(branches=branches):
                    self._depth += 1
                    inner = [self.sequence(branch, before, variables) for branch in branches]
                    self._depth -= 1
                    before = before.union(*inner)
                case Map(name=name, steps=inside):
                    # Results inside belong to one element; outside there is the map's list.
                    self._depth += 1
                    self.sequence(inside, before, variables | {name})
                    self._depth -= 1
                case ContinueAsNew() if self._depth:
                    self.fault(step, f"`{step.id}` would end what runs beside it; put it at the top")
                case ContinueAsNew() if i + 1 < len(steps) and step.when is None:
                    self.fault(steps[i + 1], f"`{step.id}` ends the execution before this step")
                case _:
                    pass
            before = before | {step.id}
        return before

    def expressions(
        self,
        step: Step | None,
        found: Iterable[Expression],
        before: frozenset[str],
        variables: frozenset[str],
    ) -> None:
        """What they read is there by then."""
        for expression in found:
            for name in sorted(expression.names - _ROOTS - variables):
                self.fault(step, f"`{expression.source}` reads `{name}`, which is nothing")
            for root, name in sorted(expression.steps):
                if root == "signals" and name not in self._signals:
                    self.fault(step, f"`{expression.source}` reads the signal `{name}`; no step waits for it")
                elif root == "steps" and name not in self._all:
                    self.fault(step, f"`{expression.source}` reads `{name}`; there is no such step")
                elif root == "steps" and name not in before:
                    self.fault(
                        step, f"`{expression.source}` reads `{name}`, which need not have ended by then"
                    )


def _elements(steps: tuple[Step, ...], around: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """What the elements of the maps around a step are called, by the step's compensation."""
    for step in steps:
        if step.compensate_with is not None:
            yield step.compensate_with, around
        if isinstance(step.do, Map):
            yield from _elements(step.do.steps, around | {step.do.name})
        elif isinstance(step.do, Parallel):
            for branch in step.do.branches:
                yield from _elements(branch, around)


def _of(step: Step) -> list[Expression]:
    """The expressions of a step, without those of steps inside it."""
    found = [] if step.when is None else [step.when]
    match step.do:
        case Activity(input=template) | StartWorkflow(input=template) | ContinueAsNew(input=template):
            found += template.expressions if template is not None else []
        case Sleep(until=template) if template is not None:
            found += template.expressions
        case Map(over=over):
            found.append(over)
        case _:
            pass
    return found
