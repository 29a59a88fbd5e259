"""One OpenAPI document out of two: the cells' and the management API's.

Both are taken as data. What the router does for either (keys, limits, its own refusals) is said
here once, for every operation. The result is kept in `controlplane/routing/openapi.json`, so that
it can be read, compared and served with nothing else running; `make openapi` writes it anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]

_METHODS = ("get", "post", "put", "patch", "delete")
_SCHEMAS = "#/components/schemas/"
_OPERATORS = "/v1/admin/"
#: Renamed on the way: two parts, one vocabulary.
_PROBLEM_NAMES = ("Problem", "ProblemDocument")
_DECORATIONS = ("Document", "Request")

_INFO = {
    "title": "Clockhouse",
    "version": "1",
    "summary": "Every job at the right time.",
    "description": """\
JSON in and out, snake_case. Instants are RFC 3339 in UTC. Unknown fields and parameters are errors.

**Keys.** `Authorization: Bearer ch_live_…`. A key belongs to one tenant and holds scopes; `admin` holds all
of them but `operator`. Operators' keys (`ch_op_…`) name the tenant they act for in `X-Tenant-Id`.

**Errors** are problem documents (RFC 9457). Programs decide by `code`; `errors` lists every fault at once.

**Lists** are paged: `next_cursor` in the body, and `Link: …; rel="next"`.

**Changes.** An `ETag` is the version of a thing; `If-Match` makes an update conditional (412 otherwise).
`Idempotency-Key`, quoted or bare, makes a POST safe to repeat for 24 hours: the same key and body get the
first answer again, with status 200 and `Idempotency-Replayed: true`.

