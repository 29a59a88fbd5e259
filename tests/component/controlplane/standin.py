"""A cell's internal API over HTTP, for the side that calls it: checks what it is sent with the
contract, keeps the newest version, and can be told to fail."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import msgspec

from cells.contract import BODY_HASH_HEADER, Scope, body_hash, verify_request
from cells.ports import TenantConfig


class StandInCell:
    """Use as a context manager; `url` answers meanwhile."""

    def __init__(self, name: str, key: bytes) -> None:
        self.name = name
        self.key = key
        self.tenants: dict[str, dict[str, Any]] = {}
        self.puts = 0
        self.lengthened: list[dict[str, Any]] = []
        self.usage: dict[str, Any] = {}  # what it remembers of a day
        self.punctuality: dict[str, Any] = {}  # what its ledger says
        self.returns: dict[str, Any] = {"items": [], "tenants": []}  # regions that came back
        self.reconciliation: list[dict[str, Any]] = []  # of any tenant
        self.stores: list[dict[str, Any]] = []  # local ones that hold rows of a tenant
        self.beside: list[dict[str, Any]] = []  # what local stores did of an erasure
        self.strict = {"jobs": 0, "workflows": 0}  # of a tenant, to be confirmed by another region
        self.failing = False
        self.erased: dict[str, bool] = {}  # whether that is done
        self.removed: dict[str, dict[str, int]] = {}
        self.epoch = 1
        self.feed: dict[str, list[dict[str, Any]]] = {}  # events by tenant, with their places
        self.read: list[dict[str, Any]] = []  # how its feed was asked for
        cell = self

        class Handler(BaseHTTPRequestHandler):
            wbufsize = -1  # an answer goes out whole: in two parts it waits for an acknowledgement

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Quiet."""

            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(body, lambda: cell._put(self.path, body))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(body, lambda: cell._post(self.path, body))

            def do_GET(self) -> None:
                self._answer(b"", lambda: cell._get(self.path))

            def _answer(self, body: bytes, act: Any) -> None:
                if cell.failing:
                    self.send_error(503)
                    return
                caller = verify_request(
                    keys={cell.name: cell.key}, now_ms=time.time_ns() // 1_000_000,
                    method=self.command, target=self.path, headers=self.headers,
                )  # fmt: skip
                assert self.headers[BODY_HASH_HEADER] == body_hash(body)
                assert caller.scopes == (Scope.INTERNAL,)
                assert caller.actor == "service:control-plane"
                raw = json.dumps(act()).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _put(self, path: str, raw: bytes) -> dict[str, Any]:
        tenant_id = path.removeprefix("/internal/tenants/")
        body = json.loads(raw)
        assert set(body) == {"state", "ownership_epoch", "config_version", "config"}
        # Exactly the cell's fields: a missing one would silently be a default.
        # How long undoing may take is the cell's own default until tenants can say otherwise.
        assert {*body["config"], "compensation_deadline_seconds"} == set(TenantConfig.__struct_fields__)
        msgspec.convert(body["config"], TenantConfig, strict=True)
        self.puts += 1
        held = self.tenants.get(tenant_id)
        # As the store does it: an older epoch or version never overwrites a newer one.
        applied = held is None or all(
            body[name] >= held[name] for name in ("ownership_epoch", "config_version")
        )
        if applied:
            self.tenants[tenant_id] = {"tenant_id": tenant_id, **body}
        return {"applied": applied, **self.tenants[tenant_id]}

    def _read(self, raw: bytes) -> dict[str, Any]:
        asked = json.loads(raw)
        self.read.append(asked)
        items = []
        for one in asked["tenants"]:
            behind = [
                e for e in self.feed.get(one["tenant_id"], []) if [*e["place"]] > (one["after"] or [-1])
            ]
            if behind:
                wanted = [e for e in behind if e["type"] in asked["types"]]
                reached = [*behind[-1]["place"]]
                items.append(
                    {"tenant_id": one["tenant_id"], "events": wanted, "reached": reached, "more": False}
                )
        return {"cell": self.name, "epoch": self.epoch, "items": items}

    def _post(self, path: str, raw: bytes) -> dict[str, Any]:
        if path == "/internal/events:read":
            return self._read(raw)
        if path.endswith("/erase"):
            return self._erase(path.removeprefix("/internal/tenants/").removesuffix("/erase"))
        assert path == "/internal/windows:lengthen"
        self.lengthened.append(json.loads(raw))
        return (
            {"jobs": 4, "cursor": "on"}
            if "cursor" not in self.lengthened[-1]
            else {"jobs": 3, "cursor": None}
        )

    def _erase(self, tenant_id: str) -> dict[str, Any]:
        """In two calls, as a cell that has much to remove."""
        begun, gone = tenant_id in self.erased, self.tenants.pop(tenant_id, None)
        self.erased[tenant_id] = begun
        if gone is not None:
            self.removed[tenant_id] = {"jobs": 3}
        return {
            "done": begun, "why": "" if begun else "removes what is in jobs",
            "removed": self.removed.get(tenant_id, {}),
            "erased_at": "2026-11-30T23:00:00+00:00" if begun else None,
            "own_done": begun, "stores": self.beside,
        }  # fmt: skip

    def _get(self, path: str) -> dict[str, Any]:
        if path == "/internal/erased-tenants":
            return {"items": [{"tenant_id": t, "done": done} for t, done in self.erased.items()]}
        if path.endswith("/use"):
            return {"pending_timers": 7, "running_runs": 1}
        if path.startswith("/internal/usage/"):
            return self.usage
        if path == "/internal/returns":
            return {"cell": self.name, **self.returns}
        if path.startswith("/internal/tenants/") and "/reconciliation" in path:
            return {"items": self.reconciliation, "next_cursor": None}
        if path.endswith("/stores"):
            return {"items": self.stores, "strict": self.strict}
        if path == "/internal/status":
            return {"cell": self.name, "hosts": []}
        if path.startswith("/internal/punctuality?"):
            return self.punctuality
        assert path == "/internal/tenants"
        return {"cell": self.name, "items": list(self.tenants.values())}
