"""A definition as a graph: where its steps stand and what joins them. Pure geometry, in pixels.

Steps follow each other from above to below; branches stand side by side; what is done for each element
stands in a frame; what undoes a step stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cells.domain.workflow.definition import Definition, Map, Step
from controlplane.console.workflow_words import inside, kind_of, what_it_does

_WIDTH, _HEIGHT = 216, 46
_DOWN, _ASIDE, _PAD = 26, 22, 16
_UNDO = 148
_END = 9  # radius of where it begins and ends
_MARGIN = 12
_STANDING = {
    "good": "done",
    "bad": "failed",
    "live": "under way",
    "wait": "waits",
    "mute": "passed over",
}
#: Characters that fit into a node, in its two lines.
_NAME, _WHAT, _SHORT = 26, 34, 18


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A box: a step, or what undoes one."""

    id: str
    kind: str  # activity, wait, timer, child, again, group, undo
    name: str
    what: str
    title: str
    look: str
    x: float
    y: float
    width: float
    height: float

    @property
    def standing(self) -> str:
        """How it stands, in words."""
        return _STANDING.get(self.look, "")

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """Around what is done for each element of a list."""

    label: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Edge:
    """What comes after what; dashed: what undoes what."""

    path: str
    dashed: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Graph:
    """Everything a drawing needs."""

    width: float
    height: float
    nodes: list[Node]
    frames: list[Frame]
    edges: list[Edge]
    begin: tuple[float, float]
    end: tuple[float, float]
    radius: int = _END


@dataclass(frozen=True, slots=True)
class _Extent:
    """How much room something needs to both sides of its middle, and downwards."""

    left: float
    right: float
    height: float

    @property
    def width(self) -> float:
        return self.left + self.right


@dataclass(slots=True)
class _Drawing:
    looks: Mapping[str, str]
    nodes: list[Node] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)

    def line(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """Down, aside halfway, and down again."""
        if abs(x1 - x2) < 0.5:
            self.edges.append(Edge(path=f"M{x1:g} {y1:g}V{y2:g}"))
        else:
            half = (y1 + y2) / 2
            self.edges.append(Edge(path=f"M{x1:g} {y1:g}V{half:g}H{x2:g}V{y2:g}"))

    def column(self, steps: tuple[Step, ...], x: float, y: float) -> float:
        """Draw steps below each other around a middle; the bottom of the last one."""
        for i, step in enumerate(steps):
            if i:
                self.line(x, y, x, y + _DOWN)
                y += _DOWN
            y = self.step(step, x, y)
        return y

    def step(self, step: Step, x: float, y: float) -> float:
        """Draw one; its bottom."""
        if isinstance(step.do, Map):
            return self.framed(step, x, y)
        branches = inside(step)
        bottom = self.box(step, x, y)
        if not branches:
            return bottom
        sizes = [_of_steps(branch) for branch in branches]
        whole = sum(size.width for size in sizes) + _ASIDE * (len(sizes) - 1)
        deepest = bottom + _DOWN + max(size.height for size in sizes)
        left = x - whole / 2
        for branch, size in zip(branches, sizes, strict=True):
            middle = left + size.left
            self.line(x, bottom, middle, bottom + _DOWN)
            end = self.column(branch, middle, bottom + _DOWN)
            self.edges.append(
                Edge(path=f"M{middle:g} {end:g}V{deepest + _DOWN / 2:g}H{x:g}V{deepest + _DOWN:g}")
            )
            left += size.width + _ASIDE
        return deepest + _DOWN

    def framed(self, step: Step, x: float, y: float) -> float:
        """A map: its head, and its steps in a frame below."""
        (steps,) = inside(step)
        size = _of_steps(steps)
        head = self.box(step, x, y + _PAD)
        self.line(x, head, x, head + _DOWN)
        bottom = self.column(steps, x, head + _DOWN) + _PAD
        left, right = max(size.left, _WIDTH / 2) + _PAD, max(size.right, _right(step)) + _PAD
        self.frames.append(
            Frame(label="for each element", x=x - left, y=y, width=left + right, height=bottom - y)
        )
        return bottom

    def box(self, step: Step, x: float, y: float) -> float:
        """The box of a step, with what undoes it beside; its bottom."""
        what = what_it_does(step)
        title = f"{step.id}: {what}" + (f", when {step.when.source}" if step.when else "")
        self.nodes.append(
            Node(
                id=step.id, kind=kind_of(step), name=_cut(step.id, _NAME),
                what=_cut(f"if {step.when.source}" if step.when else what, _WHAT), title=title,
                look=self.looks.get(step.id, ""), x=x - _WIDTH / 2, y=y, width=_WIDTH, height=_HEIGHT,
            )
        )  # fmt: skip
        if step.compensate_with:
            left, middle = x + _WIDTH / 2 + _ASIDE, y + _HEIGHT / 2
            self.edges.append(Edge(path=f"M{x + _WIDTH / 2:g} {middle:g}H{left:g}", dashed=True))
            self.nodes.append(
                Node(
                    id=step.compensate_with, kind="undo", name=_cut(step.compensate_with, _SHORT),
                    what="undoes it", title=f"{step.compensate_with} undoes {step.id}",
                    look=self.looks.get(step.compensate_with, ""), x=left, y=y + 4, width=_UNDO,
                    height=_HEIGHT - 8,
                )
            )  # fmt: skip
        return y + _HEIGHT


def layout(definition: Definition, looks: Mapping[str, str] | None = None) -> Graph:
    """`looks`: how each step of an execution stands, by its id."""
    size = _of_steps(definition.steps)
    drawing = _Drawing(looks or {})
    x = _MARGIN + size.left
    top = _MARGIN + 2 * _END
    drawing.line(x, top, x, top + _DOWN)
    bottom = drawing.column(definition.steps, x, top + _DOWN)
    drawing.line(x, bottom, x, bottom + _DOWN)
    return Graph(
        width=size.width + 2 * _MARGIN,
        height=bottom + _DOWN + 2 * _END + _MARGIN,
        nodes=drawing.nodes,
        frames=drawing.frames,
        edges=drawing.edges,
        begin=(x, top - _END),
        end=(x, bottom + _DOWN + _END),
    )


def _of_steps(steps: tuple[Step, ...]) -> _Extent:
    sizes = [_of_step(step) for step in steps]
    if not sizes:
        return _Extent(_WIDTH / 2, _WIDTH / 2, 0)
    return _Extent(
        max(size.left for size in sizes),
        max(size.right for size in sizes),
        sum(size.height for size in sizes) + _DOWN * (len(sizes) - 1),
    )


def _of_step(step: Step) -> _Extent:
    branches = inside(step)
    if not branches:
        return _Extent(_WIDTH / 2, _right(step), _HEIGHT)
    sizes = [_of_steps(branch) for branch in branches]
    if isinstance(step.do, Map):
        (size,) = sizes
        return _Extent(
            max(size.left, _WIDTH / 2) + _PAD,
            max(size.right, _right(step)) + _PAD,
            size.height + _HEIGHT + _DOWN + 2 * _PAD,
        )
    half = (sum(size.width for size in sizes) + _ASIDE * (len(sizes) - 1)) / 2
    height = _HEIGHT + 2 * _DOWN + max(size.height for size in sizes)
    return _Extent(max(half, _WIDTH / 2), max(half, _right(step)), height)


def _right(step: Step) -> float:
    return _WIDTH / 2 + (_ASIDE + _UNDO if step.compensate_with else 0)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
