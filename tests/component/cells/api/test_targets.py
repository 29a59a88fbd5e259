"""Registering, approving, editing and deleting targets."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from cells.contract import Scope
from cells.domain import ids
from cells.secrets import target_context
from tests.component.cells.api.harness import Api, Cell

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def opened(cell: Cell, target_id: str, purpose: str) -> list[bytes]:
    """The live secrets, newest first, as an executor opens them."""
    context = target_context(cell.api.tenant, target_id, purpose)
    return [
        cell.box.open(secret.sealed, context=context)
        for secret in await cell.store.target_secrets(cell.api.tenant, target_id)
        if secret.purpose == purpose
    ]


def raw(secret: str) -> bytes:
    assert secret.startswith("whsec_")
    return base64.b64decode(secret.removeprefix("whsec_"))


async def test_a_target_is_shown_without_its_secrets(running: Cell) -> None:
    api = running.api
    made = await api.send(
        "POST",
        "/v1/targets",
        {
            "base_url": "https://API.example:443/v1/",
            "auth": {"type": "BASIC", "username": "clock", "password": "pa55word"},
            "description": "two\nlines",
        },
    )
    assert made.status_code == 201
    target = made.json()
    assert ids.decode("tgt", target["target_id"]) is not None
    assert made.headers["location"] == f"/v1/targets/{target['target_id']}"
    assert (target["base_url"], target["state"]) == ("https://api.example/v1", "PENDING")
    assert (target["max_concurrency"], target["initial_concurrency"]) == (100, 100)
    assert target["auth"] == {"type": "BASIC", "username": "clock"}
    assert "pa55word" not in made.text
    assert await opened(running, target["target_id"], "SIGNING") == [raw(target["secret"])]
    assert len(raw(target["secret"])) == 32
    assert await opened(running, target["target_id"], "CREDENTIAL") == [b"pa55word"]
    read = await api.get(f"/v1/targets/{target['target_id']}")
    secret = target.pop("secret")
    assert read == target
    assert (await api.get("/v1/targets"))["items"] == [target]
    assert secret not in str(read)


async def test_addresses_that_may_not_be_called(api: Api) -> None:
    for base_url in (
        "http://127.0.0.1:9000",
        "http://localhost",
        "http://x.localhost:80",
        "http://10.0.0.1",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]",
        "http://0.0.0.0",
        "http://2130706433",
        "http://user:pw@api.example",
        "gopher://api.example",
    ):
        problem = await api.problem("POST", "/v1/targets", {"base_url": base_url}, status=422, code="INVALID")
        assert [fault["pointer"] for fault in problem["errors"]] == ["/base_url"], base_url
    target = await api.target()
    path = f"/v1/targets/{target['target_id']}"
    await api.problem("PATCH", path, {"base_url": "http://10.0.0.1"}, status=422, code="INVALID")
    assert (await api.get(path))["state"] == "APPROVED"
    assert len((await api.get("/v1/targets"))["items"]) == 1


async def test_an_id_is_taken_once(api: Api) -> None:
    body = {"base_url": "https://a.example", "target_id": "tgt_a"}
    await api.ok("POST", "/v1/targets", body, status=201)
    await api.problem("POST", "/v1/targets", body, status=409, code="CONFLICT")
    other = {"base_url": "https://b.example", "target_id": "tgt_a"}
    await api.problem(
        "POST", "/v1/targets", other, status=409, code="CONFLICT", headers={"Idempotency-Key": "k"}
    )
    assert (await api.get("/v1/targets/tgt_a"))["base_url"] == "https://a.example"


@pytest.mark.parametrize("chosen", [{}, {"target_id": "tgt_chosen"}])
async def test_a_registration_under_a_key(running: Cell, chosen: dict[str, Any]) -> None:
    api = running.api
    body = {"base_url": "https://a.example"} | chosen
    key = {"Idempotency-Key": "register"}
    first = await api.send("POST", "/v1/targets", body, headers=key)
    again = await api.send("POST", "/v1/targets", body, headers=key)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()
    await api.problem(
        "POST", "/v1/targets", body | {"base_url": "https://b.example"}, status=422,
        code="IDEMPOTENCY_KEY_REUSED", headers=key,
    )  # fmt: skip
    rotate = f"/v1/targets/{first.json()['target_id']}:rotate-secret"
    await api.ok("POST", rotate)
    assert "secret" not in (await api.send("POST", "/v1/targets", body, headers=key)).json()
    assert len((await api.get("/v1/targets"))["items"]) == 1


async def test_only_those_with_the_right_approve(running: Cell) -> None:
    api = running.api
    await api.ok("POST", "/v1/targets", {"base_url": "https://a.example", "target_id": "tgt_a"}, status=201)
    path = "/v1/targets/tgt_a"
    writer = api.with_scopes(Scope.JOBS_WRITE, Scope.JOBS_READ)
    await writer.problem("POST", path + ":approve", status=403, code="FORBIDDEN")
    await writer.problem("PATCH", path, {"state": "APPROVED"}, status=422, code="INVALID")
    assert (await api.get(path))["state"] == "PENDING"
    approver = api.with_scopes(Scope.TARGETS_APPROVE)
    approved = await approver.ok("POST", path + ":approve")
    assert (approved["state"], approved["approved_by"]) == ("APPROVED", "key:test")
    assert await approver.ok("POST", path + ":approve", {}) == approved


async def test_what_was_not_approved_is_pending_again(running: Cell) -> None:
    api = running.api
    target = await api.target(target_id="tgt_a", max_concurrency=10)
    path = "/v1/targets/tgt_a"
    tuned = await api.ok("PATCH", path, {"max_concurrency": 5, "initial_concurrency": 2, "owner_team": "x"})
    assert (tuned["state"], tuned["max_concurrency"], tuned["owner_team"]) == ("APPROVED", 5, "x")
    assert tuned["version"] > target["version"]
    moved = await api.ok("PATCH", path, {"base_url": "https://elsewhere.example"})
    assert (moved["state"], moved["approved_by"]) == ("PENDING", None)
    await api.ok("POST", path + ":approve")
    before = (await api.get(path))["version"]
    with_auth = await api.ok("PATCH", path, {"auth": {"type": "BEARER", "token": "t0ken"}})
    assert with_auth["version"] == before + 1
    assert (with_auth["state"], with_auth["auth"]) == ("PENDING", {"type": "BEARER"})
    assert (await opened(running, "tgt_a", "CREDENTIAL"))[0] == b"t0ken"
    assert "t0ken" not in str(with_auth)
    await api.ok("PATCH", path, {"auth": {"type": "HMAC_SHA256"}})
    assert await opened(running, "tgt_a", "CREDENTIAL") == []
    await api.ok("PATCH", path, {"auth": {"type": "BEARER", "token": "t0ken"}})
    await api.ok("PATCH", path, {"description": "the same token"})
    assert await opened(running, "tgt_a", "CREDENTIAL") == [b"t0ken"]
    await api.ok("POST", path + ":approve")
    disabled = await api.ok("PATCH", path, {"disabled": True})
    assert disabled["state"] == "DISABLED"
    await api.problem(
        "POST", "/v1/jobs", {"schedule": {"type": "NOW"}, "target": {"target_id": "tgt_a"}}, status=422,
        code="TARGET_NOT_APPROVED",
    )  # fmt: skip
    assert (await api.ok("PATCH", path, {"disabled": False}))["state"] == "PENDING"
    for wrong, pointer in (
        ({"max_concurrency": 1}, "/initial_concurrency"),
        ({"base_url": None}, "/base_url"),
        ({"target_id": "tgt_b"}, "/target_id"),
        ({"disabled": "yes"}, "/disabled"),
        ({"secret": "x"}, "/secret"),
    ):
        problem = await api.problem("PATCH", path, wrong, status=422, code="INVALID")
        assert [fault["pointer"] for fault in problem["errors"]] == [pointer]
    read = await api.send("GET", path)
    stale = {"If-Match": '"1"'}
    await api.problem(
        "PATCH", path, {"owner_team": "y"}, status=412, code="PRECONDITION_FAILED", headers=stale
    )
    await api.ok("PATCH", path, {"owner_team": None}, headers={"If-Match": read.headers["etag"]})
    assert (await api.get(path))["owner_team"] is None


async def test_rotation_keeps_the_old_secret_for_a_while(running: Cell) -> None:
    api = running.api
    first = raw((await api.target(target_id="tgt_a"))["secret"])
    rotated = await api.ok("POST", "/v1/targets/tgt_a:rotate-secret", {"overlap_seconds": 60})
    assert rotated["state"] == "APPROVED"
    second = raw(rotated["secret"])
    assert await opened(running, "tgt_a", "SIGNING") == [second, first]
    third = raw((await api.ok("POST", "/v1/targets/tgt_a:rotate-secret", {"overlap_seconds": 0}))["secret"])
    assert await opened(running, "tgt_a", "SIGNING") == [third]
    await api.problem(
        "POST", "/v1/targets/tgt_a:rotate-secret", {"overlap_seconds": -1}, status=422, code="INVALID"
    )


async def test_deleting(running: Cell) -> None:
    api = running.api
    await api.target(target_id="tgt_a")
    job = await api.job("tgt_a")
    await api.problem("DELETE", "/v1/targets/tgt_a", status=409, code="CONFLICT")
    await api.ok("POST", f"/v1/jobs/{job['job_id']}:pause")
    await api.problem("DELETE", "/v1/targets/tgt_a", status=409, code="CONFLICT")
    await api.ok("DELETE", f"/v1/jobs/{job['job_id']}")
    await api.ok("DELETE", "/v1/targets/tgt_a", status=204)
    await api.problem("GET", "/v1/targets/tgt_a", status=404, code="NOT_FOUND")
    await api.problem("DELETE", "/v1/targets/tgt_a", status=404, code="NOT_FOUND")
    await api.problem(
        "POST", "/v1/jobs", {"schedule": {"type": "NOW"}, "target": {"target_id": "tgt_a"}}, status=422,
        code="TARGET_NOT_REGISTERED",
    )  # fmt: skip


async def test_pages(api: Api) -> None:
    made = [f"tgt_{i}" for i in range(5)]
    for target_id in made:
        await api.target(f"https://h-{target_id[4:]}.example", target_id=target_id)
    await api.ok("POST", "/v1/targets", {"base_url": "https://p.example", "target_id": "tgt_p"}, status=201)
    first = await api.get("/v1/targets?limit=4&state=APPROVED")
    rest = await api.get(f"/v1/targets?limit=4&state=APPROVED&cursor={first['next_cursor']}")
    assert [t["target_id"] for t in first["items"] + rest["items"]] == made
    assert rest["next_cursor"] is None
    assert [t["target_id"] for t in (await api.get("/v1/targets?state=PENDING"))["items"]] == ["tgt_p"]


async def test_each_change_takes_if_match(api: Api) -> None:
    await api.target(target_id="tgt_email")
    path = "/v1/targets/tgt_email"
    old, current = {"If-Match": '"1"'}, {"If-Match": '"2"'}
    for method, where, body in (
        ("PATCH", path, {"max_concurrency": 5}),
        ("POST", f"{path}:rotate-secret", {}),
        ("DELETE", path, None),
    ):
        await api.problem(method, where, body, status=412, code="PRECONDITION_FAILED", headers=old)
    assert (await api.get(path))["version"] == 2
    lowered = await api.ok("PATCH", path, {"max_concurrency": 5}, headers=current)
    assert (lowered["max_concurrency"], lowered["initial_concurrency"]) == (5, 5)
    await api.ok("POST", f"{path}:rotate-secret", {}, headers={"If-Match": '"3"'})
    await api.ok("DELETE", path, status=204, headers={"If-Match": '"4"'})