**Limits.** Every answer to a known key tells the tenant's allowance in `RateLimit-Policy` and `RateLimit`;
429 says in `Retry-After` when to come back.""",
}

#: Behind the cells' own tags, in this order. By the first segment of the path.
_MANAGEMENT_TAGS = {
    "tenant": ("Tenant", "Your account: settings, quotas and their use, placement."),
    "quotas": ("Tenant", "Your account: settings, quotas and their use, placement."),
    "members": ("Members", "Who may use the console, as what."),
    "api-keys": ("API keys", "Keys of programs."),
    "audit-log": ("Audit log", "Who changed what, when and why."),
    "usage": ("Usage and cost", "What was used, what doing it cost, what is charged."),
    "cost-reports": ("Usage and cost", "What was used, what doing it cost, what is charged."),
    "invoices": ("Usage and cost", "What was used, what doing it cost, what is charged."),
    "budget": ("Usage and cost", "What was used, what doing it cost, what is charged."),
    "billing-account": ("Usage and cost", "What was used, what doing it cost, what is charged."),
    "schedules": ("Usage and cost", "What was used, what doing it cost, what is charged."),
    "exports": ("Usage and cost", "What was used, what doing it cost, what is charged."),
    "export-schedules": ("Usage and cost", "What was used, what doing it cost, what is charged."),
    "tenant-exports": ("Tenant", "Your account: settings, quotas and their use, placement."),
    "notification-kinds": ("Notifications", "Who hears of what: rules, webhooks, mails, deliveries."),
    "notification-rules": ("Notifications", "Who hears of what: rules, webhooks, mails, deliveries."),
    "notification-deliveries": ("Notifications", "Who hears of what: rules, webhooks, mails, deliveries."),
    "admin": ("Operators", "For those who run Clockhouse; needs an operator's key."),
}

_HEADERS: Mapping[str, tuple[str, Json]] = {
    "X-Request-Id": ("Names this request in our logs. Yours, if you sent one.", {"type": "string"}),
    "RateLimit-Policy": ("The tenant's allowance: `q` requests in `w` seconds.", {"type": "string"}),
    "RateLimit": ("What is left of it: `r` requests, whole again in `t` seconds.", {"type": "string"}),
    "Retry-After": ("Seconds after which another try makes sense.", {"type": "integer", "minimum": 0}),
    "ETag": ("The version, for If-Match.", {"type": "string"}),
    "Location": ("Path of what was created.", {"type": "string"}),
    "Link": ('The next page, `rel="next"`; absent on the last.', {"type": "string"}),
    "Idempotency-Replayed": ("`true`: this is the first answer again.", {"const": "true"}),
    "WWW-Authenticate": ("How to authenticate.", {"type": "string"}),
}

_PARAMETERS: Mapping[str, Json] = {
    "TenantId": {
        "name": "X-Tenant-Id",
        "in": "header",
        "required": False,
        "description": "The tenant an operator's key acts for. With a tenant's key: that tenant, if at all.",
        "schema": {"type": "string"},
        "example": "tnt_01h455vb4pex5vsknk084sn02q",
    },
    "IdempotencyKey": {
        "name": "Idempotency-Key",
        "in": "header",
        "required": False,
        "description": "The same key and body are answered as before, for 24 hours; quoted or bare.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        "example": "5d0c1f3a-8a7e-4b52-9a61-0e2f7c9b1d44",
    },
    "IfMatch": {
        "name": "If-Match",
        "in": "header",
        "required": False,
        "description": "The version that is meant, as its ETag said it.",
        "schema": {"type": "string"},
        "example": '"3"',
    },
}

_REFUSALS: Mapping[int, tuple[str, str]] = {
    400: ("Malformed", "It could not be read: no JSON, no UTF-8, a bad header or path."),
    401: ("Unauthenticated", "No key, or one that is not known, was revoked or has expired."),
    403: ("Forbidden", "The key lacks the scope, is another tenant's, or the tenant is suspended."),
    404: ("NotFound", "There is nothing of yours by that name."),
    406: ("NotAcceptable", "Answers are JSON; Accept asks for something else."),
    409: ("Conflict", "The current state does not allow it; `code` says why."),
    412: ("PreconditionFailed", "If-Match names another version than the current one."),
    413: ("TooLarge", "The body or the payload is too large."),
    415: ("UnsupportedMediaType", "The body is not application/json."),
    422: ("Invalid", "Not valid; `errors` lists every fault."),
    429: ("TooManyRequests", "Over a quota; see Retry-After."),
    500: ("InternalError", "Our fault. The request's id finds it in our logs."),
    502: ("BrokenConnection", "The connection behind the router broke; it may or may not have taken effect."),
    503: ("Unavailable", "Not now; see Retry-After."),
    504: ("NoAnswerInTime", "No answer in time; it may or may not have taken effect."),
}
#: What the router alone may answer to anything.
_EVERYWHERE = (400, 401, 403, 404, 422, 429, 500, 502, 503, 504)


class CannotMerge(Exception):
    """The two documents contradict each other; the text says where."""


def merge(*, cells: Json, management: Json) -> Json:
    """The document of the whole API. Raises `CannotMerge` where both parts claim a path, an
    operation id or a schema's name."""
    cells, management = _with_plain_names(cells), _with_plain_names(management)
    paths = _union("path", cells["paths"], management["paths"])
    for path, item in management["paths"].items():
        for operation in _operations(item):
            operation["tags"] = [_tag_of(path)]
    schemas = _schemas(cells, management)
    versioned = _versioned(paths, schemas)
    for path, item in paths.items():
        for method, operation in item.items():
            _complete(path, method, operation)
            _say_version(operation, versioned)
    _check_operation_ids(paths)
    return {
        "openapi": "3.1.0",
        "info": _INFO,
        "servers": [{"url": "/", "description": "This installation"}],
        "tags": _tags(cells, paths),
        "security": [{"apiKey": []}],
        "paths": dict(sorted(paths.items(), key=lambda entry: _order(entry[0]))),
        "components": {
            "securitySchemes": {
                "apiKey": _bearer("A tenant's key, `ch_live_…`; or an operator's, with `X-Tenant-Id`."),
                "operatorKey": _bearer("An operator's key, `ch_op_…`."),
            },
            "parameters": _PARAMETERS,
            "headers": {
                name: {"description": text, "schema": schema} for name, (text, schema) in _HEADERS.items()
            },
            "responses": {name: _refusal(status, text) for status, (name, text) in _REFUSALS.items()},
            "schemas": dict(sorted(schemas.items())),
        },
    }


