"""The OpenAPI document: what of it is made here, and the whole as it is kept."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from django.conf import settings
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe
from drf_spectacular.generators import SchemaGenerator

import controlplane.routing

#: Beside the router, which serves it too and must not need Django for it.
KEPT = Path(controlplane.routing.__file__).with_name("openapi.json")


def management_document() -> dict[str, Any]:
    """The management API's part, made from its views."""
    made = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    document: dict[str, Any] = json.loads(json.dumps(made))
    return document


def text_of(document: dict[str, Any]) -> str:
    """A document as it is kept: one member a line, so that changes can be read."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


@functools.cache
def kept_document() -> dict[str, Any]:
    """The document of the whole API, with the address of this installation's router."""
    document: dict[str, Any] = json.loads(KEPT.read_text())
    document["servers"] = [{"url": settings.PUBLIC_API_URL}]
    return document


@require_safe
def show(request: HttpRequest) -> JsonResponse:
    """For pages of the console that show the API; programs ask the router."""
    return JsonResponse(kept_document(), headers={"Cache-Control": "public, max-age=300"})
