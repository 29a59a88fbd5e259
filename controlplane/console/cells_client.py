"""Speaks to a tenant's cell as a member: the same API, the same scopes, signed with the cell's key.

A cell that is away is an answer like any other: `CellAway` carries a sentence for the page.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self
from urllib.parse import quote, urlencode

import httpx
import msgspec
from django.db import DatabaseError

from cells.contract import Caller, ErrorCode, body_hash, sign_request
from controlplane.addresses import Turns
from controlplane.operators.support import TARGETS_CLOSED, Guest, record_act
from controlplane.tenants.models import Membership
from controlplane.topology.cell_keys import open_cell_key
from controlplane.topology.models import Placement, Site

_TIMEOUT = httpx.Timeout(5.0, connect=1.0)
#: A check of a definition looks for ten.
_ASKING_SECONDS = 15.0
#: How many documents of one page are fetched at once.
_AT_ONCE = 8
#: Sent by POST, and change nothing: forms ask them while they are filled in.
_ASKS_ONLY = re.compile(r"/v1/(schedules:preview|workflow-definitions/.*:check)")
_turns = Turns()


class CellAway(Exception):
    """The cell did not answer. The text is meant for people."""


class NotDone(CellAway):
    """The same where it is known that nothing was done: nothing was sent, or it went to the wrong cell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One fault of a refused request: where (`/schedule/cron`, or a parameter's name) and what."""

    place: str
    detail: str
    line: int | None = None  # of a text that was sent


class Refused(Exception):
    """The cell answered with a problem document."""

    def __init__(self, status: int, document: Mapping[str, Any]) -> None:
        self.status = status
        self.code = str(document.get("code", ""))
        self.detail = str(document.get("detail") or document.get("title") or f"The cell answered {status}.")
        self.document = document
        self.faults = [
            Fault(
                place=str(item.get("pointer") or item.get("parameter") or item.get("header") or ""),
                detail=str(item.get("detail", "")),
                line=item.get("line"),
            )
            for item in document.get("errors") or []
        ]
        super().__init__(self.detail)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a cell answered."""

    status: int
    document: Any
    etag: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@lru_cache(maxsize=1)
def _http() -> httpx.Client:
    # A cell closes connections that were idle for five seconds.
    limits = httpx.Limits(max_keepalive_connections=50, keepalive_expiry=3.0)
    return httpx.Client(timeout=_TIMEOUT, trust_env=False, limits=limits)


def path(*segments: str, verb: str = "") -> str:
    """`/v1/jobs/job_1:pause` from its parts, each escaped."""
    joined = "/".join(quote(segment, safe=":") for segment in segments)
    return f"/v1/{joined}:{verb}" if verb else f"/v1/{joined}"


def _changes_targets(target: str) -> bool:
    """Whether what is not read here is a target. A test call changes none."""
    return target.startswith("/v1/targets") and not target.endswith(":test")


def _admit(guest: Guest, method: str, target: str) -> None:
    """A visiting operator's act is in the tenant's audit log before it is sent, or is not sent."""
    if _changes_targets(target):
        raise Refused(403, {"status": 403, "code": ErrorCode.FORBIDDEN.value, "detail": TARGETS_CLOSED})
    if _ASKS_ONLY.fullmatch(target):
        return
    try:
        record_act(guest, method=method, path=target)
    except DatabaseError as fault:
        raise NotDone("It could not be written to the audit log, so it was not sent.") from fault


class CellClient:
    """One member's view of the cell their tenant lives on."""

    def __init__(
        self, *, base_url: str, cell: str, secret: bytes, caller: Caller, guest: Guest | None = None
    ) -> None:
        self._guest = guest
        self._base_url = base_url
        self._cell = cell
        self._secret = secret
        self._caller = caller

    @classmethod
    def for_member(cls, membership: Membership | Guest) -> Self:
        """A client with the member's own scopes. `CellAway` while the tenant is not placed."""
        tenant = membership.tenant
        placement = Placement.objects.select_related("cell").filter(tenant=tenant).first()
        if placement is None:
            raise NotDone("Your workspace is being set up. This page will work in a moment.")
        cell = placement.cell
        url = Site.objects.filter(cell=cell, primary=True).values_list("url", flat=True).first()
        if url is None:
            raise NotDone("The cell your workspace lives on has no address yet.")
        caller = Caller(
            tenant_id=tenant.public_id,
            actor=membership.user.actor_name,
            scopes=tuple(sorted(str(scope) for scope in membership.scopes)),
            epoch=max(placement.epoch, cell.ownership_epoch),
        )
        return cls(
            base_url=url.rstrip("/"),
            cell=cell.name,
            secret=open_cell_key(cell.name, bytes(cell.sealed_key)),
            caller=caller,
            guest=membership if isinstance(membership, Guest) else None,
        )

    def get(self, target: str, /, **query: object) -> Any:
        """The document at a path; parameters that are None or empty are left out."""
        return self._send("GET", target, query=query).document

    def get_many(self, targets: Iterable[str]) -> dict[str, Any]:
        """Several documents, some at a time, by path (with query). What is not there is left out."""
        wanted = list(dict.fromkeys(targets))
        if not wanted:
            return {}
        with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(wanted))) as pool:
            found = zip(wanted, pool.map(self._get_or_none, wanted), strict=True)
            return {target: document for target, document in found if document is not None}

    def _get_or_none(self, target: str) -> Any:
        try:
            return self.get(target)
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def post(
        self,
        target: str,
        body: Mapping[str, Any] | None = None,
        *,
        idempotency_key: str | None = None,
        version: int | None = None,
    ) -> Answer:
        """Create or act. With an idempotency key it is safe to send it twice; with a version it is done
        only if it is still that one (else `Refused` 412)."""
        extra = {"Idempotency-Key": idempotency_key} if idempotency_key else {}
        if version is not None:
            extra["If-Match"] = f'"{version}"'
        return self._send("POST", target, body=body, extra=extra)

    def patch(self, target: str, body: Mapping[str, Any], *, version: int | None = None) -> Answer:
        """Change fields (RFC 7396); with a version only if it is still that one (else `Refused` 412)."""
        extra = {"If-Match": f'"{version}"'} if version is not None else {}
        return self._send("PATCH", target, body=body, extra=extra)

    def put(
        self, target: str, body: Mapping[str, Any], *, version: int | None = None, only_create: bool = False
    ) -> Answer:
        """Make it what the body says; with a version only if it is still that one, with `only_create` only
        if there is none (else `Refused` 412)."""
        extra = {"If-Match": f'"{version}"'} if version is not None else {}
        if only_create:
            extra["If-None-Match"] = "*"
        return self._send("PUT", target, body=body, extra=extra)

    def put_text(self, target: str, text: str) -> Answer:
        """Register what a text says, YAML or JSON."""
        return self._send("PUT", target, text=text)

    def post_text(self, target: str, text: str, **query: object) -> Answer:
        """Ask about a text; the answer may take a while."""
        return self._send("POST", target, text=text, query=query, seconds=_ASKING_SECONDS)

    def delete(self, target: str) -> Answer:
        """Remove (for jobs: cancel)."""
        return self._send("DELETE", target)

    def _send(
        self,
        method: str,
        target: str,
        *,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, Any] | None = None,
        text: str | None = None,
        extra: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> Answer:
        if self._guest is not None and method != "GET":
            _admit(self._guest, method, target)
        asked = {name: str(value) for name, value in (query or {}).items() if value not in (None, "")}
        full = f"{target}?{urlencode(asked)}" if asked else target
        content = b"" if body is None else msgspec.json.encode(body)
        if text is not None:
            content, extra = text.encode(), {"Content-Type": "application/yaml"}
        for address in _turns.order(self._base_url):
            request = self._request(method, address + full, content)
            request.headers.update(extra or {})
            if seconds is not None:
                request.extensions["timeout"] = httpx.Timeout(seconds, connect=1.0).as_dict()
            try:
                return _read(self._exchange(request))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                _turns.refused(address)
        raise NotDone(
            "It does not answer. Jobs it holds are safe and run on schedule as soon as it is back; "
            "so does this page."
        )

    def _request(self, method: str, url: str, content: bytes) -> httpx.Request:
        request = _http().build_request(method, url, content=content or None)
        request.headers.update(
            sign_request(
                kid=self._cell,
                secret=self._secret,
                now_ms=time.time_ns() // 1_000_000,
                method=method,
                target=request.url.raw_path.decode("ascii"),
                caller=self._caller,
                body_sha256=body_hash(content),
            )
        )
        if content:
            request.headers["Content-Type"] = "application/json"
        return request

    @staticmethod
    def _exchange(request: httpx.Request) -> httpx.Response:
        try:
            return _http().send(request)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise  # nothing was sent: another address may answer
        except httpx.TimeoutException:
            raise CellAway("The cell took too long to answer. Try again in a moment.") from None
        except httpx.HTTPError:
            raise CellAway("The connection to the cell broke. Try again in a moment.") from None


def _read(response: httpx.Response) -> Answer:
    try:
        document: Any = msgspec.json.decode(response.content) if response.content else None
    except msgspec.DecodeError:
        raise CellAway("The cell gave an answer that cannot be read.") from None
    if response.status_code == 421:
        raise NotDone("Your workspace is being moved to another cell. This takes seconds.")
    if response.status_code >= 500 or (response.status_code >= 300 and not isinstance(document, dict)):
        raise CellAway("The cell cannot do this right now. Try again in a moment.")
    if response.status_code >= 300:
        raise Refused(response.status_code, document)
    return Answer(
        status=response.status_code,
        document=document,
        etag=response.headers.get("ETag"),
        headers=response.headers,
    )
