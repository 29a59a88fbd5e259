"""Problem documents (RFC 9457): every error this API answers with, and what becomes one.

`Problem` is raised anywhere below a route. `of_exception` is the one table from the engine's
errors to HTTP. Faults of a request are listed all at once, each with its place: `pointer`
(RFC 6901, in the body), `parameter` (of the query) or `header`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from cells import ports
from cells.contract import PROBLEM_TITLES, ErrorCode, problem_type
from cells.domain.faults import ScheduleError
from cells.records import StrictShut, Unconfirmed
from cells.workflow_ports import SignalsWait, WorkflowIdInUse

MEDIA_TYPE = "application/problem+json"
#: More faults than these help nobody.
FAULTS_LIMIT = 100
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")

Fault = dict[str, str]
T = TypeVar("T")


class Problem(Exception):
    """An answer that is an error. `extra` are further members of the document."""

    def __init__(
        self,
        status: int,
        code: ErrorCode,
        detail: str,
        *,
        errors: Iterable[Fault] = (),
        extra: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = list(errors)
        self.extra = dict(extra or {})
        self.headers = dict(headers or {})

    def document(self) -> dict[str, Any]:
        """The problem document."""
        document: dict[str, Any] = {
            "type": problem_type(self.code),
            "title": PROBLEM_TITLES[self.code],
            "status": self.status,
            "detail": self.detail,
            "code": self.code.value,
        }
        if self.errors:
            document["errors"] = self.errors[:FAULTS_LIMIT]
        document.update(self.extra)
        return document

    def and_more(self, faults: Iterable[Fault]) -> Problem:
        """This one with further faults; it is a general 422 then."""
        more = list(faults)
        return invalid([*self.errors, *more]) if more else self

    def response(self, scope: Scope) -> Response:
        """The answer to the request of that scope, which it names as the router's logs do."""
        document = self.document()
        if (request_id := request_id_of(scope)) is not None:
            document["request_id"] = request_id
        return Response(
            msgspec.json.encode(document), self.status, headers=self.headers, media_type=MEDIA_TYPE
        )


def request_id_of(scope: Scope) -> str | None:
    """What the router calls a request; None where nobody named it."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value, "ascii")
    return None


# --- the common ones ---------------------------------------------------------------------
def malformed(detail: str) -> Problem:
    """400: it cannot be read at all."""
    return Problem(400, ErrorCode.MALFORMED, detail)


def invalid(faults: Iterable[Fault], detail: str = "") -> Problem:
    """422 with every fault."""
    listed = list(faults)
    if not detail:
        detail = "1 fault" if len(listed) == 1 else f"{len(listed)} faults"
        detail += "; see errors."
    return Problem(422, ErrorCode.INVALID, detail, errors=listed)


class Gathered:
    """Faults of the parts of one request, so that one answer has them all: a 422 of a part is kept until
    `settle`, anything else is raised at once."""

    def __init__(self, faults: Iterable[Fault] = ()):
        given = list(faults)
        self._found: list[Problem] = [invalid(given)] if given else []

    async def of(self, part: Callable[[], Awaitable[T]]) -> T | None:
        """What a part comes to; None where it is refused."""
        try:
            return await part()
        except Problem as problem:
            self._keep(problem)
        return None

    def call(self, part: Callable[[], T]) -> T | None:
        """The same of a part that waits for nothing."""
        try:
            return part()
        except Problem as problem:
            self._keep(problem)
        return None

    def _keep(self, problem: Problem) -> None:
        if problem.status != 422 or not problem.errors:
            raise problem
        self._found.append(problem)

    @property
    def faults(self) -> list[Fault]:
        """All that was found."""
        return [fault for problem in self._found for fault in problem.errors]

    def settle(self) -> None:
        """Raise what was found: one problem as it is, several as a general 422."""
        if len(self._found) == 1:
            raise self._found[0]
        if self._found:
            raise invalid(self.faults)


def not_found(what: str) -> Problem:
    """404: absent, or somebody else's; the answer does not tell which."""
    return Problem(404, ErrorCode.NOT_FOUND, f"There is no such {what}.")


