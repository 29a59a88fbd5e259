"""The Idempotency-Key header: reading it, and one request at a time under one key.

The draft standard makes it a quoted string (RFC 8941); most clients send it bare. Both are
the same key. What was answered under a key is stored by the store, in the transaction of the
creation itself, for 24 hours.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import uuid
from collections.abc import Iterator

from cells.api.problems import conflict, header_fault, invalid
from cells.contract import IDEMPOTENCY_KEY_HEADER, ErrorCode
from cells.domain import ids

KEY_LIMIT = 255
_QUOTED = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])*)"')
_BARE = re.compile(r"[\x21\x23-\x7e]+")


def read_key(header: str | None) -> str | None:
    """The key in the header, None without one; a 422 if it is none."""
    if header is None:
        return None
    text = header.strip(" \t")
    if match := _QUOTED.fullmatch(text):
        key = re.sub(r"\\(.)", r"\1", match[1])
    elif _BARE.fullmatch(text):
        key = text
    else:
        raise invalid([header_fault(IDEMPOTENCY_KEY_HEADER, "is a string in ASCII, quoted or bare")])
    if not 0 < len(key) <= KEY_LIMIT:
        raise invalid([header_fault(IDEMPOTENCY_KEY_HEADER, f"has 1 to {KEY_LIMIT} characters")])
    return key


def is_key(text: str) -> bool:
    """Whether a key given inside of a body is one."""
    return 0 < len(text) <= KEY_LIMIT and text.isascii() and text.isprintable()


def fingerprint(body: bytes) -> bytes:
    """What tells one request body from another."""
    return hashlib.sha256(body).digest()


def keyed(route: str, key: str | None, body: bytes) -> tuple[str, str, bytes] | None:
    """What the store is told of a request with a key: route, key, fingerprint of the body."""
    return None if key is None else (route, key, fingerprint(body))


def job_id_for(
    tenant_id: uuid.UUID, route: str, key: str, body: bytes, *, store: int = ids.MAIN_STORE
) -> uuid.UUID:
    """The id of the job that a request makes under its key: the same for each retry, so that not
    even a lost record of the key makes a second job. Another request under a key whose record is
    gone after its 24 hours is another job, and must not be answered with the old one."""
    return ids.derived_id(tenant_id=tenant_id, key=f"{route}\n{key}\n{fingerprint(body).hex()}", store=store)


class InFlight:
    """The keyed requests this process is answering right now."""

    def __init__(self) -> None:
        self._keys: set[tuple[uuid.UUID, str, str]] = set()

    @contextlib.contextmanager
    def hold(self, tenant_id: uuid.UUID, route: str, key: str | None) -> Iterator[None]:
        """Keep a second request with the same key out (409) until this one is answered."""
        if key is None:
            yield
            return
        name = (tenant_id, route, key)
        if name in self._keys:
            raise conflict(
                "The first request with this key is still running; send it again when it is answered.",
                ErrorCode.IDEMPOTENCY_IN_PROGRESS,
            )
        self._keys.add(name)
        try:
            yield
        finally:
            self._keys.discard(name)
