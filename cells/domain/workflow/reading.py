"""A YAML node with its place: reads values out of it, and notes what is wrong with them."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import yaml

from cells.domain.workflow.durations import parse_duration
from cells.domain.workflow.expressions import Expression, ExpressionFault, Template, split_template

_STEP_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, and where: the line (from 1) and a JSON pointer."""

    line: int
    pointer: str
    detail: str


class Faults:
    """Those found so far."""

    def __init__(self) -> None:
        self._found: dict[Fault, None] = {}

    def add(self, place: Reader, detail: str) -> None:
        """Note one."""
        self.note(place.line, place.pointer, detail)

    def note(self, line: int, pointer: str, detail: str) -> None:
        """Note one by its place."""
        self._found[Fault(line, pointer, detail)] = None

    def sorted(self) -> list[Fault]:
        """All, in the order of the text."""
        return sorted(self._found, key=lambda f: (f.line, f.pointer, f.detail))

    def __bool__(self) -> bool:
        return bool(self._found)


class Reader:
    """One node. Methods answer None where they noted a fault."""

    __slots__ = ("_faults", "_node", "line", "pointer")

    def __init__(self, node: yaml.Node, pointer: str, faults: Faults):
        self._node = node
        self._faults = faults
        self.line: int = node.start_mark.line + 1
        self.pointer = pointer

    def fault(self, detail: str) -> None:
        """Note that this is wrong."""
        self._faults.add(self, detail)

    def under(self, node: yaml.Node, name: str | int) -> Reader:
        """A node inside this one."""
        escaped = str(name).replace("~", "~0").replace("/", "~1")
        return Reader(node, f"{self.pointer}/{escaped}", self._faults)

    # --- shapes ----------------------------------------------------------------------------
    def mapping(self, *, required: Collection[str] = (), optional: Collection[str] = ()) -> dict[str, Reader]:
        """Its fields by name; unknown, repeated and missing ones are faults."""
        if not isinstance(self._node, yaml.MappingNode):
            self.fault("is to be an object")
            return {}
        fields: dict[str, Reader] = {}
        for key, value in self._node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            reader = self.under(value, name)
            place = Reader(key, reader.pointer, self._faults)
            if name in fields:
                place.fault(f"`{name}` is there twice")
            elif name not in required and name not in optional:
                place.fault(f"unknown field `{name}`; there are {', '.join([*required, *optional])}")
            else:
                fields[name] = reader
        for name in required:
            if name not in fields:
                self.fault(f"needs `{name}`")
        return fields

    def items(self, *, least: int = 1) -> list[Reader]:
        """The elements of a list."""
        if not isinstance(self._node, yaml.SequenceNode):
            self.fault("is to be a list")
            return []
        if len(self._node.value) < least:
            self.fault("is an empty list")
        return [self.under(node, i) for i, node in enumerate(self._node.value)]

    # --- values ----------------------------------------------------------------------------
    def plain(self) -> Any:
        """It as JSON; dates stay texts."""
        return _plain(self._node, self)

    def text(self, *, most: int = 256) -> str | None:
        """A text."""
        value = self.plain()
        if not isinstance(value, str) or not value.strip():
            why = ""
            if isinstance(value, bool):
                why = f": `{self._node.value}` is read as {str(value).lower()} where it is not quoted"
            self.fault(f"is to be a text{why}")
            return None
        if len(value) > most:
            self.fault(f"is longer than {most} characters")
            return None
        return value

    def identifier(self) -> str | None:
        """An id that expressions can name."""
        value = self.text()
        if value is not None and not _STEP_ID.fullmatch(value):
            self.fault("an id has letters, digits and `_`, begins with no digit, 64 at most")
            return None
        return value

    def integer(self, *, least: int, most: int) -> int | None:
        """A whole number within bounds."""
        value = self.plain()
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self.fault(f"is to be a whole number from {least} to {most}")
            return None
        return value

    def boolean(self) -> bool | None:
        """true or false."""
        value = self.plain()
        if not isinstance(value, bool):
            self.fault("is to be true or false")
            return None
        return value

    def choice(self, words: Collection[str]) -> str | None:
        """One of some words."""
        value = self.plain()
        if not isinstance(value, str) or value not in words:
            self.fault(f"is to be one of {', '.join(words)}")
            return None
        return value

    def duration(self) -> int | None:
        """Milliseconds."""
        try:
            return parse_duration(self.plain())
        except ValueError as fault:
            self.fault(str(fault))
            return None

    def expression(self) -> Expression | None:
        """`${…}` and nothing around it."""
        value = self.plain()
        if value is True or value is False:
            value = "${true}" if value else "${false}"
        try:
            parts = list(split_template(value)) if isinstance(value, str) else []
            if len(parts) != 1 or parts[0][0] != "expression":
                self.fault("is to be one expression, ${…}")
                return None
            return Expression(parts[0][1])
        except ExpressionFault as fault:
            self.fault(f"bad expression: {fault}")
            return None

    def template(self) -> Template | None:
        """JSON with expressions in its texts."""
        try:
            return Template(self.plain())
        except ExpressionFault as fault:
            self.fault(f"bad expression: {fault}")
            return None


def _plain(node: yaml.Node, place: Reader) -> Any:
    if isinstance(node, yaml.MappingNode):
        return {
            str(key.value): _plain(value, place.under(value, str(key.value))) for key, value in node.value
        }
    if isinstance(node, yaml.SequenceNode):
        return [_plain(value, place.under(value, i)) for i, value in enumerate(node.value)]
    match node.tag.rpartition(":")[2]:
        case "null":
            return None
        case "bool":
            return node.value.lower() in ("true", "yes", "on")
        case "int" if re.fullmatch(r"[-+]?\d{1,18}", node.value):
            return int(node.value)
        case "float" if re.fullmatch(r"[-+]?(\d+\.\d*|\.\d+|\d+)([eE][-+]?\d+)?", node.value):
            return float(node.value)
    return node.value
