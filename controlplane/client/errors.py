"""What can go wrong: one class for each family of answers, and for what keeps an answer away.

Catch `ClockhouseError` for everything, `ApiError` for what the API said, `TransportError` for
what kept it from answering.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any


class ClockhouseError(Exception):
    """Anything that this package raises on purpose."""


class ConfigurationError(ClockhouseError):
    """No address, no key, or settings that contradict each other."""


class UnexpectedAnswer(ClockhouseError):
    """The server answered something that is not this API's."""


class TransportError(ClockhouseError):
    """No answer. `sent` is False where the server cannot have seen the request."""

    def __init__(self, message: str, *, sent: bool = True) -> None:
        super().__init__(message)
        self.sent = sent


class TimedOut(TransportError):
    """The answer did not come in time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One fault of a request, and where it is: a JSON pointer into the body, the name of a query
    parameter, or the name of a header. One of the three, or none for the request as a whole.
    `line`, from 1, of a text that was sent."""

    detail: str
    pointer: str | None = None
    parameter: str | None = None
    header: str | None = None
    line: int | None = None

    @property
    def place(self) -> str:
        """Where it is, for people."""
        if self.line is not None:
            return f"line {self.line}"
        if self.parameter is not None:
            return f"?{self.parameter}"
        if self.header is not None:
            return f"header {self.header}"
        return (self.pointer or "").removeprefix("/").replace("/", ".") or "the request"

    def __str__(self) -> str:
        return f"{self.place}: {self.detail}"


class ApiError(ClockhouseError):
    """The API refused. `code` is what programs decide by; `faults` lists all that is wrong."""

    def __init__(
        self,
        *,
        status: int,
        code: str,
        detail: str,
        title: str = "",
        faults: Sequence[Fault] = (),
        retry_after: float | None = None,
        request_id: str | None = None,
        document: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.title = title
        self.faults = tuple(faults)
        #: Seconds after which another try makes sense, where the server said so.
        self.retry_after = retry_after
        #: Names the request in the server's logs.
        self.request_id = request_id
        #: The problem document with whatever else it holds.
        self.document: Mapping[str, Any] = document or {}

    def __str__(self) -> str:
        lines = [f"{self.status} {self.code}: {self.detail}", *(f"  {fault}" for fault in self.faults)]
        return "\n".join(lines)


class BadRequest(ApiError):
    """400: it could not be read."""


class Unauthenticated(ApiError):
    """401: no key, or one that is not (or no longer) good."""


class Forbidden(ApiError):
    """403: the key may not do that."""


class NotFound(ApiError):
    """404: there is no such thing, for this tenant."""


class Conflict(ApiError):
    """409: the current state does not allow it."""


class RunUnderWay(Conflict):
    """409: an edit lost against a run that was just beginning. Nothing was changed."""


class EpochSuperseded(Conflict):
    """409: somebody claimed the run later; whoever held the old claim must stop."""


class StrictAllowanceExceeded(Conflict):
    """409: no room for another strict job at that second."""

    @property
    def nearest_available(self) -> datetime | None:
        """The nearest second with room."""
        text = self.document.get("nearest_available")
        return datetime.fromisoformat(text) if isinstance(text, str) else None


class WorkflowIdInUse(Conflict):
    """409: another workflow is open under that id."""


class PreconditionFailed(ApiError):
    """412: it was changed in the meantime; read it again."""


class PayloadTooLarge(ApiError):
    """413."""


class Invalid(ApiError):
    """422: understood, and wrong. `faults` has every reason."""


class NondeterministicChange(Invalid):
    """422: the other version would not have recorded what the workflow's history holds."""

    @property
    def first_diverging_event(self) -> Mapping[str, Any]:
        """The event: `seq`, `type`, `step`, and what was `expected` instead."""
        found = self.document.get("first_diverging_event")
        return found if isinstance(found, dict) else {}


class QuotaExceeded(ApiError):
    """429: too many requests, or a quota that is used up."""


class ServerError(ApiError):
    """500: a fault of the server."""


class Unavailable(ServerError):
    """502, 503, 504: away for the moment. With the code UNCONFIRMED it is done at home, and no other
    region has confirmed it yet (STRICT): the same request again says so once one has."""


_BY_CODE: dict[str, type[ApiError]] = {
    "RUN_UNDER_WAY": RunUnderWay,
    "EPOCH_SUPERSEDED": EpochSuperseded,
    "STRICT_ALLOWANCE_EXCEEDED": StrictAllowanceExceeded,
    "WORKFLOW_ID_IN_USE": WorkflowIdInUse,
    "NONDETERMINISTIC_DEFINITION_CHANGE": NondeterministicChange,
}
_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: PreconditionFailed,
    413: PayloadTooLarge,
    422: Invalid,
    429: QuotaExceeded,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def error_class(status: int, code: str) -> type[ApiError]:
    """The family of an answer."""
    if code in _BY_CODE:
        return _BY_CODE[code]
    return _BY_STATUS.get(status) or (ServerError if status >= 500 else ApiError)
