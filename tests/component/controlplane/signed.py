"""Speaks to Django as routers and cells do: every request signed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from django.conf import settings
from django.http import HttpResponse
from django.test import Client

from cells.contract import UNSIGNED_BODY, Caller, Scope, body_hash, sign_request


class Answer:
    """A response, its JSON at hand."""

    def __init__(self, response: HttpResponse) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.text = response.content.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    def __repr__(self) -> str:
        return f"{self.status} {self.text[:300]}"


class SignedClient:
    """One sender: who it signs as and what for."""

    def __init__(
        self,
        *,
        tenant_id: str = "",
        scopes: Iterable[str] = (Scope.ADMIN,),
        actor: str = "key:abcdefghij234567",
        kid: str = "router",
        secret: bytes | None = None,
        sign_body: bool = False,
        age_ms: int = 0,
    ) -> None:
        self.caller = Caller(tenant_id=tenant_id, actor=actor, scopes=tuple(str(s) for s in scopes))
        self._kid = kid
        self._secret = secret if secret is not None else settings.CONFIGURATION.router_key
        self._sign_body = sign_body
        self._age_ms = age_ms
        self._client = Client()

    def call(
        self,
        method: str,
        target: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        response = self._send(method, target, body, headers, content_type)
        return Answer(response)

    def download(self, target: str) -> bytes:
        """What is streamed, whatever it is."""
        response = self._send("GET", target, None, None, "application/json")
        assert response.status_code == 200, response
        return b"".join(response.streaming_content)

    def _send(
        self, method: str, target: str, body: Any, headers: Mapping[str, str] | None, content_type: str
    ) -> Any:
        if body is None:
            raw = b""
        else:
            raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        signed = sign_request(
            kid=self._kid,
            secret=self._secret,
            now_ms=time.time_ns() // 1_000_000 - self._age_ms,
            method=method,
            target=target,
            caller=self.caller,
            body_sha256=body_hash(raw) if self._sign_body else UNSIGNED_BODY,
        )
        return self._client.generic(
            method, target, raw, content_type=content_type, headers={**signed, **(headers or {})}
        )

    def get(self, target: str, **more: Any) -> Answer:
        return self.call("GET", target, **more)

    def post(self, target: str, body: Any = None, **more: Any) -> Answer:
        return self.call("POST", target, {} if body is None else body, **more)

    def patch(self, target: str, body: Any, **more: Any) -> Answer:
        return self.call("PATCH", target, body, **more)

    def delete(self, target: str, **more: Any) -> Answer:
        return self.call("DELETE", target, **more)


def tenant_admin(tenant: Any, *scopes: str) -> SignedClient:
    """A key of that tenant."""
    return SignedClient(tenant_id=tenant.public_id, scopes=scopes or (Scope.ADMIN,))


def operator(tenant: Any = None) -> SignedClient:
    """An operator's key, acting for a tenant or for none."""
    return SignedClient(
        tenant_id=tenant.public_id if tenant else "", scopes=(Scope.OPERATOR,), actor="key:operatorkey23456"
    )
