"""From JSON documents to typed values, forgiving: what a newer server adds is kept, not refused.

Members that a class does not know stay in `raw`; those it knows and that are absent are None (or
the class's default). A member of another type than promised is an `UnexpectedAnswer`. Words such
as states stay plain text, so that a new one breaks nobody.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from controlplane.client.errors import UnexpectedAnswer

D = TypeVar("D", bound="Document")
Reader = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """Something the API showed. `raw` is the document as it came."""

    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def extra(self) -> dict[str, Any]:
        """What the document holds beyond the members this version knows."""
        known = {member.name.rstrip("_") for member in dataclasses.fields(self)}
        return {name: value for name, value in self.raw.items() if name not in known}


def decode(kind: type[D], document: object) -> D:
    """The document as that class."""
    if not isinstance(document, dict):
        raise UnexpectedAnswer(f"{kind.__name__}: {_named(document)} instead of an object")
    values: dict[str, Any] = {"raw": document}
    for name, reader, default in _readers(kind):  # type: ignore[arg-type]  # classes are hashable
        value = document.get(name.rstrip("_"), dataclasses.MISSING)
        if value is dataclasses.MISSING:
            if default:
                continue
            value = None
        try:
            values[name] = reader(value)
        except (TypeError, ValueError, InvalidOperation) as fault:
            raise UnexpectedAnswer(f"{kind.__name__}.{name}: {fault}") from None
    return kind(**values)


@lru_cache(maxsize=256)
def _readers(kind: type[Document]) -> tuple[tuple[str, Reader, bool], ...]:
    hints = get_type_hints(kind)
    return tuple(
        (
            member.name,
            _reader(hints[member.name]),
            member.default is not dataclasses.MISSING or member.default_factory is not dataclasses.MISSING,
        )
        for member in dataclasses.fields(kind)
        if member.name != "raw"
    )


def _reader(hint: Any) -> Reader:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        (inner,) = (a for a in arguments if a is not type(None))
        read = _reader(inner)
        return lambda value: None if value is None else read(value)
    if origin is tuple or origin is Sequence:
        item = _reader(arguments[0])
        return lambda value: tuple(item(v) for v in _checked(value, list))
    if origin is Mapping or hint is Mapping:
        return lambda value: dict(_checked(value, dict))
    if isinstance(hint, type) and issubclass(hint, Document):
        return lambda value: decode(hint, value)
    return _PLAIN.get(hint, lambda value: value)


def _checked(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise TypeError(f"{_named(value)} instead of {kinds[0].__name__}")
    return value


def _named(value: object) -> str:
    return "nothing" if value is None else type(value).__name__


_PLAIN: Mapping[Any, Reader] = {
    str: lambda value: _checked(value, str),
    int: lambda value: _checked(value, int),
    bool: lambda value: _checked(value, bool),
    float: lambda value: float(_checked(value, float, int)),
    Decimal: lambda value: Decimal(_checked(value, str)),
    datetime: lambda value: datetime.fromisoformat(_checked(value, str)),
    date: lambda value: date.fromisoformat(_checked(value, str)),
}