# --- one vocabulary ----------------------------------------------------------------------
def _with_plain_names(document: Json) -> Json:
    """Schemas without what a generator adds to their names; `ProblemDocument` becomes `Problem`."""
    names = {name: _plain(name) for name in document["components"]["schemas"]}
    if len(set(names.values())) < len(names):
        raise CannotMerge(f"two schemas would have one name: {sorted(names.values())}")

    def rename(node: Any) -> Any:
        if isinstance(node, list):
            return [rename(item) for item in node]
        if not isinstance(node, dict):
            return node
        made = {key: rename(value) for key, value in node.items()}
        reference = made.get("$ref")
        if isinstance(reference, str) and reference.startswith(_SCHEMAS):
            made["$ref"] = _SCHEMAS + names[reference.removeprefix(_SCHEMAS)]
        return made

    renamed: Json = rename({key: value for key, value in document.items() if key != "components"})
    renamed["components"] = {
        "schemas": {names[name]: rename(schema) for name, schema in document["components"]["schemas"].items()}
    }
    return renamed


def _plain(name: str) -> str:
    if name in _PROBLEM_NAMES:
        return "Problem"
    for decoration in _DECORATIONS:
        name = name.removesuffix(decoration)
    return name.removeprefix("Patched")


def _schemas(cells: Json, management: Json) -> Json:
    """All schemas; the cells say what a problem looks like."""
    theirs = {k: v for k, v in management["components"]["schemas"].items() if k != "Problem"}
    return _union("schema", cells["components"]["schemas"], theirs)


def _union(what: str, one: Json, other: Json) -> Json:
    both = sorted(one.keys() & other.keys())
    if both:
        raise CannotMerge(f"both parts have this {what}: {', '.join(both)}")
    return {**one, **other}


# --- operations --------------------------------------------------------------------------
def _operations(item: Json) -> Iterator[Json]:
    return (operation for method, operation in item.items() if method in _METHODS)


def _complete(path: str, method: str, operation: Json) -> None:
    """Say what the router adds, and what all operations have in common."""
    of_operators = path.startswith(_OPERATORS)
    scopes = [scope for need in operation.get("security", ()) for held in need.values() for scope in held]
    operation["security"] = [{"operatorKey" if of_operators else "apiKey": scopes}]
    operation.setdefault("summary", operation["operationId"].replace("_", " ").capitalize())
    parameters = [_plain_parameter(parameter) for parameter in operation.get("parameters", ())]
    if not of_operators:
        parameters.append({"$ref": "#/components/parameters/TenantId"})
    named = {parameter.get("name") for parameter in parameters}
    operation["parameters"] = [_common_parameter(parameter) for parameter in parameters]
    _settle_body(method, operation)
    _settle_answers(method, operation, named)


def _common_parameter(parameter: Json) -> Json:
    for name, common in _PARAMETERS.items():
        if common["name"] == parameter.get("name"):
            return {"$ref": f"#/components/parameters/{name}"}
    return parameter


def _plain_parameter(parameter: Json) -> Json:
    """A parameter is there or not; it is never null."""
    schema = parameter.get("schema", {})
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    if "anyOf" in schema:
        rest = {key: value for key, value in schema.items() if key != "anyOf"}
        schema = {**choices[0], **rest} if len(choices) == 1 else {**rest, "anyOf": choices}
    schema = {key: value for key, value in schema.items() if key not in ("title", "description")}
    return {**parameter, "schema": schema} if schema else parameter


def _settle_body(method: str, operation: Json) -> None:
    content = operation.get("requestBody", {}).get("content", {})
    if "application/*" in content:
        schema = content.pop("application/*")
        content["application/json"] = schema
        if method == "patch":
            content["application/merge-patch+json"] = schema


def _settle_answers(method: str, operation: Json, named: set[str | None]) -> None:
    answers: Json = operation["responses"]
    if "Idempotency-Key" in named and "201" in answers:
        answers.setdefault("200", {**answers["201"], "description": "Done before; the first answer again."})
    statuses = {int(status) for status in answers if int(status) >= 400} | set(_EVERYWHERE)
    if method in ("post", "put", "patch"):
        statuses |= {409, 413, 415}
    if "If-Match" in named:
        statuses |= {409, 412}
    good = {status: answer for status, answer in answers.items() if int(status) < 400}
    for status, answer in good.items():
        answer["description"] = answer.get("description") or "Done."
        answer["headers"] = _header_references(
            "X-Request-Id", "RateLimit-Policy", "RateLimit", *_own_headers(status, answer, named)
        )
    refused = {str(s): {"$ref": f"#/components/responses/{_REFUSALS[s][0]}"} for s in statuses}
    operation["responses"] = dict(sorted({**good, **refused}.items()))


