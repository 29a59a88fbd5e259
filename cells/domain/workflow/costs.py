"""What an expression may cost at most: told from its tokens and the values it reads, before it is run.

CEL copies whole values. Each `+` copies what is there so far, and each element that a comprehension adds
copies the list made until then: what is made of n elements costs n² of them. So short texts over small
values can hold an interpreter for minutes. What costs too much is refused; it is never a matter of time,
so whoever decides again refuses it again. What costs much is made in a process of its own (`heavy.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Tokens = Sequence[tuple[str, str]]

COMPREHENSIONS = frozenset({"all", "exists", "exists_one", "map", "filter"})
#: Elements a comprehension may walk; and in a process of its own.
LIST_LIMIT = 1000
OUTSIDE_LIST_LIMIT = 10_000
_WORDS = frozenset({"true", "false", "null", "in"})
#: Handing a value over costs more than copying it inside.
_HANDING_OVER = 4


class Cost(NamedTuple):
    """The most that it can cost, in units of 20 to 90 ns, and how many elements it walks."""

    work: int
    walked: int


class Read(NamedTuple):
    """A place where a variable is read, with the members that follow: `input.order.id`."""

    name: str
    path: tuple[str, ...]


class Shape:
    """What the tokens of an expression say about its cost."""

    __slots__ = ("_before", "_behind", "_kind", "_listed", "_range", "_variable", "_written")

    def __init__(self, tokens: Tokens):
        at = next((i for i in range(len(tokens)) if is_call(tokens, i, COMPREHENSIONS)), None)
        end = len(tokens) if at is None else at
        #: Of the comprehension, if there is one; what is read before it, and behind.
        self._kind = None if at is None else tokens[at][1]
        self._variable = "" if at is None else tokens[at + 2][1]
        self._before = list(_reads(tokens, 0, end))
        self._behind = [] if at is None else list(_reads(tokens, at + 3, len(tokens)))
        #: What it walks, where that is a variable or a member of one; else anything that stands before it.
        self._range = None if at is None else _chain(tokens, at - 2)
        #: How many elements are written out before it, and what is written out behind it weighs.
        self._listed = sum(text == "," for _, text in tokens[:end]) + 1
        self._written = 1 + sum(map(_written, tokens[end:]))

    def cost(self, values: Mapping[str, Any]) -> Cost:
        """What it can cost with those values."""
        names = {read.name for read in (*self._before, *self._behind)}
        weigh = _Weighing()
        work = _HANDING_OVER * sum(weigh(values[name]) for name in names if name in values)
        before = [found for read in self._before if (found := _found(values, read)) is not None]
        together = sum(map(weigh, before))
        work += len(before) * together
        if self._kind is None:
            return Cost(work, 0)
        walked = None if self._range is None else _found(values, self._range)
        count = sum(map(weigh.longest, before)) if walked is None else _length(walked)
        elements = count
        if walked is None:
            count += self._listed
        inner = [read for read in self._behind if read.name == self._variable]
        outer = [read for read in self._behind if read.name != self._variable]
        each = self._written + sum(weigh(_found(values, read)) for read in outer)
        if isinstance(walked, list):
            of_all = sum(weigh(resolve(item, read.path)) for read in inner for item in walked)
        else:
            of_all = len(inner) * together
        made = count * each + of_all
        work += (len(inner) + len(outer) + 1) * made
        if self._kind == "map":
            work += count * made // 2
        elif self._kind == "filter":
            work += count * (count + together) // 2
        return Cost(work, elements)


class _Weighing:
    """Weighs each value of one question once, however often it is read."""

    __slots__ = ("_longest", "_weights")

    def __init__(self) -> None:
        self._weights: dict[int, int] = {}
        self._longest: dict[int, int] = {}

    def __call__(self, value: Any) -> int:
        """See `weight`."""
        if not isinstance(value, list | dict):
            return weight(value)
        if (known := self._weights.get(id(value))) is None:
            known = self._weights[id(value)] = weight(value)
        return known

    def longest(self, value: Any) -> int:
        """See `_longest`."""
        if (known := self._longest.get(id(value))) is None:
            known = self._longest[id(value)] = _longest(value)
        return known


def is_call(tokens: Tokens, at: int, names: frozenset[str]) -> bool:
    """Whether `.name(` of one of those names stands there."""
    return (
        tokens[at][0] == "name"
        and tokens[at][1] in names
        and at > 0
        and tokens[at - 1][1] == "."
        and tokens[at + 1 : at + 2] == [("open", "(")]
        and len(tokens) > at + 2
    )


def _reads(tokens: Tokens, start: int, end: int) -> Iterator[Read]:
    for i in range(start, end):
        kind, text = tokens[i]
        if kind != "name" or text in _WORDS or (i and tokens[i - 1][1] == "."):
            continue
        path, at = [], i + 1
        while at + 1 < end and tokens[at][1] == "." and tokens[at + 1][0] == "name":
            if tokens[at + 2 : at + 3] == [("open", "(")]:
                break  # a function of what is there
            path.append(tokens[at + 1][1])
            at += 2
        yield Read(text, tuple(path))


def _chain(tokens: Tokens, at: int) -> Read | None:
    """The variable with its members that ends there, if that is all that ends there."""
    names: list[str] = []
    while at >= 0 and tokens[at][0] == "name":
        names.append(tokens[at][1])
        if at == 0 or tokens[at - 1][1] != ".":
            return Read(names[-1], tuple(reversed(names[:-1])))
        at -= 2
    return None


def _written(token: tuple[str, str]) -> int:
    """What a part of a value that is written out weighs."""
    kind, text = token
    if kind == "text":
        return 1 + len(text) // 64
    return {"{": 4, ":": 6}.get(text, int(kind == "number"))


def _found(values: Mapping[str, Any], read: Read) -> Any:
    return resolve(values.get(read.name), read.path)


def resolve(value: Any, path: Sequence[str]) -> Any:
    """What stands there, or nothing."""
    for name in path:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def weight(value: Any) -> int:
    """What copying a value costs, in units of 20 to 90 ns."""
    if isinstance(value, str):
        return 1 + len(value) // 64
    if isinstance(value, list):
        return 1 + sum(map(weight, value))
    if isinstance(value, dict):
        return 4 + sum(6 + len(key) // 64 + weight(inner) for key, inner in value.items())
    return 1


def _length(value: Any) -> int:
    return len(value) if isinstance(value, list | dict) else 0


def _longest(value: Any) -> int:
    """The number of elements of the longest list in a value."""
    if isinstance(value, list | dict):
        inner = value.values() if isinstance(value, dict) else value
        return max(len(value), max(map(_longest, inner), default=0))
    return 0
