"""From bytes to models: bodies and queries, with every fault at once.

A body is taken apart at its top level first, so that a payload goes on to the target byte for
byte as it came (numbers keep their digits) and never becomes Python objects here.
"""

from __future__ import annotations

import re
from typing import TypeVar
from urllib.parse import parse_qsl

import msgspec
from pydantic import BaseModel, ValidationError

from cells.api.models import PAYLOAD_LIMIT
from cells.api.problems import (
    Fault,
    body_fault,
    faults_of,
    invalid,
    malformed,
    pointer_to,
    query_fault,
    too_large,
)

Fields = dict[str, msgspec.Raw]
M = TypeVar("M", bound=BaseModel)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_fields = msgspec.json.Decoder(Fields)
_encode = msgspec.json.Encoder().encode
_QUERY_FIELDS = 50


def read_fields(body: bytes, *, optional: bool = False) -> Fields:
    """The members of a JSON object, each still as it was written. Of a name that is there twice
    the last one counts. `optional`: no body at all is an empty object."""
    if not body:
        if optional:
            return {}
        raise malformed("A body is expected: a JSON object.")
    try:
        body.decode()  # the decoder lets bad octets pass inside of what it does not look into
    except UnicodeDecodeError:
        raise malformed("The body is not UTF-8.") from None
    return object_fields(body)


def object_fields(text: bytes) -> Fields:
    """The members of a JSON object that is known to be UTF-8."""
    try:
        return _fields.decode(text)
    except RecursionError:
        raise malformed("The body is nested too deeply.") from None
    except msgspec.ValidationError:
        raise invalid([body_fault("", "must be an object")]) from None
    except msgspec.DecodeError as error:
        raise malformed(f"The body is not JSON: {error}.") from None


def take_payload(fields: Fields) -> bytes | None:
    """Take the payload out of a body's members; None where there is none."""
    raw = fields.pop("payload", None)
    if raw is None:
        return None
    payload = bytes(raw).strip()
    if len(payload) > PAYLOAD_LIMIT:
        raise too_large(f"A payload has at most {PAYLOAD_LIMIT} bytes; this one has {len(payload)}.")
    try:
        msgspec.json.decode(payload)
    except (msgspec.MsgspecError, RecursionError):
        # Numbers beyond doubles or of thousands of digits, nesting beyond any stack: what is JSON
        # by the letter but breaks its readers (the target, a console) is refused at the edge.
        raise invalid(
            [body_fault("/payload", "holds numbers or nesting beyond what JSON readers take")]
        ) from None
    return None if payload == b"null" else payload


def read_model(fields: Fields, model: type[M]) -> M:
    """The members as that model, or a 422."""
    try:
        return model.model_validate_json(_encode(fields))
    except ValidationError as error:
        faults = [body_fault(pointer_to(*place), detail) for place, detail in faults_of(error)]
    raise invalid(faults)


def read_query(query_string: bytes, model: type[M]) -> M:
    """The query of a request as that model, or a 422."""
    try:
        pairs = parse_qsl(query_string.decode("ascii"), keep_blank_values=True, max_num_fields=_QUERY_FIELDS)
    except ValueError:
        raise malformed("The query cannot be read.") from None
    values = dict(pairs)
    faults: list[Fault] = []
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        faults += [query_fault(name, "is there twice") for name in values if names.count(name) > 1]
    faults += [
        query_fault(name, "must hold no control characters")
        for name, value in values.items()
        if _CONTROL.search(value)
    ]
    try:
        found = model.model_validate(values)
    except ValidationError as error:
        for place, detail in faults_of(error):
            name = str(place[0]) if place else ""
            faults.append(query_fault(name, "unknown parameter" if detail == "unknown field" else detail))
    if faults:
        raise invalid(faults)
    return found
