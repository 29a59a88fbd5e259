"""Addresses of the public API look alike, whoever answers them, and the router knows whose each is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module

from django.urls import URLPattern, URLResolver, get_resolver

from cells.api.app import routes_only
from controlplane.routing.table import Plane, plane_of

_NOUN = r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*"
_SHAPE = re.compile(rf"/v1(?:/(?:{_NOUN}|\{{\w+\}}))+(?::{_NOUN})?")
#: What answers 404 for every address below it that is nobody's.
_NOBODYS = "/v1/"
#: The description of the API itself, not a resource.
_DOCUMENT = "/v1/openapi.json"


def cell_routes() -> list[tuple[str, set[str]]]:
    """Path (parameters as `{name}`) and methods of every route of a cell."""
    return [
        (re.sub(r"\{(\w+)(?::\w+)?\}", r"{\1}", route.path), set(route.methods or ()))  # type: ignore[attr-defined]
        for route in routes_only().routes
    ]


def django_paths() -> Iterator[str]:
    """Paths of the management API, with parameters as `{name}`."""

    def walk(prefix: str, patterns: list[URLPattern | URLResolver]) -> Iterator[str]:
        for pattern in patterns:
            path = prefix + re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", str(pattern.pattern))
            if isinstance(pattern, URLResolver):
                yield from walk(path, pattern.url_patterns)
            else:
                yield path

    import_module("controlplane.urls")
    return (
        path
        for path in walk("/", get_resolver().url_patterns)
        if path.startswith("/v1/") and path != _NOBODYS
    )


def test_a_cells_addresses_have_one_shape() -> None:
    public = [path for path, _ in cell_routes() if path.startswith("/v1/")]
    assert [path for path in public if path != _DOCUMENT and not _SHAPE.fullmatch(path)] == []
    assert public, "there are none?"


def test_a_cell_has_public_and_internal_addresses_only() -> None:
    assert [path for path, _ in cell_routes() if not path.startswith(("/v1/", "/internal/"))] == []


def test_verbs_are_posted() -> None:
    verbs = [(path, methods) for path, methods in cell_routes() if ":" in path]
    assert [(path, methods) for path, methods in verbs if methods != {"POST"}] == []


def test_the_router_sends_a_cells_addresses_to_cells() -> None:
    wrong = [
        path for path, _ in cell_routes() if path.startswith("/v1/") and plane_of(path) is not Plane.DATA
    ]
    assert wrong == []


def test_the_management_api_has_the_same_shape() -> None:
    assert [path for path in django_paths() if not _SHAPE.fullmatch(path)] == []


def test_the_router_sends_management_addresses_to_django() -> None:
    assert [path for path in django_paths() if plane_of(path) is not Plane.MANAGEMENT] == []
