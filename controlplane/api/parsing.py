"""Request bodies: one JSON object in UTF-8."""

from __future__ import annotations

from typing import IO, Any

import msgspec
from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser


class StrictJSONParser(BaseParser):
    """No NaN, no duplicate surprises from lenient parsers, nothing but an object at the top."""

    media_type = "application/*"

    def parse(self, stream: IO[bytes], media_type: Any = None, parser_context: Any = None) -> dict[str, Any]:
        kind = (media_type or "").partition(";")[0].strip().lower()
        if kind not in ("application/json", "application/merge-patch+json"):
            raise ParseError("The body must be application/json.")
        try:
            body = msgspec.json.decode(stream.read())
        except (msgspec.DecodeError, UnicodeDecodeError) as e:
            raise ParseError(f"The body is not JSON: {e}") from e
        if not isinstance(body, dict):
            raise ParseError("The body must be a JSON object.")
        return body
