"""The control plane speaking to a cell's internal API: signed, short, never trusted to answer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import httpx
import msgspec

from cells.contract import STANDBY_HEADER, Caller, Scope, body_hash, sign_request
from controlplane.addresses import Turns
from controlplane.topology.cell_keys import open_cell_key
from controlplane.topology.models import Cell, Site

_CALLER = Caller(actor="service:control-plane", scopes=(Scope.INTERNAL.value,))
_TIMEOUT = httpx.Timeout(5.0, connect=1.0)
#: Cells that are asked at once.
_AT_ONCE = 16
_turns = Turns()


class CellUnreachable(Exception):
    """The cell did not answer, or not as agreed."""


class CellRefused(CellUnreachable):
    """The cell says that its state does not allow it (409)."""


@lru_cache(maxsize=1)
def _http() -> httpx.Client:
    # `trust_env` off: a proxy meant for the outside must not see internal calls.
    return httpx.Client(timeout=_TIMEOUT, trust_env=False, limits=httpx.Limits(max_keepalive_connections=50))


@dataclass(frozen=True, slots=True)
class _Request:
    """Signed, and ready to be sent from any thread."""

    cell: str
    url: str
    method: str
    path: str
    content: bytes
    headers: dict[str, str]


def _exchange(request: _Request, timeout: httpx.Timeout) -> httpx.Response:
    fault = "no address"
    until = time.monotonic() + (timeout.read or 0.0)
    for address in _turns.order(request.url):
        left = until - time.monotonic()
        if left <= 0:
            break
        patience = httpx.Timeout(left, connect=min(left, timeout.connect or left))
        try:
            answer = _http().request(
                request.method,
                address + request.path,
                content=request.content,
                headers=request.headers,
                timeout=patience,
            )
            if STANDBY_HEADER not in answer.headers:
                return answer
            _turns.refused(address)  # another region owns the cell now
            fault = "no region of the cell owns it now"
        except (httpx.ConnectError, httpx.ConnectTimeout) as e:
            _turns.refused(address)
            fault = f"{type(e).__name__}: {e}"
        except httpx.HTTPError as e:
            raise CellUnreachable(f"{request.cell}: {type(e).__name__}: {e}") from e
    raise CellUnreachable(f"{request.cell}: {fault}")


def call_cell(cell: Cell, method: str, path: str, body: Any = None, *, timeout: float | None = None) -> Any:
    """Calls a cell and gives its JSON answer back, which may take `timeout` seconds (5), all its
    addresses together. Raises `CellUnreachable`."""
    request = _request(cell, method, path, body)
    return _read(request, _exchange(request, _TIMEOUT if timeout is None else _patience(timeout)))


def ask_cells(cells: Sequence[Cell], path: str, *, timeout: float) -> dict[str, Any]:
    """What each of some cells answers to the same GET, by name: its JSON, or the `CellUnreachable` that
    came of it. All are asked at once, and take `timeout` seconds together."""
    found: dict[str, Any] = {}
    requests: list[_Request] = []
    for cell in cells:
        try:
            requests.append(_request(cell, "GET", path))
        except CellUnreachable as fault:
            found[cell.name] = fault

    def ask(request: _Request) -> Any:
        left = until - time.monotonic()
        if left <= 0:
            return CellUnreachable(f"{request.cell}: those before it took too long")
        try:
            return _read(request, _exchange(request, _patience(left)))
        except CellUnreachable as fault:
            return fault

    until = time.monotonic() + timeout
    if requests:
        with ThreadPoolExecutor(max_workers=min(_AT_ONCE, len(requests))) as pool:
            answers = pool.map(ask, requests)
            found |= {request.cell: answer for request, answer in zip(requests, answers, strict=True)}
    return found


def _patience(seconds: float) -> httpx.Timeout:
    return httpx.Timeout(seconds, connect=1.0)


def _request(cell: Cell, method: str, path: str, body: Any = None) -> _Request:
    url = Site.objects.filter(cell=cell, primary=True).values_list("url", flat=True).first()
    if url is None:
        raise CellUnreachable(f"{cell.name} has no site")
    content = b"" if body is None else msgspec.json.encode(body)
    headers = sign_request(
        kid=cell.name,
        secret=open_cell_key(cell.name, bytes(cell.sealed_key)),
        now_ms=time.time_ns() // 1_000_000,
        method=method,
        target=path,
        caller=_CALLER,
        body_sha256=body_hash(content),
    )
    if content:
        headers["Content-Type"] = "application/json"
    return _Request(cell.name, url, method, path, content, headers)


def _read(request: _Request, answer: httpx.Response) -> Any:
    name, what = request.cell, f"{request.method} {request.path}"
    if answer.status_code == httpx.codes.CONFLICT:
        raise CellRefused(f"{name}: {_detail(answer)}")
    if answer.status_code != 200:
        raise CellUnreachable(f"{name}: {answer.status_code} to {what}: {answer.text[:200]}")
    try:
        return msgspec.json.decode(answer.content)
    except msgspec.DecodeError as e:
        raise CellUnreachable(f"{name}: no JSON in the answer to {what}") from e


def _detail(answer: httpx.Response) -> str:
    """The sentence of a problem document."""
    try:
        return str(msgspec.json.decode(answer.content)["detail"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return answer.text[:200]
