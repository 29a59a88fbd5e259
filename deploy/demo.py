"""Jobs of the demo tenant that really call the echo target, made through the public API."""

from __future__ import annotations

import datetime as dt
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

from deploy.children import CannotStart

TARGET_ID = "tgt_echo"
_PREFIX = "demo: "


class Api:
    """The public API as the demo tenant sees it."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._key = key

    def call(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        """Status and document of one call; status 0 where nobody answered."""
        # The address is our own router's, never one that somebody gave us.
        request = urllib.request.Request(  # noqa: S310
            self._url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as problem:
            with problem:
                return problem.code, _document(problem.read())
        except (OSError, json.JSONDecodeError):
            return 0, {}

    def expect(
        self, statuses: Sequence[int], method: str, path: str, body: object = None, *, within: float = 30.0
    ) -> dict[str, Any]:
        """The document of a call that must end with one of the statuses; repeated until it does."""
        deadline = time.monotonic() + within
        while True:
            status, document = self.call(method, path, body)
            if status in statuses:
                return document
            # A key or a placement that was made a moment ago is on its way to the router.
            if time.monotonic() > deadline or status in (400, 409, 422):
                raise CannotStart(f"{method} {path} answered {status}: {document}")
            time.sleep(0.1)


def _document(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except json.JSONDecodeError:
        return {"detail": content[:500].decode(errors="replace")}
    return document if isinstance(document, dict) else {}


def seed(api_url: str, api_key: str, *, echo_url: str, jobs: Sequence[Mapping[str, Any]]) -> None:
    """Register and approve the echo target and make the jobs, unless they are there."""
    api = Api(api_url, api_key)
    _ensure_target(api, echo_url)
    query = urllib.parse.urlencode({"name_prefix": _PREFIX, "limit": 100})
    known = {job["name"] for job in api.expect([200], "GET", f"/v1/jobs?{query}")["items"]}
    for job in jobs:
        if job["name"] not in known:
            api.expect([200, 201], "POST", "/v1/jobs", job)


def _ensure_target(api: Api, echo_url: str) -> None:
    known = api.expect([200, 404], "GET", f"/v1/targets/{TARGET_ID}")
    if "target_id" not in known:
        body = {"target_id": TARGET_ID, "base_url": echo_url, "description": "answers what it receives"}
        known = api.expect([200, 201], "POST", "/v1/targets", body)
    if known["base_url"].rstrip("/") != echo_url:
        known = api.expect([200], "PATCH", f"/v1/targets/{TARGET_ID}", {"base_url": echo_url})
    if known["state"] != "APPROVED":
        api.expect([200], "POST", f"/v1/targets/{TARGET_ID}:approve", {})


def demo_jobs_now() -> list[Mapping[str, Any]]:
    """The demo jobs of an installation that starts now."""
    return demo_jobs(dt.datetime.now(dt.UTC))


def demo_jobs(now: dt.datetime) -> list[Mapping[str, Any]]:
    """One job of each kind of schedule."""
    soon = (now + dt.timedelta(seconds=30)).isoformat(timespec="seconds").replace("+00:00", "Z")
    return [
        {
            "name": _PREFIX + "every ten seconds",
            "schedule": {"type": "RATE", "every_seconds": 10},
            "target": {"target_id": TARGET_ID, "path": "/demo/rate"},
            "payload": {"hello": "every ten seconds"},
        },
        {
            "name": _PREFIX + "every minute",
            "schedule": {"type": "CRON", "cron": "* * * * *", "time_zone": "Europe/Zurich"},
            "target": {"target_id": TARGET_ID, "path": "/demo/cron"},
            "payload": {"hello": "every minute"},
        },
        {
            "name": _PREFIX + "once",
            "schedule": {"type": "ONCE", "run_at": soon},
            "target": {"target_id": TARGET_ID, "path": "/demo/once"},
            "payload": {"hello": "once"},
        },
    ]


def hello(api_url: str, api_key: str) -> str:
    """A line for a shell that makes a job which calls the echo target five seconds later."""
    job = {
        "schedule": {"type": "ONCE", "run_at": "SOON"},
        "dispatch_window_seconds": 1,
        "target": {"target_id": TARGET_ID, "path": "/hello"},
        "payload": {"hello": "Clockhouse"},
    }
    # The shell puts the time in: outside the single quotes that keep the JSON as it is.
    soon = "'\"$(date -u -d '+5 seconds' +%Y-%m-%dT%H:%M:%SZ)\"'"
    body = json.dumps(job).replace("SOON", soon)
    return (
        f"curl -sS -X POST {api_url}/v1/jobs -H 'Authorization: Bearer {api_key}'"
        f" -H 'Content-Type: application/json' -d '{body}'"
    )
