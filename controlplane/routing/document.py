"""The API's OpenAPI document, served to anybody. `make openapi` writes it; nothing else need run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

DOCUMENT_PATH = "/v1/openapi.json"
_KEPT = Path(__file__).with_name("openapi.json")


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """The text and what it is called."""

    text: bytes
    etag: bytes

    @classmethod
    def load(cls, path: Path = _KEPT) -> Self:
        """Read once, when the router starts."""
        text = path.read_bytes()
        return cls(text=text, etag=b'"%s"' % hashlib.sha256(text).hexdigest()[:32].encode())

    def answer(self, asked: Iterable[tuple[bytes, bytes]]) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
        """Status, body and headers. Pages of any origin may read it."""
        headers = [
            (b"etag", self.etag),
            (b"cache-control", b"public, max-age=300"),
            (b"access-control-allow-origin", b"*"),
        ]
        known = {value for name, value in asked if name == b"if-none-match"}
        return (304, b"", headers) if self.etag in known else (200, self.text, headers)
