"""Exports and reports in S3, spoken to a local stand-in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest

from billing.exports import lake, running
from billing.exports.machine import Dataset, Format
from billing.exports.models import Export
from billing.exports.places import folder_of
from billing.exports.requesting import expire
from tests.aws_standin import aws_server
from tests.component.billing.exports.conftest import asked
from tests.component.billing.exports.past import write_day
from tests.component.controlplane.signed import tenant_admin

pytestmark = pytest.mark.django_db
BUCKET = "exports"


@pytest.fixture(scope="module")
def s3_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with aws_server(tmp_path_factory.mktemp("aws"), "s3") as url:
        yield url


@pytest.fixture
def s3(s3_url: str, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Any:
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
    ):
        monkeypatch.setenv(name, value)
    client: Any = boto3.client("s3", endpoint_url=s3_url)
    client.create_bucket(Bucket=BUCKET)
    place = {"url": f"s3://{BUCKET}/here", "endpoint": s3_url}
    settings.BILLING_EXPORTS = {**settings.BILLING_EXPORTS, **place}
    settings.BILLING_LAKE = {**settings.BILLING_LAKE, **place}
    return client


def _keys(s3: Any, prefix: str) -> list[str]:
    return [o["Key"] for o in s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])]


def test_an_export_in_s3(tenant: Any, s3: Any) -> None:
    export = asked(tenant, Dataset.FOCUS, file_format=Format.PARQUET)
    prefix = f"here/{folder_of(export)}"
    s3.put_object(Bucket=BUCKET, Key=f"{prefix}of-a-try-that-was-overtaken", Body=b"x")
    assert running.run(export.id), Export.objects.get(pk=export.pk).error
    export.refresh_from_db()
    assert _keys(s3, prefix) == sorted(prefix + file["name"] for file in export.files)
    for file in export.files:
        content = s3.get_object(Bucket=BUCKET, Key=prefix + file["name"])["Body"].read()
        assert hashlib.sha256(content).hexdigest() == file["sha256"]
        path = f"/v1/exports/{export.public_id}/files/{file['name']}"
        assert tenant_admin(tenant).download(path) == content
    Export.objects.filter(pk=export.pk).update(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    assert expire(datetime.now(UTC)) == 1
    assert _keys(s3, prefix) == []


def test_a_bucket_that_is_not_there_is_said(tenant: Any, s3: Any, settings: Any) -> None:
    settings.BILLING_EXPORTS = {**settings.BILLING_EXPORTS, "url": "s3://nowhere/x"}
    export = asked(tenant)
    assert not running.run(export.id)
    export.refresh_from_db()
    assert (export.state, "S3" in export.error) == ("REQUESTED", True)


def test_a_report_from_s3(control: None, s3: Any, tmp_path: Path) -> None:
    day = date(2026, 10, 5)
    tenant = write_day(
        f"s3://{BUCKET}/here", tmp_path, day, cell="cell-1", states={"SUCCEEDED": 3, "FAILED": 2}
    )
    found = lake.answer(lake.Report.BUSIEST_TENANTS, day, day + timedelta(days=1), limit=10)
    assert [(i["tenant_id"], i["runs"], i["failed"]) for i in found.items] == [(tenant, 5, 2)]
