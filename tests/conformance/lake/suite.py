"""What every place for the lake's files must do. A test module subclasses `LakeFilesConformance` and
gives the fixture `files`: a place that is empty.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cells.lake.files import LakeFiles, Missing


def _file(folder: Path, content: bytes) -> Path:
    path = folder / f"source-{len(list(folder.iterdir()))}"
    path.write_bytes(content)
    return path


class LakeFilesConformance:
    """Run it against each implementation."""

    def test_what_was_put_is_fetched(self, files: LakeFiles, tmp_path: Path) -> None:
        content = bytes(range(256)) * 50_000  # longer than one part of an upload
        files.put("runs/a/one.parquet", _file(tmp_path, content))
        files.fetch("runs/a/one.parquet", tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == content
        local = files.local("runs/a/one.parquet")
        assert local is None or local.read_bytes() == content

    def test_a_second_put_replaces(self, files: LakeFiles, tmp_path: Path) -> None:
        for content in (b"first, and longer", b"second"):
            files.put("manifest.json", _file(tmp_path, content))
        files.fetch("manifest.json", tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == b"second"

    def test_what_is_not_there_is_missing(self, files: LakeFiles, tmp_path: Path) -> None:
        with pytest.raises(Missing):
            files.fetch("runs/none", tmp_path / "copy")
        assert not (tmp_path / "copy").exists()

    def test_lists_are_in_order_and_by_prefix(self, files: LakeFiles, tmp_path: Path) -> None:
        before = datetime.now(UTC) - timedelta(minutes=1)
        names = ["runs/cell=a/date=2026-01-02/p", "runs/cell=a/date=2026-01-01/p", "runs/cell=ab/x", "other"]
        for name in names:
            files.put(name, _file(tmp_path, b"12345"))
        found = list(files.list("runs/cell=a/"))
        assert [file.name for file in found] == sorted(names[:2])
        assert {file.bytes for file in found} == {5}
        assert all(before < file.modified < before + timedelta(minutes=5) for file in found)
        assert [file.name for file in files.list("runs/")] == sorted(names[:3])
        assert list(files.list("nothing/")) == []

    def test_more_files_than_a_page_of_a_list_or_a_deletion(self, files: LakeFiles, tmp_path: Path) -> None:
        source = _file(tmp_path, b"x")
        names = [f"many/{n:04}" for n in range(1005)]
        threads = [
            threading.Thread(
                target=lambda part: [files.put(name, source) for name in part], args=(names[i::4],)
            )
            for i in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [file.name for file in files.list("many/")] == names
        files.delete([*names, "many/was-never-there"])
        assert list(files.list("many/")) == []

    def test_deleting_touches_nothing_else(self, files: LakeFiles, tmp_path: Path) -> None:
        for name in ("a/1", "a/2"):
            files.put(name, _file(tmp_path, b"x"))
        files.delete(["a/1"])
        files.delete([])
        assert [file.name for file in files.list("a/")] == ["a/2"]

    def test_a_reader_never_sees_half_of_a_file(self, files: LakeFiles, tmp_path: Path) -> None:
        versions = [bytes([n]) * 300_000 for n in range(6)]
        sources = [_file(tmp_path, version) for version in versions]
        files.put("f", sources[0])
        seen: list[bytes] = []
        done = threading.Event()

        def read() -> None:
            copy = tmp_path / "copy"
            while not done.is_set():
                files.fetch("f", copy)
                seen.append(copy.read_bytes())

        reader = threading.Thread(target=read)
        reader.start()
        for source in sources:
            files.put("f", source)
        done.set()
        reader.join(30)
        assert seen
        assert all(content in versions for content in seen)
