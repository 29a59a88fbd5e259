"""The store's world, a lake in a folder and in a local S3."""

from __future__ import annotations

from tests.component.cells.lake.conftest import folder_files, s3_files, s3_url
from tests.component.cells.store.conftest import cell_database_url, store, store_database_url, world

__all__ = [
    "cell_database_url",
    "folder_files",
    "s3_files",
    "s3_url",
    "store",
    "store_database_url",
    "world",
]
