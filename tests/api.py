"""The public API as a user calls it: through the router, with a key."""

from __future__ import annotations

import uuid
from typing import Any

import httpx

Json = dict[str, Any]


class Refused(AssertionError):
    """An answer other than the expected one, with what it said."""


class Api:
    """Calls with one API key. Every method raises `Refused` on an unexpected status."""

    def __init__(self, base_url: str, key: str, *, tenant_id: str | None = None) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        if tenant_id:
            headers["X-Tenant-Id"] = tenant_id
        self.http = httpx.Client(base_url=base_url, headers=headers, timeout=30)

    def call(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        expect: tuple[int, ...] = (200, 201, 202, 204),
        headers: dict[str, str] | None = None,
    ) -> Json:
        answer = self.http.request(method, path, json=body, headers=headers)
        if answer.status_code not in expect:
            raise Refused(f"{method} {path}: {answer.status_code} {answer.text[:2000]}")
        document: Json = answer.json() if answer.content else {}
        return document

    def get(self, path: str, **params: Any) -> Json:
        answer = self.http.get(path, params=params)
        if answer.status_code != 200:
            raise Refused(f"GET {path}: {answer.status_code} {answer.text[:2000]}")
        document: Json = answer.json()
        return document

    def create_job(self, body: Json) -> Json:
        """A job, under an idempotency key of its own."""
        return self.call("POST", "/v1/jobs", body, headers={"Idempotency-Key": str(uuid.uuid4())})

    def register_target(self, base_url: str, *, target_id: str | None = None, **fields: Any) -> Json:
        """A registered and approved target; the answer of the registration, with its `secret`."""
        body: Json = {"base_url": base_url, **fields}
        if target_id:
            body["target_id"] = target_id
        registered = self.call("POST", "/v1/targets", body)
        self.call("POST", f"/v1/targets/{registered['target_id']}:approve")
        return registered
