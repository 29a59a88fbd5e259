"""The control plane speaking to a cell's internal API: signed, short, never trusted to answer."""

from __future__ import annotations

import time
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
_turns = Turns()


class CellUnreachable(Exception):
    """The cell did not answer, or not as agreed."""


class CellRefused(CellUnreachable):
    """The cell says that its state does not allow it (409)."""


@lru_cache(maxsize=1)
def _http() -> httpx.Client:
    # `trust_env` off: a proxy meant for the outside must not see internal calls.
    return httpx.Client(timeout=_TIMEOUT, trust_env=False, limits=httpx.Limits(max_keepalive_connections=50))


def _exchange(
    name: str,
    url: str,
    method: str,
    path: str,
    content: bytes,
    headers: dict[str, str],
    timeout: httpx.Timeout,
) -> httpx.Response:
    fault = "no address"
    until = time.monotonic() + (timeout.read or 0.0)
    for address in _turns.order(url):
        left = until - time.monotonic()
        if left <= 0:
            break
        patience = httpx.Timeout(left, connect=min(left, timeout.connect or left))
        try:
            answer = _http().request(
                method, address + path, content=content, headers=headers, timeout=patience
            )
            if STANDBY_HEADER not in answer.headers:
                return answer
            _turns.refused(address)  # another region owns the cell now
            fault = "no region of the cell owns it now"
        except (httpx.ConnectError, httpx.ConnectTimeout) as e:
            _turns.refused(address)
            fault = f"{type(e).__name__}: {e}"
        except httpx.HTTPError as e:
            raise CellUnreachable(f"{name}: {type(e).__name__}: {e}") from e
    raise CellUnreachable(f"{name}: {fault}")


def call_cell(cell: Cell, method: str, path: str, body: Any = None, *, timeout: float | None = None) -> Any:
    """Calls a cell and gives its JSON answer back, which may take `timeout` seconds (5), all its
    addresses together. Raises `CellUnreachable`."""
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
    patience = _TIMEOUT if timeout is None else httpx.Timeout(timeout, connect=1.0)
    answer = _exchange(cell.name, url, method, path, content, headers, patience)
    if answer.status_code == httpx.codes.CONFLICT:
        raise CellRefused(f"{cell.name}: {_detail(answer)}")
    if answer.status_code != 200:
        raise CellUnreachable(f"{cell.name}: {answer.status_code} to {method} {path}: {answer.text[:200]}")
    try:
        return msgspec.json.decode(answer.content)
    except msgspec.DecodeError as e:
        raise CellUnreachable(f"{cell.name}: no JSON in the answer to {method} {path}") from e


def _detail(answer: httpx.Response) -> str:
    """The sentence of a problem document."""
    try:
        return str(msgspec.json.decode(answer.content)["detail"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return answer.text[:200]
