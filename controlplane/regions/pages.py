"""What a keeper answers: `/healthz`, `/readyz`, `/metrics`, `/status`, and `/wishes/…` (see `asking.py`)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest

from controlplane.regions.asking import MOST_BYTES, answer_wish
from controlplane.regions.keeper import Keeper, Status
from controlplane.regions.settings import Settings

#: A keeper that has not looked for so long hangs (seconds).
_SILENT_SECONDS = 60.0
#: Who asks and then sends nothing for so long is not listened to any more (seconds).
_BODY_SECONDS = 10.0


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
        "streaming": status.streaming,
        "primary": status.primary,
        "position": status.position,
        "committed_at": status.committed_at,
        "replayed_at": status.replayed_at,
        "cut": None if status.cut is None else {"region": status.cut.region, "until": status.cut.until},
        "missing": status.missing,
        "log": [{"at": at, "act": act, "why": why} for at, act, why in status.log],
    }


def waited_for_votes(status: Status, epoch: int) -> float:
    """For how long (seconds) the keeper has waited for just the votes that are missing under this epoch; 0
    where it waits for none."""
    since = status.log[-1][0] if status.log and status.missing and status.epoch == epoch else None
    return 0.0 if since is None else max(0.0, time.time() - since)


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
def serving(keeper: Keeper, settings: Settings) -> Iterator[int]:
    """Answers in threads of its own while the block runs; the port."""
    figures = _Figures(keeper, settings.cell, settings.region)

    class Pages(BaseHTTPRequestHandler):
        timeout = _BODY_SECONDS

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

        def do_POST(self) -> None:
            length = self.headers.get("Content-Length", "")
            if not (length.isascii() and length.isdigit()) or int(length) > MOST_BYTES:
                self._answer(413, {"detail": f"a body of at most {MOST_BYTES} bytes, and its length"})
                return
            body = self.rfile.read(int(length))
            answer = answer_wish(
                settings,
                path=self.path,
                headers=self.headers,
                body=body,
                waited=lambda epoch: waited_for_votes(keeper.status, epoch),
            )
            self._answer(*answer)

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

    server = ThreadingHTTPServer((settings.bind_host, settings.bind_port), Pages)
    thread = threading.Thread(target=server.serve_forever, name="pages", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
