"""A target that costs almost nothing: nginx where it is installed, so that what is measured is us."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from deploy.ports import Reservation
from tests.recorder import Recorder
from tests.waiting import eventually_sync

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
KIND = "nginx target" if NGINX else "Python target (nginx is not installed)"

_CONFIGURATION = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log warn;
{user}
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 100000000; keepalive_timeout 300s;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ return 200 "ok"; }} }}
}}
"""


@contextmanager
def cheap_target(folder: Path) -> Iterator[tuple[str, int | None]]:
    """Base URL of a running target, and its pid (None for the Python one)."""
    if NGINX is None:
        with Recorder() as recorder:
            yield recorder.url, None
        return
    import os

    reservation = Reservation()
    user = "user root;" if os.geteuid() == 0 else ""
    configuration = folder / "nginx.conf"
    configuration.write_text(_CONFIGURATION.format(folder=folder, port=reservation.port, user=user))
    child = subprocess.Popen([NGINX, "-p", str(folder), "-c", str(configuration)], stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{reservation.port}"

    def answers() -> bool:
        try:
            return httpx.get(url).status_code == 200
        except httpx.TransportError:
            return False

    try:
        eventually_sync(answers, timeout=10)
        yield url, child.pid
    finally:
        child.terminate()
        child.wait(10)
        reservation.release()
