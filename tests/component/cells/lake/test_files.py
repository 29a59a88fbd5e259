"""Both places for the lake's files do the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from cells.lake.files import open_files
from cells.lake.folder import FolderFiles
from cells.lake.s3 import S3Files
from cells.lake_url import check_url
from cells.ports import Retryable
from tests.conformance.lake.suite import LakeFilesConformance


class TestFolder(LakeFilesConformance):
    @pytest.fixture
    def files(self, folder_files: FolderFiles) -> FolderFiles:
        return folder_files


class TestS3(LakeFilesConformance):
    @pytest.fixture
    def files(self, s3_files: S3Files) -> S3Files:
        return s3_files


def test_what_a_crash_left_half_written_is_no_file(folder_files: FolderFiles, tmp_path: Path) -> None:
    folder = tmp_path / "lake" / "runs"
    folder.mkdir(parents=True)
    (folder / "x.parquet.1234.partial").write_bytes(b"half")
    assert list(folder_files.list("runs/")) == []


def test_a_folder_is_not_left_through_a_name(folder_files: FolderFiles, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    for name in ("../secret", "/etc/passwd"):
        with pytest.raises(ValueError, match="no name in the lake"):
            folder_files.fetch(name, tmp_path / "copy")


def test_an_s3_that_is_away_is_worth_another_try(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    files = open_files("s3://bucket/prefix", endpoint="http://127.0.0.1:9")
    with pytest.raises(Retryable):
        files.fetch("x", tmp_path / "copy")


def test_urls() -> None:
    assert check_url("file:///var/lake") == "file:///var/lake"
    assert check_url("s3://bucket/a/b") == "s3://bucket/a/b"
    for text in ("/var/lake", "file://host/x", "file:///", "s3:///x", "http://x/y", ""):
        with pytest.raises(ValueError, match="s3://bucket/prefix"):
            check_url(text)
