"""The one OpenAPI document: true to the code, valid, and the same for all who ask."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from openapi_spec_validator import OpenAPIV31SpecValidator

from cells.api.app import routes_only
from cells.api.openapi import document as cells_document
from controlplane.api.document import KEPT, management_document, text_of
from controlplane.api.merging import merge
from controlplane.routing.table import Plane, plane_of


@pytest.fixture(scope="module")
def merged() -> dict[str, Any]:
    return merge(cells=cells_document(routes_only()), management=management_document())


def test_the_kept_document_is_what_the_code_says(merged: dict[str, Any]) -> None:
    assert KEPT.read_text() == text_of(merged), "the API changed: `make openapi` writes its document anew"


def test_it_is_valid_openapi(merged: dict[str, Any]) -> None:
    assert [error.message for error in OpenAPIV31SpecValidator(merged).iter_errors()] == []


def test_operators_have_keys_of_their_own(merged: dict[str, Any]) -> None:
    for path, item in merged["paths"].items():
        for method, operation in item.items():
            ((scheme, scopes),) = operation["security"][0].items()
            assert scheme == ("operatorKey" if path.startswith("/v1/admin/") else "apiKey"), (method, path)
            assert len(scopes) == 1, f"{method} {path} says no scope"


def test_every_path_has_a_way(merged: dict[str, Any]) -> None:
    ways = {path: plane_of(path) for path in merged["paths"]}
    assert set(ways.values()) == {Plane.DATA, Plane.MANAGEMENT}


def test_django_shows_it_with_the_router_s_address(client: Client) -> None:
    answer = client.get("/openapi/v1.json")
    assert answer.status_code == 200
    assert answer.json()["servers"] == [{"url": settings.PUBLIC_API_URL}]
    assert client.post("/openapi/v1.json").status_code == 405
