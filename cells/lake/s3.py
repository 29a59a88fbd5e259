"""The lake in S3, or in what speaks its protocol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from cells.lake.files import Missing, Stored
from cells.ports import Retryable

#: Seconds; and how often the library tries again by itself.
_CONNECT, _READ, _ATTEMPTS = 5, 60, 4
#: What one call may delete.
_DELETED_AT_ONCE = 1000


class S3Files:
    """Implements `LakeFiles`. An upload is seen whole or not at all: S3 promises that."""

    def __init__(self, *, bucket: str, prefix: str, endpoint: str | None = None) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=endpoint,
            config=Config(
                connect_timeout=_CONNECT,
                read_timeout=_READ,
                retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
                s3={"addressing_style": "path" if endpoint else "auto"},
            ),
        )

    def put(self, name: str, source: Path) -> None:
        with _mapped(name):
            self._client.upload_file(str(source), self._bucket, self._prefix + name)

    def fetch(self, name: str, to: Path) -> None:
        with _mapped(name):
            self._client.download_file(self._bucket, self._prefix + name, str(to))

    def local(self, name: str) -> Path | None:
        return None

    def list(self, prefix: str) -> Iterator[Stored]:
        pages = self._client.get_paginator("list_objects_v2")
        with _mapped(prefix):
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix + prefix):
                for found in page.get("Contents", ()):
                    yield Stored(
                        name=found["Key"].removeprefix(self._prefix),
                        bytes=found["Size"],
                        modified=found["LastModified"],
                    )

    def delete(self, names: Sequence[str]) -> None:
        for start in range(0, len(names), _DELETED_AT_ONCE):
            keys = [{"Key": self._prefix + name} for name in names[start : start + _DELETED_AT_ONCE]]
            with _mapped("deletion"):
                answer = self._client.delete_objects(
                    Bucket=self._bucket, Delete={"Objects": keys, "Quiet": True}
                )
            if refused := answer.get("Errors"):
                raise Retryable(f"S3 kept {len(refused)} files: {refused[0].get('Message')}")


@contextmanager
def _mapped(name: str) -> Iterator[None]:
    try:
        yield
    except ClientError as fault:
        if fault.response.get("Error", {}).get("Code") in ("404", "NoSuchKey"):
            raise Missing(name) from fault
        raise Retryable(f"S3: {fault}") from fault
    except (BotoCoreError, boto3.exceptions.Boto3Error, OSError) as fault:
        raise Retryable(f"S3: {fault}") from fault
