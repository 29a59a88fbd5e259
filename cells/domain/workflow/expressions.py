"""Expressions in CEL over recorded values, and templates that hold them.

CEL always ends, but not soon: a comprehension inside a comprehension over a long list holds the
interpreter for minutes, and very long chains of operators exhaust the stack of its parser. So
what is accepted is bounded before it is parsed, what it may cost is told before it is run
(`costs.py`), and what it makes is bounded, too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import cel
import msgspec

from cells.domain.workflow.costs import (
    COMPREHENSIONS,
    LIST_LIMIT,
    OUTSIDE_LIST_LIMIT,
    Cost,
    Shape,
    is_call,
)

#: Bytes of one expression.
SOURCE_LIMIT = 2048
#: How deep brackets may nest.
NESTING_LIMIT = 24
#: Operands, operators and calls in one expression.
TERM_LIMIT = 256
#: Bytes of one text that an expression may make.
TEXT_LIMIT = 256 * 1024
#: Bytes of JSON that a value may have: what a start may bring, wrapped once more.
RESULT_LIMIT = 512 * 1024
#: What making one value may cost, in the units of `costs.py`: as much as copying some members of each of the
#: thousand elements of the largest input. One to two seconds.
WORK_LIMIT = 20_000_000
#: The same where it is made in a process of its own (`heavy.py`). Ten to twenty seconds.
OUTSIDE_WORK = 200_000_000

_TOKEN = re.compile(
    r"""(?P<text>[rRbB]{0,2}(?:\"{3}.*?\"{3}|'{3}.*?'{3}|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'))
      |(?P<number>0[xX][0-9a-fA-F]+u?|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?u?)
      |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
      |(?P<open>[(\[{])|(?P<close>[)\]}])
      |(?P<sign>&&|\|\||[<>=!]=|[-+*/%<>!?:.,])
      |(?P<space>\s+)|(?P<comment>//[^\n]*)|(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
#: Functions an expression may call. All are pure, and none makes much out of little.
FUNCTIONS = frozenset(
    {
        "size", "has", "contains", "startsWith", "endsWith", "matches", "string", "int", "uint", "double",
        "bool", "type", "timestamp", "duration", "getFullYear", "getMonth", "getDate", "getDayOfMonth",
        "getDayOfWeek", "getDayOfYear", "getHours", "getMinutes", "getSeconds", "getMilliseconds",
        "charAt", "indexOf", "lastIndexOf", "lowerAscii", "upperAscii", "trim", "substring", "split", "join",
        "min", "max", "sum", "math.abs", "math.ceil", "math.floor", "math.round", "math.trunc",
        "math.greatest", "math.least",
    }
)  # fmt: skip
_NAMESPACES = frozenset({"math"})
_encode = msgspec.json.Encoder().encode


class ExpressionFault(ValueError):
    """An expression that is not accepted, or that came to nothing. The text says why."""


class TooHeavy(Exception):
    """A value that is to be made in a process of its own."""


class Budget:
    """What making one value has cost so far. Past `most`, and where more elements are walked than `walked`,
    it is a fault; with `beyond` only where it could not be made in a process of its own either."""

    __slots__ = ("beyond", "bytes", "made", "most", "walked", "work")

    def __init__(self, *, most: int = WORK_LIMIT, walked: int = LIST_LIMIT, beyond: bool = False) -> None:
        self.most = most
        self.walked = walked
        self.beyond = beyond
        self.work = 0
        self.made = 0  # characters and values
        self.bytes = 0  # of what was rendered, as JSON

    @classmethod
    def outside(cls) -> Budget:
        """Of a process that does nothing else."""
        return cls(most=OUTSIDE_WORK, walked=OUTSIDE_LIST_LIMIT)

    def spend(self, cost: Cost) -> None:
        """It costs that much. Raises `ExpressionFault` past the limit, or `TooHeavy`."""
        self.work += cost.work
        longest = OUTSIDE_LIST_LIMIT if self.beyond else self.walked
        if cost.walked > longest:
            raise ExpressionFault(f"a list of {cost.walked} is longer than {longest}, the most to walk")
        if self.work > (OUTSIDE_WORK if self.beyond else self.most):
            raise ExpressionFault("this is too much work over values of that size")
        if self.work > self.most or cost.walked > self.walked:
            raise TooHeavy

    def make(self, size: int) -> None:
        """So much is made. Raises `ExpressionFault` past the limit."""
        self.made += size
        if self.made > RESULT_LIMIT:
            raise ExpressionFault(f"comes to more than {RESULT_LIMIT} bytes")


class Expression:
    """One accepted expression."""

    __slots__ = ("_program", "_shape", "names", "source", "steps")

    def __init__(self, source: str):
        tokens = _tokens(source)
        try:
            self._program = cel.compile(source)
        except ValueError as fault:
            raise ExpressionFault(_first_line(fault)) from None
        self.source = source
        self._shape = Shape(tokens)
        bound = {
            tokens[i + 2][1] for i in range(len(tokens) - 2) if is_call(tokens, i, COMPREHENSIONS)
        } | _NAMESPACES
        #: Variables it reads.
        self.names = frozenset(self._program.variables()) - bound
        #: Steps (`steps.<id>`) and signals (`signals.<name>`) it reads, as (root, name).
        self.steps = frozenset(_members(tokens))
        unknown = {f for f in self._program.functions() if f[:1].isalpha()} - FUNCTIONS
        if unknown:
            raise ExpressionFault(f"unknown function {', '.join(sorted(unknown))}")

    def evaluate(self, values: Mapping[str, Any], budget: Budget | None = None) -> Any:
        """Its value, as JSON has it. Raises `ExpressionFault`, also where that would cost too much."""
        context = {name: values[name] for name in self.names if name in values}
        budget = budget or Budget()
        try:
            budget.spend(self._shape.cost(context))
            return _plain(self._program.execute(context), budget)
        except ExpressionFault as fault:
            raise ExpressionFault(f"`{self.source}`: {fault}") from None
        except KeyError as fault:
            raise ExpressionFault(f"`{self.source}`: there is no {fault}") from None
        except (ValueError, TypeError, RuntimeError, ArithmeticError, LookupError) as fault:
            raise ExpressionFault(f"`{self.source}`: {_first_line(fault)}") from None


@lru_cache(maxsize=4096)
def compile_expression(source: str) -> Expression:
    """The expression a text holds. Raises `ExpressionFault`."""
    return Expression(source)


class Template:
    """JSON with `${…}` in its texts. A text that is one expression becomes its value; several, or
    words around them, become a text."""

    __slots__ = ("_parts", "expressions", "source")

    def __init__(self, value: Any):
        self.source = value
        self.expressions: list[Expression] = []
        self._parts = self._compile(value)

    def _compile(self, value: Any) -> Any:
        if isinstance(value, str):
            parts = [self._part(kind, text) for kind, text in split_template(value)]
            if len(parts) == 1:
                return parts[0]
            return tuple(parts) if parts else ""
        if isinstance(value, Mapping):
            return {str(key): self._compile(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._compile(inner) for inner in value]
        return value

    def _part(self, kind: str, text: str) -> Expression | str:
        if kind == "text":
            return text
        expression = compile_expression(text)
        self.expressions.append(expression)
        return expression

    def render(self, values: Mapping[str, Any], budget: Budget | None = None) -> Any:
        """The JSON it stands for. Raises `ExpressionFault`."""
        budget = budget or Budget()
        made = _render(self._parts, values, budget)
        budget.bytes += fits(made)
        return made


def fits(value: Any) -> int:
    """The bytes of its JSON. Raises `ExpressionFault` for a value that is too large to be recorded."""
    size = len(_encode(value))
    if size > RESULT_LIMIT:
        raise ExpressionFault(f"{size} bytes are more than the {RESULT_LIMIT} that one value may have")
    return size


def _render(part: Any, values: Mapping[str, Any], budget: Budget) -> Any:
    if isinstance(part, Expression):
        return part.evaluate(values, budget)
    if isinstance(part, tuple):
        return "".join(_word(_render(inner, values, budget)) for inner in part)
    if isinstance(part, dict):
        return {key: _render(inner, values, budget) for key, inner in part.items()}
    if isinstance(part, list):
        return [_render(inner, values, budget) for inner in part]
    return part


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return ""
    if isinstance(value, int | float):
        return str(value)
    raise ExpressionFault("a list or an object cannot stand inside a text")


def split_template(text: str) -> Iterator[tuple[str, str]]:
    """("text" | "expression", content) of a text, in order; `$${` stands for `${`. Raises
    `ExpressionFault` for a `${` that does not end."""
    position, words = 0, ""
    while (start := text.find("${", position)) >= 0:
        if start > position and text[start - 1] == "$":
            words += text[position : start - 1] + "${"
            position = start + 2
            continue
        words += text[position:start]
        end = _closing(text, start + 2)
        if words:
            yield "text", words
            words = ""
        yield "expression", text[start + 2 : end].strip()
        position = end + 1
    words += text[position:]
    if words:
        yield "text", words


def _closing(text: str, start: int) -> int:
    depth = 0
    for match in _TOKEN.finditer(text, start):
        if match.lastgroup == "open":
            depth += 1
        elif match.lastgroup == "close":
            if depth == 0 and match.group() == "}":
                return match.start()
            depth -= 1
    raise ExpressionFault("a `${` does not end")


def _tokens(source: str) -> list[tuple[str, str]]:
    if not source:
        raise ExpressionFault("an empty expression")
    if len(source.encode()) > SOURCE_LIMIT:
        raise ExpressionFault(f"longer than {SOURCE_LIMIT} bytes")
    found, depth, terms = [], 0, 0
    for match in _TOKEN.finditer(source):
        kind = match.lastgroup or "other"
        if kind in ("space", "comment"):
            continue
        if kind == "other":
            raise ExpressionFault(f"unexpected {match.group()!r}")
        depth += {"open": 1, "close": -1}.get(kind, 0)
        terms += 1
        if depth > NESTING_LIMIT:
            raise ExpressionFault(f"brackets nest deeper than {NESTING_LIMIT}")
        found.append((kind, match.group()))
    if terms > TERM_LIMIT:
        raise ExpressionFault(f"more than {TERM_LIMIT} terms")
    if sum(is_call(found, i, COMPREHENSIONS) for i in range(len(found))) > 1:
        raise ExpressionFault("more than one of all, exists, exists_one, map and filter")
    return found


def _members(tokens: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    for i, (kind, text) in enumerate(tokens):
        if kind != "name" or text not in ("steps", "signals") or (i and tokens[i - 1][1] == "."):
            continue
        following = tokens[i + 1 : i + 3]
        if len(following) < 2 or following[0][1] != "." or following[1][0] != "name":
            raise ExpressionFault(f"`{text}` is read by name: `{text}.<name>`")
        yield text, following[1][1]


def _plain(value: Any, budget: Budget) -> Any:
    """JSON of what CEL answered."""
    budget.make(2)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        if len(value) > TEXT_LIMIT:
            raise ExpressionFault(f"made a text longer than {TEXT_LIMIT} characters")
        budget.make(len(value))
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ExpressionFault("came to no finite number")
        return value
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    if isinstance(value, list):
        return [_plain(inner, budget) for inner in value]
    if isinstance(value, dict):
        return {str(key): _plain(inner, budget) for key, inner in value.items()}
    raise ExpressionFault(f"came to a {type(value).__name__}, which JSON does not have")


def _first_line(fault: Exception) -> str:
    text = str(fault).split("\n", 1)[0]
    return text.rpartition("Syntax error: ")[2][:200] or type(fault).__name__
