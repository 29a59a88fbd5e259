"""What a keeper answers over HTTP: `/healthz`, `/readyz`, `/metrics`, `/status`."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest

from controlplane.regions.keeper import Keeper, Status

#: A keeper that has not looked for so long hangs (seconds).
_SILENT_SECONDS = 60.0


def document(status: Status) -> dict[str, object]:
    """The status as JSON."""
    return {
        "act": status.act.value,
        "why": status.why,
        "fault": status.fault,
        "owner": status.owner,
        "epoch": status.epoch,
        "owns": status.owns,
        "ready": status.ready,
        "cluster": status.cluster,
        "standbys": status.standbys,
        "log": [{"at": at, "act": act, "why": why} for at, act, why in status.log],
    }


class _Figures:
    def __init__(self, keeper: Keeper, cell: str, region: str) -> None:
        self.registry = CollectorRegistry()
        status = keeper.status
        labels = {"cell": cell, "region": region}

        def gauge(name: str, text: str, value: Callable[[], float]) -> None:
            made = Gauge(name, text, list(labels), registry=self.registry)
            made.labels(**labels).set_function(value)

        gauge("site_owns_cell", "1 while this site's lease on its cell is live", lambda: status.owns)
        gauge("site_ready", "1 while this site owns its cell or follows the owner", lambda: status.ready)
        gauge("site_epoch", "Epoch of the cell as this site sees it", lambda: status.epoch)
        gauge(
            "site_replication_behind_bytes",
            "What the slowest standby of this primary has not flushed",
            lambda: max((int(one["behind_bytes"]) for one in status.standbys), default=0),
        )


@contextmanager
def serving(keeper: Keeper, *, cell: str, region: str, host: str, port: int) -> Iterator[None]:
    """Answers in threads of its own while the block runs."""
    figures = _Figures(keeper, cell, region)

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/healthz":
                alive = time.monotonic() - keeper.looked_at < _SILENT_SECONDS
                self._answer(200 if alive else 503, {"status": "ok" if alive else "hangs"})
            elif path == "/readyz":
                self._answer(200 if keeper.status.ready else 503, {"ready": keeper.status.ready})
            elif path == "/status":
                self._answer(200, document(keeper.status))
            elif path == "/metrics":
                self._send(200, CONTENT_TYPE_LATEST, generate_latest(figures.registry))
            else:
                self._answer(404, {"status": "there is no such page"})

        def _answer(self, status: int, body: dict[str, object]) -> None:
            self._send(status, "application/json", json.dumps(body).encode())

        def _send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Probes come every second; they are no news."""

    server = ThreadingHTTPServer((host, port), Pages)
    thread = threading.Thread(target=server.serve_forever, name="pages", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
