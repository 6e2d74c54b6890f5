"""A workflow as a drawing: which boxes there are, where they stand, and the lines between them. Pure.

Columns go from left to right in the order in which calls follow from one another. Where many members are
alike (the same task, at the same place of the plan) they are one box with a count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from mqworker.operate.workflows import Member

BOX_WIDTH, BOX_HEIGHT = 172, 44
JOIN_SIZE = 16
_COLUMN_GAP, _ROW_GAP, _MARGIN = 52, 14, 10
MOST_ALONE = 6
"""More members than that, alike, are drawn as one box."""
MOST_BOXES = 300
_ORDER = (
    *("succeeded", "running", "failed", "cancelled", "expired"),
    *("waiting", "delayed", "limited", "planned", "skipped", "never"),
)


@dataclass(frozen=True, slots=True)
class Box:
    """One member, or many alike, or a join."""

    x: int
    y: int
    width: int
    height: int
    label: str
    status: str
    count: int
    id: str
    queue: str
    shares: tuple[tuple[str, float, float], ...] = ()
    """Of many: state, where its part of the bar begins, and how wide it is."""
    told: str = ""

    @property
    def is_join(self) -> bool:
        """Whether it only collects."""
        return self.count == 0

    @property
    def middle(self) -> int:
        """Where lines meet it."""
        return self.y + self.height // 2


@dataclass(frozen=True, slots=True)
class Drawing:
    """Everything to draw."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    lines: tuple[str, ...]
    """Paths, in the language of SVG."""
    left_out: int


def draw(nodes: Sequence[Member]) -> Drawing:
    """Lay out a workflow."""
    depth = _depths(nodes)
    groups = _alike(nodes, depth)
    columns: dict[int, list[list[Member]]] = {}
    shown = groups[:MOST_BOXES]
    for group in shown:
        columns.setdefault(depth[group[0].node], []).append(group)
    tallest = max((_column_height(column) for column in columns.values()), default=0)
    boxes: list[Box] = []
    box_by_node: dict[int, Box] = {}
    for column, groups_in_it in columns.items():
        y = _MARGIN + (tallest - _column_height(groups_in_it)) // 2
        for group in groups_in_it:
            box = _box(group, _MARGIN + column * (BOX_WIDTH + _COLUMN_GAP), y)
            y += box.height + _ROW_GAP
            boxes.append(box)
            box_by_node |= {member.node: box for member in group}
    width = 2 * _MARGIN + (max(columns, default=0) + 1) * (BOX_WIDTH + _COLUMN_GAP) - _COLUMN_GAP
    return Drawing(
        width, tallest + 2 * _MARGIN, tuple(boxes), _lines(nodes, box_by_node), len(groups) - len(shown)
    )


def _depths(nodes: Sequence[Member]) -> dict[int, int]:
    """How many steps each is from the start; what follows has a larger number."""
    depth = {node.node: 0 for node in nodes}
    for node in nodes:
        for follower in node.followers:
            if follower in depth and follower > node.node:
                depth[follower] = max(depth[follower], depth[node.node] + 1)
    return depth


def _alike(nodes: Sequence[Member], depth: Mapping[int, int]) -> list[list[Member]]:
    """Groups of nodes; few that are alike stay alone."""
    kinds: dict[int, Hashable] = {}
    before: dict[int, set[Hashable]] = {node.node: set() for node in nodes}
    for node in nodes:
        alone = node.node if node.is_join else node.task
        kinds[node.node] = hash((depth[node.node], alone, node.queue, frozenset(before[node.node])))
        for follower in node.followers:
            before.get(follower, set()).add(kinds[node.node])
    for node in reversed(nodes):
        after = frozenset(kinds[each] for each in node.followers if each in kinds)
        kinds[node.node] = hash((kinds[node.node], after))
    groups: dict[Hashable, list[Member]] = {}
    for node in nodes:
        groups.setdefault(kinds[node.node], []).append(node)
    return [
        part
        for group in groups.values()
        for part in ([group] if len(group) > MOST_ALONE else [[each] for each in group])
    ]


def _column_height(column: Sequence[Sequence[Member]]) -> int:
    heights = [JOIN_SIZE if group[0].is_join else BOX_HEIGHT for group in column]
    return sum(heights) + _ROW_GAP * (len(heights) - 1)


def _box(group: Sequence[Member], x: int, y: int) -> Box:
    first = group[0]
    if first.is_join:
        told = f"collects {len(first.inputs):,} outcomes"
        return Box(x, y, JOIN_SIZE, JOIN_SIZE, "", first.status, 0, "", "", told=told)
    counts = Counter(member.status for member in group)
    told = ", ".join(f"{count:,} {status}" for status, count in counts.most_common())
    if len(group) == 1:
        return Box(x, y, BOX_WIDTH, BOX_HEIGHT, first.task, first.status, 1, first.id, first.queue, told=told)
    status = next((each for each in ("failed", "running") if counts[each]), counts.most_common(1)[0][0])
    return Box(
        x,
        y,
        BOX_WIDTH,
        BOX_HEIGHT,
        first.task,
        status,
        len(group),
        first.id,
        first.queue,
        _shares(counts, len(group)),
        told,
    )


def _shares(counts: Counter[str], total: int) -> tuple[tuple[str, float, float], ...]:
    room, begins = BOX_WIDTH - 20, 0.0
    parts: list[tuple[str, float, float]] = []
    for status in sorted(counts, key=lambda each: _ORDER.index(each) if each in _ORDER else len(_ORDER)):
        width = counts[status] / total * room
        parts.append((status, round(begins, 1), round(width, 1)))
        begins += width
    return tuple(parts)


def _lines(nodes: Sequence[Member], box_by_node: Mapping[int, Box]) -> tuple[str, ...]:
    pairs: dict[tuple[Box, Box], None] = {}
    for node in nodes:
        for follower in node.followers:
            if node.node in box_by_node and follower in box_by_node:
                pairs[box_by_node[node.node], box_by_node[follower]] = None
    return tuple(_line(one, other) for one, other in pairs)


def _line(one: Box, other: Box) -> str:
    begin, end = one.x + one.width, other.x
    bend = max(20, (end - begin) // 2)
    return (
        f"M{begin} {one.middle}C{begin + bend} {one.middle} {end - bend} {other.middle} {end} {other.middle}"
    )
