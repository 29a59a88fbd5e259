"""What is not about any resource: bodies, methods, paths, the document."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.component.cells.api.harness import Api, Cell

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_unknown_paths_and_methods(api: Api) -> None:
    for method, path in (
        ("GET", "/v1/nothing"),
        ("GET", "/"),
        ("POST", "/v1/jobs/x:frobnicate"),
        ("GET", "/v1/jobs/"),
        ("GET", "/v1/jobs/a/b"),
        ("GET", "/docs"),
    ):
        await api.problem(method, path, status=404, code="NOT_FOUND")
    for method, path in (("PUT", "/v1/jobs"), ("DELETE", "/v1/runs"), ("GET", "/v1/schedules:preview")):
        answer = await api.send(method, path)
        assert (answer.status_code, answer.json()["code"]) == (405, "METHOD_NOT_ALLOWED")
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["allow"]
    assert (await api.send("PUT", "/v1/jobs")).headers["allow"] == "GET, POST"


async def test_head_is_get_without_the_body(api: Api) -> None:
    shown = await api.send("GET", "/v1/jobs")
    head = await api.send("HEAD", "/v1/jobs")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == shown.headers["content-length"]
    assert (await api.send("HEAD", "/v1/schedules:preview")).status_code == 405
    stranger = await api.send("HEAD", "/v1/jobs/job_01h455vb4pex5vsknk084sn02q")
    assert (stranger.status_code, stranger.content) == (404, b"")


async def test_a_path_that_is_no_text(api: Api) -> None:
    for path in ("/v1/jobs/by-key/a%ff", "/v1/jobs/%c3%28"):
        await api.problem("GET", path, status=400, code="MALFORMED")


async def test_control_characters_name_nothing(api: Api) -> None:
    definition = "/v1/workflow-definitions/%00"
    queue = "/v1/task-queues/%00"
    for method, path, body in (
        ("GET", queue, None),
        ("POST", f"{queue}:pause", {}),
        ("POST", f"{queue}:resume", {}),
        ("GET", definition, None),
        ("POST", "/v1/workflows/w/signals/%00", {"signal_id": "s"}),
        ("GET", "/v1/calendars/cal_%0A", None),
        ("GET", "/v1/jobs/by-key/a%7f", None),
    ):
        await api.problem(method, path, body, status=404, code="NOT_FOUND")
    for path in ("/v1/jobs?tag=%00", "/v1/runs?cursor=%00", "/v1/workflows?state=a%1f"):
        problem = await api.problem("GET", path, status=422, code="INVALID")
        assert "must hold no control characters" in [fault["detail"] for fault in problem["errors"]]
    for name in ("x" * 65, "a-b", "1st", "%C3%A9"):
        path = f"/v1/workflows/w/signals/{name}"
        await api.problem("POST", path, {"signal_id": "s"}, status=422, code="INVALID")


async def test_endless_recurrences_are_refused(api: Api) -> None:
    event = "BEGIN:VEVENT SUMMARY:Fair DTSTART;VALUE=DATE:20200101 RRULE:FREQ=YEARLY;INTERVAL=0 END:VEVENT"
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:x", *event.split(), "END:VCALENDAR"]
    path = "/v1/calendars/cal_fair"
    problem = await api.problem("PUT", path, {"ics": "\r\n".join(lines)}, status=422, code="INVALID")
    (fault,) = problem["errors"]
    assert fault == {"pointer": "/ics", "detail": "event 1 (Fair): recurs with an INTERVAL below 1"}
    text = "\r\n".join(lines).replace("INTERVAL=0", "INTERVAL=1")
    made = await api.ok("PUT", path, {"ics": text}, status=201)
    assert made["count"] == 17


async def test_bodies_that_are_too_long(api: Api) -> None:
    await api.target(target_id="tgt_email")
    job: dict[str, Any] = {"schedule": {"type": "NOW"}, "target": {"target_id": "tgt_email"}}
    await api.problem(
        "POST", "/v1/jobs", job | {"payload": "x" * (256 * 1024)}, status=413, code="PAYLOAD_TOO_LARGE"
    )
    await api.problem(
        "POST", "/v1/jobs", job | {"name": "x" * (1024 * 1024)}, status=413, code="PAYLOAD_TOO_LARGE"
    )

    async def endless() -> Any:
        for _ in range(40):
            yield b"x" * 65_536

    answer = await api.http.request(
        "POST", "/v1/jobs", content=endless(), headers=api.signed("POST", "/v1/jobs")
    )
    assert answer.status_code == 413
    assert (await api.get("/v1/jobs"))["items"] == []
    just = await api.ok("POST", "/v1/jobs", job | {"payload": "x" * (256 * 1024 - 2)}, status=201)
    assert len((await api.get(f"/v1/jobs/{just['job_id']}"))["payload"]) == 256 * 1024 - 2


async def test_bodies_that_are_no_json(api: Api) -> None:
    for body in (
        b"",
        b"{",
        b'{"schedule": NaN}',
        b"\xff\xfe",
        b'{"a":"\x00"}',
        b'{"payload":' + b"[" * 200_000,
        b'{"payload":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    ):
        for path in ("/v1/jobs", "/v1/schedules:preview", "/v1/targets"):
            await api.problem("POST", path, body, status=400, code="MALFORMED")


async def test_odd_json_is_never_a_crash(api: Api) -> None:
    await api.target(target_id="tgt_email")
    good = b'{"schedule":{"type":"NOW"},"target":{"target_id":"tgt_email"}'
    for more, status in (
        (b',"dispatch_window_seconds":' + b"9" * 400 + b"}", 422),
        (b',"dispatch_window_seconds":1e999}', 422),
        (b',"retry_policy":{"initial_backoff_seconds":1e999}}', 422),
        (b',"name":"\\u0000"}', 422),
        (b',"tags":["\\u0000"]}', 422),
        (b',"name":' + b"[" * 300 + b"]" * 300 + b"}", 422),
        (b',"headers":{"a":"\\ud83d\\ude00"}}', 422),
        (b',"payload":{"n":' + b"9" * 5000 + b"}}", 422),
        (b',"payload":[1e999]}', 422),
        (b',"payload":{"n":' + b"9" * 300 + b',"e":1.0E+300,"z":"\\u0000"}}', 201),
        (b',"payload":' + b"[" * 150 + b"]" * 150 + b"}", 201),
    ):
        answer = await api.send("POST", "/v1/jobs", good + more)
        assert answer.status_code == status, (more[:40], answer.text[:300])
        if status == 201:
            read = await api.send("GET", f"/v1/jobs/{answer.json()['job_id']}")
            assert more[more.index(b":") + 1 : -1] in read.content


async def test_unknown_and_wrong_parameters(api: Api) -> None:
    for path in (
        "/v1/jobs",
        "/v1/runs",
        "/v1/targets",
        "/v1/dlq",
        "/v1/operations",
        "/v1/redrives",
        "/v1/events",
    ):
        for query, name in (
            ("limit=0", "limit"),
            ("limit=201", "limit"),
            ("limit=x", "limit"),
            ("cursor=x", "cursor"),
            ("cursor=%00", "cursor"),
            ("page=2", "page"),
        ):
            problem = await api.problem("GET", f"{path}?{query}", status=422, code="INVALID")
            assert [fault["parameter"] for fault in problem["errors"]] == [name]
    for number in ("0.5", "1700000000", "-1"):  # no seconds since 1970
        await api.problem("GET", f"/v1/jobs?due_until={number}", status=422, code="INVALID")
    await api.problem("GET", "/v1/runs?job_id=tgt_x", status=422, code="INVALID")
    await api.problem("GET", "/v1/jobs?tag=%00", status=422, code="INVALID")
    await api.problem("POST", "/v1/jobs?dry_run=1", {}, status=422, code="INVALID")
    for path in ("/v1/runs?target=%F0%9F%98%80", "/v1/jobs?name_prefix=%25_", "/v1/jobs?target=%ED%A0%80"):
        assert (await api.get(path))["items"] == []


async def test_the_document_describes_the_application(running: Cell) -> None:
    answer = await running.api.http.get("/v1/openapi.json")  # unsigned
    document = answer.json()
    assert document["openapi"] == "3.1.0"
    assert not [path for path in document["paths"] if "internal" in path]
    schemas = document["components"]["schemas"]
    operations = [op for item in document["paths"].values() for op in item.values()]
    assert len({op["operationId"] for op in operations}) == len(operations) == 82
    text = json.dumps(document)
    for name in schemas:
        assert f"#/components/schemas/{name}" in text
    for operation in operations:
        assert operation["summary"]
        assert operation["description"]
        assert operation["tags"][0] in {tag["name"] for tag in document["tags"]}
        assert {"401", "403", "422", "429", "500", "503"} <= operation["responses"].keys()
        for status, answered in operation["responses"].items():
            assert answered["description"]
            if status >= "400":
                assert list(answered["content"]) == ["application/problem+json"]
            elif operation["operationId"] == "read_metrics":
                assert list(answered["content"]) == ["text/plain"]  # for a Prometheus, not for a client
            elif status != "204":
                assert answered["content"]["application/json"]["schema"]["$ref"]
    assert "HTTPValidationError" not in text
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"


async def test_a_crash_is_a_problem_without_the_inside(running: Cell) -> None:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            if name == "get_tenant":
                return running.store.get_tenant
            raise RuntimeError("secret inside")

    api = running.with_engines(store=Broken())  # type: ignore[arg-type]
    problem = await api.problem("GET", "/v1/jobs", status=500, code="INTERNAL_ERROR")
    assert "secret" not in json.dumps(problem)


async def test_a_store_that_is_away(own: Cell) -> None:
    await own.api.get("/v1/jobs")
    await own.store.close()
    answer: httpx.Response = await own.api.send("GET", "/v1/jobs")
    assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
    assert answer.headers["retry-after"]
