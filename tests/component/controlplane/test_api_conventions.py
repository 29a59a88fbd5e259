"""What holds for the whole API: problems, unknown fields, pages, ETags, Idempotency-Key."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.api.models import IdempotencyKey
from controlplane.api.pagination import encode_cursor
from controlplane.tenants.models import ApiKey, Tenant
from tests.component.controlplane.contents import contents
from tests.component.controlplane.factories import MembershipFactory, TenantFactory
from tests.component.controlplane.signed import SignedClient, operator, tenant_admin

pytestmark = pytest.mark.django_db


@pytest.fixture
def tenant(control: None) -> Tenant:
    tenant: Tenant = TenantFactory()
    return tenant


def _faults(answer: Any) -> set[str]:
    return {e.get("pointer", e.get("parameter")) for e in answer.json["errors"]}


def test_all_faults_at_once_unknown_fields_among_them(tenant: Tenant) -> None:
    answer = operator().post(
        "/v1/admin/tenants",
        {
            "slug": 5, "nme": "x", "home_region": "here", "quotas": {"job_runs_per_second": "9", "speed": 1},
            "dedicated": "yes",
        },
    )  # fmt: skip
    assert answer.status == 422
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json["code"] == "INVALID"
    assert _faults(answer) == {
        "/slug", "/name", "/nme", "/quotas/job_runs_per_second", "/quotas/speed", "/dedicated",
    }  # fmt: skip


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b'"x"', b"", b"NaN"])
def test_what_is_no_json_object_is_malformed(tenant: Tenant, body: bytes) -> None:
    answer = tenant_admin(tenant).post("/v1/api-keys", body)
    if body:
        assert (answer.status, answer.json["code"]) == (400, "MALFORMED")
    else:
        assert _faults(answer) == {"/name", "/scopes"}


def test_a_problem_names_the_request_it_answers(tenant: Tenant) -> None:
    for path, status in (("/v1/api-keys/ch_nothing", 404), ("/v1/tenant/nothing", 404)):
        answer = tenant_admin(tenant).get(path, headers={"X-Request-Id": "req_17"})
        assert (answer.status, answer.json["request_id"]) == (status, "req_17")
        assert "request_id" not in tenant_admin(tenant).get(path).json
        strange = tenant_admin(tenant).get(path, headers={"X-Request-Id": "a b<c>"})
        assert "request_id" not in strange.json


def test_another_content_type_is_refused(tenant: Tenant) -> None:
    answer = tenant_admin(tenant).post("/v1/api-keys", b"a=b", content_type="text/plain")
    assert answer.status in (400, 415)
    assert answer.json["code"] == "MALFORMED"


def test_spaces_count_as_length(tenant: Tenant) -> None:
    body = {"name": "k" + " " * 120, "scopes": ["jobs:read"]}
    assert _faults(tenant_admin(tenant).post("/v1/api-keys", body)) == {"/name"}


def test_nul_names_nothing_and_finds_nothing(tenant: Tenant) -> None:
    client = tenant_admin(tenant)
    assert client.get("/v1/api-keys/a%00b").status == 404
    answer = client.get("/v1/audit-log?action=%00&subject=x")
    assert (answer.status, _faults(answer)) == (422, {"action"})
    cursor = encode_cursor(["\0"])
    assert _faults(client.get(f"/v1/audit-log?cursor={cursor}")) == {"cursor"}


def test_unknown_paths_methods_and_parameters(tenant: Tenant) -> None:
    client = tenant_admin(tenant)
    nowhere = client.get("/v1/nowhere")
    assert (nowhere.status, nowhere.json["code"]) == (404, "NOT_FOUND")
    wrong = client.delete("/v1/tenant")
    assert (wrong.status, wrong.json["code"]) == (405, "METHOD_NOT_ALLOWED")
    assert _faults(client.get("/v1/members?limit=0")) == {"limit"}
    assert _faults(client.get("/v1/members?cursor=xyz")) == {"cursor"}
    assert _faults(client.get("/v1/members?sort=name")) == {"sort"}
    assert _faults(client.get("/v1/usage?from=yesterday")) == {"from"}
    assert _faults(client.get("/v1/usage?since=2026-01-01")) == {"since"}


def test_old_signatures_are_refused(tenant: Tenant) -> None:
    client = SignedClient(tenant_id=tenant.public_id, age_ms=61_000)
    answer = client.get("/v1/tenant")
    assert (answer.status, answer.json["detail"]) == (401, "signature expired")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_escaped_paths_are_signed_in_one_form(tenant: Tenant) -> None:
    client = tenant_admin(tenant)
    assert client.get("/v1/api-keys/a%20b").status == 404
    assert client.get("/v1/api-keys/%C3%A4").status == 404


def test_etag_and_if_match(tenant: Tenant) -> None:
    client = tenant_admin(tenant)
    assert client.get("/v1/tenant").headers["ETag"] == '"1"'
    changed = client.patch("/v1/tenant", {"name": "Two"}, headers={"If-Match": '"1"'})
    assert (changed.status, changed.headers["ETag"], changed.json["name"]) == (200, '"2"', "Two")
    before = contents()
    for tag in ('"1"', 'W/"2"', "2", '"x"'):
        stale = client.patch("/v1/tenant", {"name": "Three"}, headers={"If-Match": tag})
        assert (stale.status, stale.json["code"]) == (412, "PRECONDITION_FAILED")
        assert stale.headers["ETag"] == '"2"'
    assert contents() == before
    assert client.patch("/v1/tenant", {"name": "Three"}, headers={"If-Match": "*"}).status == 200


def test_pages_hold_everything_once(tenant: Tenant) -> None:
    made = {MembershipFactory(tenant=tenant).public_id for _ in range(5)}
    client = tenant_admin(tenant)
    seen: list[str] = []
    target: str | None = "/v1/members?limit=2"
    while target:
        page = client.get(target)
        seen += [m["member_id"] for m in page.json["items"]]
        cursor = page.json["next_cursor"]
        target = f"/v1/members?limit=2&cursor={cursor}" if cursor else None
        assert ("Link" in page.headers) == (cursor is not None)
        if cursor:
            assert page.headers["Link"].endswith('; rel="next"')
    assert len(seen) == 5
    assert set(seen) == made


def test_keys_are_listed_in_pages_by_time(tenant: Tenant) -> None:
    client = tenant_admin(tenant)
    made = [client.post("/v1/api-keys", {"name": str(n), "scopes": ["jobs:read"]}).json for n in range(3)]
    first = client.get("/v1/api-keys?limit=2").json
    rest = client.get(f"/v1/api-keys?limit=2&cursor={first['next_cursor']}").json
    assert {k["key_id"] for k in first["items"] + rest["items"]} == {k["key_id"] for k in made}
    assert rest["next_cursor"] is None


@pytest.mark.parametrize("sent", ["once-1", '"once-1"'])
def test_a_repeated_create_is_answered_from_the_first(tenant: Tenant, sent: str) -> None:
    client = tenant_admin(tenant)
    body = {"name": "n", "scopes": ["jobs:read"]}
    first = client.post("/v1/api-keys", body, headers={"Idempotency-Key": '"once-1"'})
    again = client.post("/v1/api-keys", body, headers={"Idempotency-Key": sent})
    assert (first.status, again.status) == (201, 200)
    assert again.json == first.json
    assert again.headers["Location"] == first.headers["Location"]
    assert ApiKey.objects.filter(tenant=tenant.id).count() == 1
    stored = IdempotencyKey.objects.get()
    assert first.json["api_key"].encode() not in bytes(stored.sealed)


def test_the_same_key_for_something_else_is_refused(tenant: Tenant) -> None:
    client = tenant_admin(tenant)
    headers = {"Idempotency-Key": "k"}
    client.post("/v1/api-keys", {"name": "n", "scopes": ["jobs:read"]}, headers=headers)
    other = client.post("/v1/api-keys", {"name": "m", "scopes": ["jobs:read"]}, headers=headers)
    assert (other.status, other.json["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert ApiKey.objects.filter(tenant=tenant.id).count() == 1


def test_keys_of_tenants_and_routes_are_apart(tenant: Tenant) -> None:
    headers = {"Idempotency-Key": "k"}
    body = {"name": "n", "scopes": ["jobs:read"]}
    assert tenant_admin(tenant).post("/v1/api-keys", body, headers=headers).status == 201
    assert tenant_admin(TenantFactory()).post("/v1/api-keys", body, headers=headers).status == 201
    member = {"email": "a@example.com", "role": "viewer"}
    assert tenant_admin(tenant).post("/v1/members", member, headers=headers).status == 201


def test_a_failed_create_leaves_its_key_free(tenant: Tenant) -> None:
    client = tenant_admin(tenant)
    headers = {"Idempotency-Key": "k"}
    assert client.post("/v1/api-keys", {"name": "n", "scopes": ["x"]}, headers=headers).status == 422
    good = {"name": "n", "scopes": ["jobs:read"]}
    assert client.post("/v1/api-keys", good, headers=headers).status == 201


def test_bad_idempotency_keys(tenant: Tenant) -> None:
    client = tenant_admin(tenant)
    for key in ("", '""', "x" * 256):
        answer = client.post(
            "/v1/api-keys", {"name": "n", "scopes": ["jobs:read"]}, headers={"Idempotency-Key": key}
        )
        assert (answer.status, answer.json["code"]) == (400, "MALFORMED"), key
