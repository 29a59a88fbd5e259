"""Two small documents become one, and contradictions are found."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.api.merging import CannotMerge, merge

Json = dict[str, Any]


def _operation(name: str, schema: str, **more: Any) -> Json:
    return {
        "operationId": name,
        "tags": ["Things"],
        "responses": {
            "200": {
                "description": "",
                "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
            }
        },
        **more,
    }


def _document(path: str, item: Json, *schemas: str) -> Json:
    shape = {"type": "object", "properties": {"version": {"type": "integer"}}}
    return {"paths": {path: item}, "components": {"schemas": dict.fromkeys(schemas, shape)}}


IF_MATCH = {"name": "If-Match", "in": "header", "schema": {"type": "string"}}
CELLS = _document(
    "/v1/jobs/{job_id}",
    {
        "get": _operation("read_job", "Job", security=[{"key": ["jobs:read"]}]),
        "patch": _operation("edit_job", "Job", parameters=[IF_MATCH], security=[{"key": ["jobs:write"]}]),
    },
    "Job",
    "Problem",
)
MANAGEMENT = _document(
    "/v1/admin/cells",
    {"get": _operation("list_cells", "CellDocument", security=[{"ApiKey": ["operator"]}])},
    "CellDocument",
    "ProblemDocument",
)


@pytest.fixture
def merged() -> Json:
    return merge(cells=CELLS, management=MANAGEMENT)


def test_names_are_one_vocabulary(merged: Json) -> None:
    assert list(merged["components"]["schemas"]) == ["Cell", "Job", "Problem"]
    shown = merged["paths"]["/v1/admin/cells"]["get"]["responses"]["200"]["content"]["application/json"]
    assert shown == {"schema": {"$ref": "#/components/schemas/Cell"}}


def test_operators_come_last_and_with_their_own_key(merged: Json) -> None:
    assert list(merged["paths"]) == ["/v1/jobs/{job_id}", "/v1/admin/cells"]
    assert [tag["name"] for tag in merged["tags"]] == ["Things", "Operators"]
    assert merged["paths"]["/v1/admin/cells"]["get"]["security"] == [{"operatorKey": ["operator"]}]
    assert merged["paths"]["/v1/jobs/{job_id}"]["get"]["security"] == [{"apiKey": ["jobs:read"]}]


def test_the_router_s_refusals_are_everywhere(merged: Json) -> None:
    for item in merged["paths"].values():
        for operation in item.values():
            assert {"400", "401", "403", "404", "429", "502", "503", "504"} <= operation["responses"].keys()


def test_what_is_versioned_has_its_etag(merged: Json) -> None:
    item = merged["paths"]["/v1/jobs/{job_id}"]
    assert "ETag" in item["get"]["responses"]["200"]["headers"]
    assert {"$ref": "#/components/parameters/IfMatch"} in item["patch"]["parameters"]
    assert "ETag" not in merged["paths"]["/v1/admin/cells"]["get"]["responses"]["200"]["headers"]


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (_document("/v1/jobs/{job_id}", {"get": _operation("x", "Job")}, "Job"), "path"),
        (_document("/v1/tenant", {"get": _operation("read_job", "Tenant")}, "Tenant"), "read_job"),
        (_document("/v1/tenant", {"get": _operation("x", "Job")}, "Job"), "schema"),
        (_document("/v1/tenant", {"get": _operation("x", "A")}, "A", "ARequest"), "one name"),
    ],
)
def test_contradictions_are_found(other: Json, says: str) -> None:
    other["paths"].setdefault("/v1/tenant", {})
    with pytest.raises(CannotMerge, match=says):
        merge(cells=CELLS, management=other)
