"""Values that cost too much to be made where decisions are made: what is to be made, and what it came to.

A decision that needs such a value asks for it and goes on without the step; once the value is there, deciding
again finds it. It is known by what it is made of, so it is the same for whoever decides, however often.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from cells.domain.workflow.expressions import (
    Budget,
    Expression,
    ExpressionFault,
    Template,
    TooHeavy,
    compile_expression,
    fits,
)

#: Work behind which a value is made outside: a third of a second of an engine's loop.
INLINE_WORK = 4_000_000


class Work(msgspec.Struct, frozen=True):
    """A value to be made. `source`: the text of an expression, or a template's JSON."""

    payload: bytes

    @property
    def digest(self) -> bytes:
        """What it is known by."""
        return hashlib.sha256(self.payload).digest()


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What it came to: a value of so many bytes of JSON, or the fault that its step fails with."""

    value: Any = None
    size: int = 0
    fault: str | None = None


class _Asked(msgspec.Struct):
    source: Any
    template: bool
    values: dict[str, Any]


#: Says what some work came to, or None: not yet.
Evaluate: TypeAlias = Callable[[Work], Outcome | None]
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Asked).decode


class NotYet(Exception):
    """A value is being made; whatever needs it is decided later."""


def budget_for(evaluate: Evaluate | None) -> Budget:
    """For one value, where something makes the heavy ones, or where nothing does."""
    return Budget() if evaluate is None else Budget(most=INLINE_WORK, beyond=True)


def value_of(
    what: Expression | Template,
    values: Mapping[str, Any],
    evaluate: Evaluate | None,
    budget: Budget | None = None,
) -> Any:
    """What an expression or a template stands for. Raises `ExpressionFault`, and `NotYet`."""
    budget = budget or budget_for(evaluate)
    try:
        return _made(what, values, budget)
    except TooHeavy:
        if evaluate is None:
            raise
    outcome = evaluate(work_of(what, values))
    if outcome is None:
        raise NotYet
    if outcome.fault is not None:
        raise ExpressionFault(outcome.fault)
    budget.bytes += outcome.size
    return outcome.value


def work_of(what: Expression | Template, values: Mapping[str, Any]) -> Work:
    """The same as something that can be handed over."""
    expressions = what.expressions if isinstance(what, Template) else [what]
    names = sorted({name for expression in expressions for name in expression.names} & values.keys())
    read = {name: values[name] for name in names}
    return Work(_encode(_Asked(what.source, isinstance(what, Template), read)))


def make(payload: bytes) -> Outcome:
    """Make the value of some work, with all that may be spent for it."""
    asked = _decode(payload)
    try:
        what = Template(asked.source) if asked.template else compile_expression(asked.source)
        value = _made(what, asked.values, Budget.outside())
        return Outcome(value=value, size=fits(value))
    except ExpressionFault as fault:
        return Outcome(fault=str(fault))


def _made(what: Expression | Template, values: Mapping[str, Any], budget: Budget) -> Any:
    if isinstance(what, Template):
        return what.render(values, budget)
    return what.evaluate(values, budget)
