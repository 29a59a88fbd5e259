"""The API's document: as it is kept, with a name that spares sending it twice."""

from __future__ import annotations

import json

from controlplane.routing.document import Document


def test_it_is_sent_once() -> None:
    document = Document.load()
    status, text, headers = document.answer([])
    assert (status, json.loads(text)["openapi"]) == (200, "3.1.0")
    etag = dict(headers)[b"etag"]
    assert document.answer([(b"if-none-match", etag)])[:2] == (304, b"")
    assert document.answer([(b"if-none-match", b'"another"')])[0] == 200