def _own_headers(status: str, answer: Json, named: set[str | None]) -> list[str]:
    found = ["Location"] if status == "201" else []
    if "cursor" in named and status == "200":
        found.append("Link")
    if "Idempotency-Key" in named and status == "200":
        found.append("Idempotency-Replayed")
    return [*found, *(name for name in answer.get("headers", ()) if name in _HEADERS and name not in found)]


def _family(path: str) -> tuple[str, ...]:
    """What kind of thing a path is about: `jobs`, or `admin/tenants`."""
    nouns = [part for part in path.partition(":")[0].split("/")[2:] if not part.startswith("{")]
    return tuple(nouns[: 2 if nouns[0] == "admin" else 1])


def _versioned(paths: Json, schemas: Json) -> set[str]:
    """Schemas of things that updates with If-Match are about: answers that show one carry its ETag."""
    shown: dict[tuple[str, ...], set[str]] = {}
    updated: set[tuple[str, ...]] = set()
    read: set[str] = set()  # by GET, of things without updates
    for path, item in paths.items():
        family = _family(path)
        shown.setdefault(family, set()).update(name for o in _operations(item) for name in _answered(o))
        if any(p.get("name") == "If-Match" for o in _operations(item) for p in o.get("parameters", ())):
            updated.add(family)
    for path, item in paths.items():
        if _family(path) not in updated and "get" in item:
            read.update(_answered(item["get"]))
    names = {name for family in updated for name in shown[family]} - read
    return {name for name in names if "version" in schemas[name].get("properties", {})}


def _answered(operation: Json) -> Iterator[str]:
    """Names of the schemas of its good answers."""
    for status, answer in operation["responses"].items():
        for content in answer.get("content", {}).values() if int(status) < 400 else ():
            reference = content.get("schema", {}).get("$ref")
            if reference:
                yield reference.removeprefix(_SCHEMAS)


def _say_version(operation: Json, versioned: set[str]) -> None:
    if versioned.intersection(_answered(operation)):
        for answer in operation["responses"].values():
            if "content" in answer:
                answer["headers"] |= _header_references("ETag")


def _check_operation_ids(paths: Json) -> None:
    seen: set[str] = set()
    for item in paths.values():
        for operation in _operations(item):
            if operation["operationId"] in seen:
                raise CannotMerge(f"two operations are called {operation['operationId']}")
            seen.add(operation["operationId"])


# --- the rest ----------------------------------------------------------------------------
def _order(path: str) -> tuple[bool, list[str]]:
    """Operators' paths last; a thing's verbs behind the thing."""
    return path.startswith(_OPERATORS), path.replace(":", "/:").split("/")


def _tag_of(path: str) -> str:
    segment = path.split("/")[2].partition(":")[0]
    if segment not in _MANAGEMENT_TAGS:
        raise CannotMerge(f"no tag is known for {path}")
    return _MANAGEMENT_TAGS[segment][0]


def _tags(cells: Json, paths: Json) -> list[Json]:
    used = {tag for item in paths.values() for operation in _operations(item) for tag in operation["tags"]}
    described = {tag["name"]: tag.get("description", "") for tag in cells.get("tags", ())}
    for tag in sorted(used - described.keys() - {name for name, _ in _MANAGEMENT_TAGS.values()}):
        described[tag] = ""
    described.update(_MANAGEMENT_TAGS.values())
    return [{"name": name, "description": text} for name, text in described.items() if name in used]


def _refusal(status: int, text: str) -> Json:
    names = ["X-Request-Id"]
    if status not in (401, 502, 504):
        names += ["RateLimit-Policy", "RateLimit"]
    if status in (429, 502, 503, 504):
        names.append("Retry-After")
    if status == 401:
        names.append("WWW-Authenticate")
    return {
        "description": text,
        "headers": _header_references(*names),
        "content": {"application/problem+json": {"schema": {"$ref": _SCHEMAS + "Problem"}}},
    }


def _header_references(*names: str) -> Json:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _bearer(text: str) -> Json:
    return {"type": "http", "scheme": "bearer", "description": text}
