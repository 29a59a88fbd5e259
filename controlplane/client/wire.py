"""Requests and answers as values: what the sync and the async client have in common. Pure.

A `Call` says what to send and how to read the answer. It knows whether repeating it is safe; how
often, and how long to wait in between, is `retrying.py`.
"""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from email.utils import parsedate_to_datetime
from importlib import metadata
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from controlplane.client.errors import ApiError, Fault, UnexpectedAnswer, error_class

T = TypeVar("T", covariant=True)
V = TypeVar("V")

Json = dict[str, Any]
_IDEMPOTENT_METHODS = frozenset({"GET", "HEAD", "PUT", "DELETE"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What came back. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def document(self) -> Json:
        """The JSON object in the body; an empty body is an empty object."""
        if not self.body:
            return {}
        try:
            found = json.loads(self.body)
        except ValueError:
            raise UnexpectedAnswer(
                f"{self.status}, but no JSON. Is the address that of the API? It began: {self.body[:80]!r}"
            ) from None
        if not isinstance(found, dict):
            raise UnexpectedAnswer(f"{self.status} with a JSON {type(found).__name__} instead of an object")
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Call(Generic[T]):
    """One request to the API and how to read its answer.

    `keyed`: creates something, and takes an Idempotency-Key; without one given, the client makes
    one, so that a repetition creates nothing twice. `repeatable`: whether doing it twice is doing it
    once, where its method does not tell. `text` is a body that is no JSON document but a text.
    `timeout` in seconds replaces the client's.
    """

    method: str
    path: str
    read: Callable[[Answer], T]
    query: Mapping[str, str] = field(default_factory=dict)
    body: Json | None = None
    text: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    keyed: bool = False
    idempotency_key: str | None = None
    repeatable: bool | None = None
    timeout: float | None = None

    @property
    def safe(self) -> bool:
        """Whether it may be sent again when nobody knows what became of it."""
        if self.repeatable is not None:
            return self.repeatable
        keyed = self.keyed and self.idempotency_key is not None
        return keyed or self.method in _IDEMPOTENT_METHODS

    def with_key(self, key: str) -> Call[T]:
        """The same under an idempotency key, if it takes one and has none yet."""
        if not self.keyed or self.idempotency_key is not None:
            return self
        return dataclasses.replace(self, idempotency_key=key)

    def all_headers(self) -> dict[str, str]:
        """Its own headers."""
        headers = dict(self.headers)
        if self.keyed and self.idempotency_key is not None:
            headers["Idempotency-Key"] = self.idempotency_key
        return headers

    @property
    def content_type(self) -> str:
        """What the body is."""
        return "application/json" if self.text is None else "application/yaml"

    def content(self) -> bytes | None:
        """The body as it is sent."""
        if self.text is not None:
            return self.text.encode()
        if self.body is None:
            return None
        return json.dumps(self.body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def path(template: str, **parts: str) -> str:
    """A path with its parts escaped. Colons stay as they are: they are part of run ids."""
    return template.format(**{name: quote(part, safe=":") for name, part in parts.items()})


def query(**values: object) -> dict[str, str]:
    """A query without what is None. `from_` stands for `from`."""
    return {name.rstrip("_"): plain_text(value) for name, value in values.items() if value is not None}


def plain_text(value: object) -> str:
    """A value as it stands in a query."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return instant(value)
    return value.isoformat() if isinstance(value, date) else str(value)


def instant(value: datetime) -> str:
    """RFC 3339 in UTC. A naive time is refused: whose would it be?"""
    if value.tzinfo is None:
        raise ValueError(f"{value} has no time zone; an instant needs one")
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def if_match(version: int | str | None) -> dict[str, str]:
    """The header that makes a change conditional on what was read."""
    return {} if version is None else {"If-Match": f'"{version}"'}


def without_none(**members: object) -> Json:
    """A body without what was not given."""
    return {name: value for name, value in members.items() if value is not None}


def user_agent(product: str = "client") -> str:
    """Who is calling."""
    try:
        version = metadata.version("clockhouse")
    except metadata.PackageNotFoundError:  # a source tree
        version = "0"
    return f"clockhouse-{product}/{version} python/{platform.python_version()}"


def retry_after(headers: Mapping[str, str], now: datetime) -> float | None:
    """Seconds to wait according to `Retry-After`: a number, or a date."""
    text = headers.get("retry-after", "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds())


def error_of(answer: Answer, now: datetime) -> ApiError:
    """The error an answer stands for."""
    try:
        document = answer.document()
    except UnexpectedAnswer:  # something on the way answered in its own words
        document = {}
    code = document.get("code") or document.get("reason") or f"HTTP_{answer.status}"
    return error_class(answer.status, code)(
        status=answer.status,
        code=code,
        detail=str(document.get("detail") or document.get("title") or f"HTTP status {answer.status}"),
        title=str(document.get("title") or ""),
        faults=list(faults_in(document.get("errors"))),
        retry_after=retry_after(answer.headers, now),
        request_id=answer.headers.get("x-request-id"),
        document=document,
    )


def faults_in(errors: object) -> Iterable[Fault]:
    """The faults that a problem document lists."""
    for item in errors if isinstance(errors, list) else ():
        if isinstance(item, dict):
            yield Fault(
                detail=str(item.get("detail", "")),
                pointer=item.get("pointer"),
                parameter=item.get("parameter"),
                header=item.get("header"),
                line=item.get("line"),
            )


def outcome(call: Call[V], answer: Answer, now: datetime) -> V:
    """What an answer means for a call: its value, or an `ApiError`."""
    if 200 <= answer.status < 300:
        return call.read(answer)
    if 300 <= answer.status < 400:
        raise UnexpectedAnswer(f"a redirect ({answer.status}); the address is probably not that of the API")
    raise error_of(answer, now)
