"""Errors as problem documents (RFC 9457), every fault of a request at once."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import structlog
from django.core.exceptions import PermissionDenied
from django.db import InterfaceError, OperationalError
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from billing import refusals
from cells.contract import PROBLEM_TITLES, ErrorCode, problem_type
from controlplane import errors

_LOG = structlog.get_logger(__name__)
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_STATUS_CODES = {
    400: ErrorCode.MALFORMED,
    401: ErrorCode.UNAUTHENTICATED,
    403: ErrorCode.FORBIDDEN,
    404: ErrorCode.NOT_FOUND,
    405: ErrorCode.METHOD_NOT_ALLOWED,
    406: ErrorCode.MALFORMED,
    413: ErrorCode.PAYLOAD_TOO_LARGE,
    415: ErrorCode.MALFORMED,
}


class Problem(Exception):
    """An answer that is an error."""

    def __init__(
        self,
        status: int,
        code: ErrorCode,
        detail: str,
        *,
        faults: list[dict[str, str]] | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.faults = faults or []
        self.headers = dict(headers or {})

    def response(self, request_id: str | None = None) -> Response:
        """The answer; `request_id` is what the router's logs call the request."""
        document: dict[str, Any] = {
            "type": problem_type(self.code),
            "title": PROBLEM_TITLES[self.code],
            "status": self.status,
            "detail": self.detail,
            "code": self.code.value,
        }
        if self.faults:
            document["errors"] = self.faults[:100]
        if request_id is not None:
            document["request_id"] = request_id
        return Response(document, self.status, headers=self.headers, content_type="application/problem+json")


def invalid(faults: list[dict[str, str]]) -> Problem:
    """422 with all faults."""
    detail = "1 fault; see errors." if len(faults) == 1 else f"{len(faults)} faults; see errors."
    return Problem(422, ErrorCode.INVALID, detail, faults=faults)


def bad_parameter(name: str, detail: str) -> Problem:
    """422 about one parameter of the query."""
    return invalid([{"parameter": name, "detail": detail}])


def faults_in(detail: Any, pointer: str = "") -> Iterator[dict[str, str]]:
    """The faults in what a serializer complains about, with JSON pointers."""
    if isinstance(detail, Mapping):
        for key, inner in detail.items():
            step = "" if key == "non_field_errors" else "/" + str(key).replace("~", "~0").replace("/", "~1")
            yield from faults_in(inner, pointer + step)
    elif isinstance(detail, list):
        for i, inner in enumerate(detail):
            nested = isinstance(inner, Mapping | list)
            yield from faults_in(inner, f"{pointer}/{i}" if nested else pointer)
    else:
        yield {"pointer": pointer, "detail": str(detail)}


def _of_refusal(error: errors.Refused) -> Problem:
    match error:
        case errors.NotFound():
            return Problem(404, ErrorCode.NOT_FOUND, f"There is {error}.")
        case errors.Forbidden():
            return Problem(403, ErrorCode.FORBIDDEN, str(error))
        case errors.Invalid():
            return invalid([{"pointer": f.pointer, "detail": f.detail} for f in error.faults])
        case errors.VersionMismatch():
            etag = {"ETag": f'"{error.current}"'}
            return Problem(412, ErrorCode.PRECONDITION_FAILED, str(error), headers=etag)
        case errors.Conflicting():
            return Problem(409, ErrorCode.CONFLICT, str(error))
        case _:
            return Problem(503, ErrorCode.UNAVAILABLE, str(error), headers={"Retry-After": "2"})


def _of_billing(error: refusals.Refused) -> Problem:
    """Billing knows nothing of the control plane: its refusals are of its own."""
    match error:
        case refusals.NotFound():
            return Problem(404, ErrorCode.NOT_FOUND, f"There is {error}.")
        case refusals.Invalid():
            return invalid([{"pointer": pointer, "detail": detail} for pointer, detail in error.faults])
        case refusals.VersionMismatch():
            etag = {"ETag": f'"{error.current}"'}
            return Problem(412, ErrorCode.PRECONDITION_FAILED, str(error), headers=etag)
        case refusals.Conflicting():
            return Problem(409, ErrorCode.CONFLICT, str(error))
        case _:
            return Problem(503, ErrorCode.UNAVAILABLE, str(error), headers={"Retry-After": "2"})


def of_exception(error: Exception) -> Problem:
    """The one table from exceptions to answers."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, errors.Refused):
        return _of_refusal(error)
    if isinstance(error, refusals.Refused):
        return _of_billing(error)
    if isinstance(error, exceptions.ValidationError):
        faults = list(faults_in(error.detail))
        if getattr(error, "in_query", False):
            faults = [{"parameter": f["pointer"][1:], "detail": f["detail"]} for f in faults]
        return invalid(faults)
    if isinstance(error, exceptions.APIException):
        status = error.status_code
        headers = {}
        if auth := getattr(error, "auth_header", None):
            headers["WWW-Authenticate"] = auth
        return Problem(
            status, _STATUS_CODES.get(status, ErrorCode.INTERNAL_ERROR), str(error.detail), headers=headers
        )
    if isinstance(error, Http404):
        return Problem(404, ErrorCode.NOT_FOUND, "There is no such thing.")
    if isinstance(error, PermissionDenied):
        return Problem(403, ErrorCode.FORBIDDEN, "Not allowed.")
    if isinstance(error, OperationalError | InterfaceError):
        _LOG.warning("database unavailable", error=str(error))
        return Problem(503, ErrorCode.UNAVAILABLE, "Try again shortly.", headers={"Retry-After": "2"})
    _LOG.error("unexpected error", exc_info=error)
    return Problem(500, ErrorCode.INTERNAL_ERROR, "It has been noted.")


def problem_response(error: Exception, context: Mapping[str, Any]) -> Response:
    """DRF's exception handler."""
    set_rollback()
    given = context["request"].headers.get("X-Request-Id", "")
    return of_exception(error).response(given if _REQUEST_ID.fullmatch(given) else None)
