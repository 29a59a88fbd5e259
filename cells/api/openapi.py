"""The OpenAPI 3.1 document. `python -m cells.api.openapi` prints it."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import PlainTextResponse
from pydantic.json_schema import models_json_schema

from cells.api import batch_models, models, shapes, target_models
from cells.api.problems import MEDIA_TYPE

TITLE = "Clockhouse: jobs, runs and targets"
_REF = "#/components/schemas/"
_EVERYWHERE = (400, 401, 403, 429, 500, 503)
_MEANING = {
    400: "It could not be read: no JSON, no UTF-8, a bad header or path.",
    401: "No key, or one that is not valid.",
    403: "The key lacks the scope, or the tenant is suspended.",
    404: "There is nothing of yours by that name.",
    409: "The current state does not allow it; `code` says why.",
    412: "If-Match names another version than the current one.",
    413: "The body or the payload is too large.",
    422: "Not valid; `errors` lists every fault.",
    429: "Over a quota; see Retry-After.",
    500: "Our fault.",
    503: "Not now; see Retry-After.",
}
_TAGS = {
    "Jobs": "What to call, and when.",
    "Schedules": "Trying a schedule out.",
    "Calendars": "Dates on which jobs do not run.",
    "Backfills": "Occurrences of the past that are to run after all.",
    "Runs": "What was called, and what came of it.",
    "Task queues": "What workers of yours poll.",
    "Workers": "What workers say of the runs they hold.",
    "Bulk changes": "Pausing, resuming and cancelling many jobs, exactly those that were shown.",
    "Targets": "The places jobs may call.",
    "Dead letters": "What failed for good.",
    "Statistics": "Minute by minute, past and to come.",
    "Workflows": "Steps in their order, that survive any crash.",
    "Workflow definitions": "What workflows do, version by version.",
    "Events": "What people should hear of.",
    "Regions": "What came back with a region that was lost.",
}


#: Shapes that no signature names.
_READ_BY_HAND = (models.JobPatch, target_models.TargetPatch, batch_models.BatchIn, shapes.Problem)


def _problem(status: int) -> dict[str, Any]:
    return {
        "description": _MEANING[status],
        "content": {MEDIA_TYPE: {"schema": {"$ref": f"{_REF}Problem"}}},
    }


def _header(name: str, description: str, **schema: Any) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": {"type": "string", **schema},
    }


def operation(route: dict[str, Any]) -> dict[str, Any]:
    """What FastAPI cannot see in a route's signature, as arguments of `add_api_route`."""
    answers: dict[int, tuple[str, Any]] = route["answers"]
    first = min(answers, key=lambda status: status != 201)
    responses: dict[int | str, dict[str, Any]] = {}
    for status, (description, model) in answers.items():
        responses[status] = {"description": description} | ({"model": model} if model is not None else {})
    may_be_malformed = route["method"] in ("POST", "PATCH", "PUT")
    # Control characters inside a path are 404, also where any name would do.
    also = {422, *((413,) if may_be_malformed else ()), *((404,) if "{" in route["path"] else ())}
    for status in sorted({*_EVERYWHERE, *route["problems"], *also}):
        responses[status] = _problem(status)
    extra: dict[str, Any] = {"parameters": []}
    if route["idempotent"]:
        extra["parameters"].append(
            _header(
                "Idempotency-Key",
                "The same key and body are answered as before, for 24 hours; quoted or bare.",
                maxLength=255,
                examples=["5d0c1f3a-8a7e-4b52-9a61-0e2f7c9b1d44"],
            )
        )
    if route["etag"]:
        extra["parameters"].append(
            _header("If-Match", "The version that is meant, as its ETag said it.", examples=['"3"'])
        )
    if route["patch"] is not None:
        extra["requestBody"] = {
            "required": True,
            "content": {
                media: {"schema": {"$ref": _REF + route["patch"].__name__}}
                for media in ("application/merge-patch+json", "application/json")
            },
        }
    if route["body"] is not None:
        extra["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": _REF + route["body"].__name__}}},
        }
    if route["text"]:
        media = ("application/yaml", "text/plain")
        extra["requestBody"] = {
            "required": not route["rule"].body_optional,
            "content": {one: {"schema": {"type": "string"}} for one in media},
        }
    takes_body = "body" in inspect.signature(route["function"]).parameters
    if takes_body and route["rule"].body_optional:
        extra["requestBody"] = {"required": False}
    scope = route["rule"].scope.value
    extra["security"] = [{"key": [scope]}]
    return {
        "status_code": first,
        "response_description": answers[first][0],
        "responses": responses,
        "summary": route["function"].__name__.replace("_", " ").capitalize(),
        "description": f"{inspect.getdoc(route['function']) or ''}\n\nScope: `{scope}`.",
        "operation_id": route["function"].__name__,
        "openapi_extra": extra,
        **({"response_class": PlainTextResponse} if route["plain"] else {}),
    }


def document(app: FastAPI) -> dict[str, Any]:
    """The whole document, made once."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=TITLE,
            version="1",
            openapi_version="3.1.0",
            summary="The data plane of the Clockhouse API.",
            description=(
                "Errors are problem documents (RFC 9457). Lists are paged by cursor. Instants are RFC "
                "3339 in UTC. Every POST that creates takes an Idempotency-Key."
            ),
            routes=app.routes,
            tags=[{"name": name, "description": text} for name, text in _TAGS.items()],
        )
        schemas = made.setdefault("components", {}).setdefault("schemas", {})
        _, more = models_json_schema(
            [(model, "validation") for model in _READ_BY_HAND],
            ref_template=_REF + "{model}",
        )
        for name, schema in more.get("$defs", {}).items():
            schemas.setdefault(name, schema)
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        made["components"]["securitySchemes"] = {
            "key": {"type": "http", "scheme": "bearer", "description": "An API key: `ch_live_…`."}
        }
        made["security"] = [{"key": []}]
        app.openapi_schema = made
    return app.openapi_schema


def main() -> None:
    """Print the document."""
    from cells.api.app import routes_only

    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(document(routes_only()))) + b"\n")


if __name__ == "__main__":
    main()