def conflict(detail: str, code: ErrorCode = ErrorCode.CONFLICT, **extra: Any) -> Problem:
    """409."""
    return Problem(409, code, detail, extra=extra)


def erased() -> Problem:
    """Nothing is done for the tenant any more."""
    return Problem(410, ErrorCode.TENANT_ERASED, "The tenant was erased, or is being erased.")


def too_large(detail: str) -> Problem:
    """413."""
    return Problem(413, ErrorCode.PAYLOAD_TOO_LARGE, detail)


def key_reused() -> Problem:
    """422: the same Idempotency-Key, another request."""
    return Problem(
        422,
        ErrorCode.IDEMPOTENCY_KEY_REUSED,
        "The first request with this key had another body; a new request needs a new key.",
    )


def unavailable(detail: str = "The cell's store cannot be reached right now.") -> Problem:
    """503; worth another try."""
    return Problem(503, ErrorCode.UNAVAILABLE, detail, headers={"Retry-After": "1"})


# --- faults ------------------------------------------------------------------------------
def body_fault(pointer: str, detail: str) -> Fault:
    """A fault at a place of the body."""
    return {"pointer": pointer, "detail": detail}


def query_fault(name: str, detail: str) -> Fault:
    """A fault of a query parameter."""
    return {"parameter": name, "detail": detail}


def header_fault(name: str, detail: str) -> Fault:
    """A fault of a request header."""
    return {"header": name, "detail": detail}


