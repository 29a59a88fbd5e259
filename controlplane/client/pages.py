"""Reading answers: one document, or a page of a list. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from controlplane.client.decoding import Document, decode
from controlplane.client.errors import UnexpectedAnswer
from controlplane.client.wire import Answer

D = TypeVar("D", bound=Document)
D_co = TypeVar("D_co", bound=Document, covariant=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Page(Generic[D_co]):
    """One page of a list. `document` is all of the answer."""

    items: Sequence[D_co]
    next_cursor: str | None
    document: Mapping[str, Any] = field(default_factory=dict, repr=False)
    parameter: str = "cursor"  # what of the query takes `next_cursor`

    @property
    def last(self) -> bool:
        """Whether nothing follows now. A feed always has a cursor to go on from later, and says
        `more` instead."""
        return self.next_cursor is None or self.document.get("more") is False


def reads(kind: type[D]) -> Callable[[Answer], D]:
    """Reads an answer as that class."""
    return lambda answer: decode(kind, answer.document())


def reads_page(kind: type[D]) -> Callable[[Answer], Page[D]]:
    """Reads an answer as a page of them."""

    def read(answer: Answer) -> Page[D]:
        document = answer.document()
        items = document.get("items")
        if not isinstance(items, list):
            raise UnexpectedAnswer("a list has no items")
        return Page(
            items=tuple(decode(kind, item) for item in items),
            next_cursor=document.get("next_cursor"),
            document=document,
        )

    return read
