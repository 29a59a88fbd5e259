"""The document is complete, printable, and its examples are what the models take."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cells.api.app import routes_only
from cells.api.models import JobIn
from cells.api.openapi import document, main
from cells.api.target_models import TargetCreate


@pytest.fixture(scope="module")
def printed() -> dict[str, Any]:
    return document(routes_only())


def test_it_can_be_printed(capfdbinary: pytest.CaptureFixture[bytes], printed: dict[str, Any]) -> None:
    main()
    assert json.loads(capfdbinary.readouterr().out) == printed


def test_every_reference_leads_somewhere(printed: dict[str, Any]) -> None:
    schemas = printed["components"]["schemas"]
    for reference in _references(printed):
        assert reference.removeprefix("#/components/schemas/") in schemas


def _references(node: Any) -> list[str]:
    if isinstance(node, list):
        return [found for item in node for found in _references(item)]
    if not isinstance(node, dict):
        return []
    own = [node["$ref"]] if isinstance(node.get("$ref"), str) else []
    return own + [found for item in node.values() for found in _references(item)]


def test_the_examples_are_valid(printed: dict[str, Any]) -> None:
    for name, model in (("JobIn", JobIn), ("TargetCreate", TargetCreate)):
        examples = printed["components"]["schemas"][name]["examples"]
        assert examples
        for example in examples:
            example.pop("payload", None)
            model.model_validate_json(json.dumps(example))


def test_parameters_and_bodies_are_described(printed: dict[str, Any]) -> None:
    paths = printed["paths"]
    listed = {p["name"] for p in paths["/v1/jobs"]["get"]["parameters"]}
    filters = {"state", "target", "tag", "name_prefix", "due_from", "due_until"}
    assert listed == {"limit", "cursor", "include"} | filters
    create = paths["/v1/jobs"]["post"]
    assert [p["name"] for p in create["parameters"]] == ["Idempotency-Key"]
    assert {"200", "201", "400", "409", "413", "422"} <= create["responses"].keys()
    edit = paths["/v1/jobs/{job_id}"]["patch"]
    assert {p["name"] for p in edit["parameters"]} == {"job_id", "If-Match"}
    assert "application/merge-patch+json" in edit["requestBody"]["content"]
    assert {"404", "409", "412"} <= edit["responses"].keys()
    trigger = paths["/v1/jobs/{job_id}:trigger"]["post"]
    assert trigger["requestBody"]["required"] is False