def pointer_to(*parts: object) -> str:
    """The JSON pointer of a path of member names and indexes."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def faults_of(error: ValidationError) -> list[tuple[tuple[int | str, ...], str]]:
    """Places and sentences of what pydantic found."""
    found: list[tuple[tuple[int | str, ...], str]] = []
    for item in error.errors(include_url=False):
        place = tuple(part for part in item["loc"] if not _is_tag(part))
        kind, message, more = item["type"], item["msg"], item.get("ctx", {})
        if kind in ("union_tag_invalid", "union_tag_not_found"):
            place, message = (*place, "type"), _tag_message(more)
        elif kind == "extra_forbidden":
            message = "unknown field"
        elif kind == "missing":
            message = "is required"
        elif kind == "string_too_short" and more["min_length"] == 1:
            message = "must not be empty"
        elif kind in _BOUNDS or kind in ("literal_error", "enum"):
            message = _beside(kind, item["input"], more)
        elif kind == "string_pattern_mismatch":
            # What was given stays away: it may be a credential.
            message = f"does not match the pattern {more['pattern']}"
        elif kind == "string_too_long":
            message = f"is longer than {more['max_length']} characters"
        elif kind == "headers":
            found += [((*place, name) if name else place, text) for name, text in more["faults"]]
            continue
        elif "at" in more:  # a rule of a whole object that concerns one member
            place = (*place, more["at"])
        else:
            message = message.removeprefix("Value error, ")
            message = message[:1].lower() + message[1:]
        found.append((place, message))
    return found


#: Bounds of numbers, and how pydantic names the bound.
_BOUNDS = {"greater_than_equal": ("ge", "the least is"), "less_than_equal": ("le", "the most is")}


def _beside(kind: str, given: Any, context: Mapping[str, Any]) -> str:
    """What was given, and what it may be."""
    shown = str(given)[:40] if isinstance(given, str | int | float) else "no text"
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"is {shown}; {words} {context[name]:g}"
    return f"is {shown}; it may be {str(context['expected']).replace(chr(39), '')}"


def _is_tag(part: int | str) -> bool:
    # In a tagged union pydantic names the variant in the place, which the client never wrote.
    return part in ("ONCE", "CRON", "RATE", "NOW", "HTTP", "TASK_QUEUE", "WORKFLOW")


def _tag_message(context: Mapping[str, Any]) -> str:
    expected = context.get("expected_tags")
    if not expected:
        return "is required"
    return f"is {str(context.get('tag'))[:40]}; it may be one of {expected.replace(chr(39), '')}"


def schedule_faults(error: ScheduleError) -> list[Fault]:
    """The faults of a schedule."""
    return [body_fault(pointer, detail) for pointer, detail in error.faults]


def unconfirmed(fault: ports.Retryable) -> Problem:
    """What a STRICT request is told that only one region has carried out."""
    if isinstance(fault, StrictShut):
        return Problem(
            503,
            ErrorCode.UNCONFIRMED,
            f"STRICT is shut in this cell: {fault}, and the cell was taken over without it. It is done in the"
            " cell's home region, and holds once STRICT is open again: repeat the request then, with the same"
            " Idempotency-Key where it has one.",
            headers={"Retry-After": "30"},
        )
    return Problem(
        503,
        ErrorCode.UNCONFIRMED,
        "It is done in the cell's home region, and no other region has confirmed that yet. Repeat the"
        " request, with the same Idempotency-Key where it has one, until it succeeds.",
        headers={"Retry-After": "1"},
    )


# --- what becomes a problem --------------------------------------------------------------
def of_exception(error: Exception) -> Problem | None:
    """The problem an exception of the engine or the framework stands for; None if it is a bug."""
    match error:
        case Problem():
            return error
        case ports.NotOwner():
            return Problem(421, ErrorCode.NOT_OWNER, str(error) or "The tenant is not placed here.")
        case ports.AllowanceExceeded(nearest_available=nearest):
            return conflict(
                "Other jobs have all of the tenant's strict_jobs_per_second at that second. Take another one"
                " (nearest_available has room), or give the job a dispatch_window_seconds of 1 or more.",
                ErrorCode.STRICT_ALLOWANCE_EXCEEDED,
                nearest_available=f"{nearest:%Y-%m-%dT%H:%M:%SZ}" if nearest else None,
            )
        case ports.QuotaExceeded(scope=scope, limit=limit):
            return Problem(
                429,
                ErrorCode.QUOTA_EXCEEDED,
                _sentence(error),
                extra={"scope": "tenant", "quota": scope, "limit": limit},
                headers={"Retry-After": "60"},
            )
        case ports.KeyReused():
            return key_reused()
        case Unconfirmed():
            return unconfirmed(error)
        case SignalsWait():
            return Problem(
                429,
                ErrorCode.QUOTA_EXCEEDED,
                _sentence(error),
                extra={"scope": "workflow"},
                headers={"Retry-After": "1"},
            )
        case WorkflowIdInUse():
            return conflict(_sentence(error), ErrorCode.WORKFLOW_ID_IN_USE)
        case ports.Conflict():
            return conflict(_sentence(error))
        case ports.Terminal():
            return Problem(422, ErrorCode.INVALID, _sentence(error))
        case ports.Retryable():
            return unavailable()
        case HTTPException(status_code=status, headers=headers):
            return _of_framework(status, dict(headers or {}))
    return None


def _sentence(error: Exception) -> str:
    text = str(error).strip() or "The current state does not allow it"
    return text[:1].upper() + text[1:].rstrip(".") + "."


def _of_framework(status: int, headers: dict[str, str]) -> Problem:
    codes = {
        401: ErrorCode.UNAUTHENTICATED,
        403: ErrorCode.FORBIDDEN,
        404: ErrorCode.NOT_FOUND,
        405: ErrorCode.METHOD_NOT_ALLOWED,
        413: ErrorCode.PAYLOAD_TOO_LARGE,
    }
    code = codes.get(status, ErrorCode.MALFORMED if status < 500 else ErrorCode.INTERNAL_ERROR)
    detail = "There is nothing at this path." if status == 404 else f"{HTTPStatus(status).phrase}."
    return Problem(status, code, detail, headers=headers)


def internal_error() -> Problem:
    """500: ours. Says nothing of the inside."""
    return Problem(500, ErrorCode.INTERNAL_ERROR, "An unexpected error was logged.")
