"""Somebody's machine that takes webhooks: keeps what it gets, and does as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Got:
    """One request."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def document(self) -> Any:
        return json.loads(self.body)


class Receiver:
    """Use as a context manager. `answers` holds statuses to give, in order; then 204. A status may come with
    headers. `before_answer` is called with each request before it is answered: it may wait."""

    def __init__(self) -> None:
        self.got: list[Got] = []
        self.answers: list[int | tuple[int, dict[str, str]]] = []
        self.before_answer: Callable[[Got], None] = lambda got: None
        self.released = threading.Event()  # for those that wait
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
                """Quiet."""

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                got = Got(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
                receiver.got.append(got)
                receiver.before_answer(got)
                answer = receiver.answers.pop(0) if receiver.answers else 204
                status, headers = answer if isinstance(answer, tuple) else (answer, {})
                try:
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", "0" if status == 204 else "5")
                    self.end_headers()
                    if status != 204:
                        self.wfile.write(b"said\n")
                except OSError:
                    self.close_connection = True  # whoever asked did not wait

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
