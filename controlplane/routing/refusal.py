"""Answers the router gives in its own name: problem documents (RFC 9457)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from cells.contract import PROBLEM_TITLES, ErrorCode, problem_type


class Refusal(Exception):
    """A request that ends here, with what to tell the client.

    `detail` says what happened and what to do next. `retry_after_s` becomes `Retry-After`.
    """

    def __init__(
        self,
        status: int,
        code: ErrorCode,
        detail: str,
        *,
        retry_after_s: float | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
        extensions: Mapping[str, object] | None = None,
    ):
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers
        self.extensions = extensions or {}
        self.retry_after = None if retry_after_s is None else max(1, math.ceil(retry_after_s))

    def answer(self, request_id: str) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
        """Status, headers and body of the answer."""
        body = msgspec.json.encode(
            {
                "type": problem_type(self.code),
                "title": PROBLEM_TITLES[self.code],
                "status": self.status,
                "detail": self.detail,
                "code": self.code.value,
                "errors": [],
                "request_id": request_id,
                **self.extensions,
            }
        )
        headers = [
            (b"content-type", b"application/problem+json"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            *self.headers,
        ]
        if self.retry_after is not None:
            headers.append((b"retry-after", str(self.retry_after).encode()))
        return self.status, headers, body


def unavailable(detail: str, *, retry_after_s: float = 1.0, status: int = 503) -> Refusal:
    """Something behind the router is away, and nothing was done: whoever asked may ask again."""
    return Refusal(status, ErrorCode.UNAVAILABLE, detail, retry_after_s=retry_after_s)


def unknown(detail: str, *, status: int) -> Refusal:
    """502 or 504: the request was sent, and it may have been done. It has no `Retry-After`, by which
    programs and proxies would send it a second time."""
    return Refusal(status, ErrorCode.UNAVAILABLE, f"{detail} It is unknown whether the request took effect.")
