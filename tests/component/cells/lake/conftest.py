"""The store's world, and a lake in a folder or in a local S3."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from cells.lake.folder import FolderFiles
from cells.lake.s3 import S3Files
from tests.aws_standin import aws_server
from tests.component.cells.store.conftest import cell_database_url, store, store_database_url, world

__all__ = ["cell_database_url", "store", "store_database_url", "world"]


@pytest.fixture(scope="session")
def s3_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A local S3 for this process's tests."""
    with aws_server(tmp_path_factory.mktemp("s3"), "s3") as url:
        yield url


@pytest.fixture
def s3_files(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> S3Files:
    """An empty place in a bucket of its own."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    bucket = f"lake-{uuid.uuid4().hex[:12]}"
    boto3.client("s3", endpoint_url=s3_url).create_bucket(Bucket=bucket)
    return S3Files(bucket=bucket, prefix="history/of-cells", endpoint=s3_url)


@pytest.fixture
def folder_files(tmp_path: Path) -> FolderFiles:
    return FolderFiles(tmp_path / "lake")
