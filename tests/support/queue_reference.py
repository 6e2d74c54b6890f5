"""The work queue as plain lists and dicts: what a state machine compares the real one with."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

GuardState = Literal["live", "timed", "over"]
MOST_DELIVERIES, MOST_CRASHES, MOST_LOSSES = 999, 35, 25


@dataclass(eq=False)
class Item:
    """A message; compared by identity, for a chosen id may be used again."""

    id: str
    body: bytes
    priority: int = 0
    mode: str = "-"
    key: str = ""
    has_deadline: bool = False
    max_crashes: int | None = 3
    deliveries: int = 0
    failures: int = 0
    crashes: int = 0
    losses: int = 0
    is_suspect: bool = False
    is_on_probation: bool = False
    sequence: int = 0
    has_passed: bool = False
    was_reported: bool = False

    def delivered_again(self, failures: int = 0, crashes: int = 0, losses: int = 0) -> None:
        """One more delivery that ended so. One that failed has ended: there is no suspicion any more."""
        self.losses = 0 if failures else min(self.losses + losses, MOST_LOSSES)
        self.is_suspect = self.is_suspect and not failures and not crashes
        self.is_on_probation = False
        self.deliveries = min(self.deliveries + 1, MOST_DELIVERIES)
        self.failures = min(self.failures + failures, MOST_DELIVERIES)
        self.crashes = min(self.crashes + crashes, MOST_CRASHES)


@dataclass
class QueueReference:
    """Every state as the simplest collection that can hold it."""

    line: list[Item | None] = field(default_factory=list)
    """None where a message was cancelled."""
    urgent: list[Item] = field(default_factory=list)
    delayed: dict[str, Item] = field(default_factory=dict)
    due_order: dict[str, int] = field(default_factory=dict)
    held: dict[str, dict[int, Item]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    popped: list[Item] = field(default_factory=list)
    dead: dict[str, Item] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)
    guards: dict[str, tuple[str, GuardState]] = field(default_factory=dict)
    watched: dict[str, Item] = field(default_factory=dict)
    totals: Counter[str] = field(default_factory=Counter)
    consumers: set[str] = field(default_factory=set)
    fence: int = 0
    sequence: int = 0
    is_paused: bool = False

    @property
    def holes(self) -> int:
        """Entries in the lines that are no longer waiting."""
        return self.line.count(None) + sum(item is not None and item.was_reported for item in self._lines())

    @property
    def ready_count(self) -> int:
        """Messages that could be claimed."""
        return len(self.line) + len(self.urgent) - self.holes

    def waiting(self) -> list[Item]:
        """Everything that nobody holds, in any line."""
        return [item for item in self._lines() if item is not None] + list(self.delayed.values())

    def holder(self, key: str) -> str | None:
        """Who keeps others out."""
        message, state = self.guards.get(key, ("", "over"))
        if state == "over" or (state == "live" and self.results.get(message) == "E"):
            return None
        return message

    def enqueue(self, items: list[tuple[Item, bool]]) -> list[tuple[str, bool]]:
        """Items with whether they are delayed; (id or the holder's id, whether it is new) for each."""
        outcome, placed = [], []
        for item, is_delayed in items:
            holder = self.holder(item.key) if item.mode != "-" else None
            if holder is not None:
                outcome.append((holder, False))
                continue
            if item.mode != "-":
                self.guards[item.key] = (item.id, "timed" if item.mode == "t" else "live")
            if item.mode == "i":
                self.results.pop(item.id, None)
            self._watch(item)
            if is_delayed:
                self.delayed[item.id] = item
            else:
                placed.append(item)
            outcome.append((item.id, True))
        self.place_back(placed)
        self.totals["enqueued"] += sum(is_new for _, is_new in outcome)
        return outcome

    def take(self, count: int) -> list[Item]:
        """What a claim or a pop gets, urgent first, passing over what is not to be delivered any more."""
        taken: list[Item] = []
        if self.is_paused:
            return taken
        while len(taken) < count and (self.urgent or self.line):
            item = self.urgent.pop(0) if self.urgent else self.line.pop(0)
            if item is not None and self._is_deliverable(item):
                taken.append(item)
        return taken

    def claim(self, count: int, consumer: str) -> dict[int, Item]:
        """Fence -> item of a claim."""
        given = {self.fence + at: item for at, item in enumerate(self.take(count), start=1)}
        if consumer and given:
            self.consumers.add(consumer)
        self.fence += len(given)
        self.held.setdefault(consumer, {}).update(given)
        return given

    def ack(self, consumer: str, fence: int, result: str) -> None:
        """A held delivery is done."""
        item = self._let_go(consumer, fence)
        self.release(item)
        if result:
            self.results[item.id] = f"S{result}"
        self.totals["succeeded"] += 1

    def again(self, consumer: str, fence: int, where: str) -> None:
        """Retried ('back', 'delayed'), released or crashed ('front', 'crash'), or suspected ('suspect')."""
        item = self._let_go(consumer, fence)
        if where == "crash" and item.max_crashes is not None and item.crashes + 1 >= item.max_crashes:
            self._bury(item, crashes=1)
            return
        item.delivered_again(failures=where in {"back", "delayed"}, crashes=where == "crash")
        item.is_suspect = item.is_suspect or (where == "suspect" and item.crashes == 0)
        self.totals[
            {"crash": "crashed", "front": "released", "suspect": "released"}.get(where, "retried")
        ] += 1
        self._watch(item)
        if where == "delayed":
            self.delayed[item.id] = item
        elif where == "back":
            self.place_back([item])
        else:
            self.place_front([item])

    def bury(self, consumer: str, fence: int) -> None:
        """A held delivery is given up."""
        self._bury(self._let_go(consumer, fence))

    def reclaim(self) -> tuple[int, int]:
        """Leases that ended: (reclaimed, buried)."""
        items = [self.held[""].pop(fence) for fence in sorted(self.ended)]
        self.ended.clear()
        front = []
        for item in items:
            if item.max_crashes is not None and item.crashes + 1 >= item.max_crashes:
                self._bury(item, crashes=1)
            else:
                item.delivered_again(crashes=1)
                self._watch(item)
                front.append(item)
        self.place_front(front)
        self.totals["reclaimed"] += len(front)
        return len(front), len(items) - len(front)

    def reap(self, consumer: str, losses: int = 0) -> int:
        """Everything of a consumer returns, or is buried if it was on probation and lost."""
        held = self.held.pop(consumer, {})
        items = []
        for fence in sorted(held):
            item = held[fence]
            if item.is_on_probation and losses:
                self._bury(item, losses=losses)
                continue
            item.delivered_again(losses=losses)
            self._watch(item)
            items.append(item)
        self.place_front(items)
        self.totals["reclaimed"] += len(items)
        self.consumers.discard(consumer)
        return len(held)

    def promote(self) -> None:
        """Due messages go to their line."""
        due = sorted(self.due_order, key=self.due_order.__getitem__)
        self.place_back([self.delayed.pop(message) for message in due])
        self.due_order.clear()

    def expire(self) -> int:
        """Waiting messages whose deadline passed are reported."""
        expired = [item for item in self.watched.values() if item.has_passed]
        for item in expired:
            del self.watched[item.id]
            self.results[item.id] = "E"
            if self.delayed.get(item.id) is item:
                self._forget_delayed(item)
                self.release(item)
                continue
            item.was_reported = True
            if item.mode == "i":
                self.release(item)
        self.totals["expired"] += len(expired)
        return len(expired)

    def cancel(self, message: str) -> bool:
        """Take out of where it waits; afterwards, whether it is cancelled."""
        item = self.delayed.get(message)
        if item is not None:
            self._forget_delayed(item)
        else:
            item = next((i for i in self._lines() if i and i.id == message and not i.has_passed), None)
            if item is None:
                return self.results.get(message) == "C"
            if item in self.urgent:
                self.urgent.remove(item)
            else:
                self.line[self.line.index(item)] = None
        self.release(item)
        if item.has_deadline:
            self.watched.pop(message, None)
        self.results[message] = "C"
        self.totals["cancelled"] += 1
        return True

    def revive(self, messages: list[str]) -> list[str]:
        """Dead ones live again."""
        revived = [message for message in dict.fromkeys(messages) if message in self.dead]
        items = [self.dead.pop(message) for message in revived]
        for item in items:
            item.deliveries = item.failures = item.crashes = item.losses = 0
            item.is_suspect = item.is_on_probation = False
            item.has_deadline = item.has_passed = False
            self.results.pop(item.id, None)
            if item.mode in {"i", "r", "w"} and self.holder(item.key) in {None, item.id}:
                self.guards[item.key] = (item.id, "live")
        self.place_back(items)
        self.totals["revived"] += len(items)
        return revived

    def purge_waiting(self) -> int:
        """Everything that waits is gone."""
        thrown = [item for item in self.waiting() if not item.was_reported]
        for item in self.waiting():
            if not (item.mode == "i" and item.was_reported):
                self.release(item)
        self.line, self.urgent = [], []
        self.delayed.clear()
        self.due_order.clear()
        self.watched.clear()
        self.totals["purged"] += len(thrown)
        return len(thrown)

    def purge_dead(self) -> int:
        """The dead letters are gone."""
        thrown = len(self.dead)
        self.dead.clear()
        self.totals["purged"] += thrown
        return thrown

    def pop(self, count: int) -> list[Item]:
        """MQ.POP."""
        items = self.take(count)
        for item in items:
            item.deliveries = 1
        self.fence += len(items)
        self.popped += items
        return items

    def ack_popped(self, messages: list[str]) -> list[str]:
        """MQ.ACK."""
        acked = []
        for message in messages:
            item = next((item for item in self.popped if item.id == message), None)
            if item is not None:
                self.popped.remove(item)
                self.release(item)
                acked.append(message)
        self.totals["succeeded"] += len(acked)
        return acked

    def recover(self, count: int) -> list[Item]:
        """MQ.RECOVER of anything, however young."""
        items, rest = self.popped[:count], self.popped[count:]
        for item in items:
            item.deliveries += 1
        self.popped = rest + items
        self.fence += len(items)
        self.totals["reclaimed"] += len(items)
        return items

    def release(self, item: Item) -> None:
        """The message ended: its guard ends, or lasts for the window."""
        holder, _ = self.guards.get(item.key, ("", "over"))
        if item.mode in {"-", "t"} or holder != item.id:
            return
        if item.mode == "i":
            self.guards[item.key] = (item.id, "timed")
        else:
            del self.guards[item.key]

    def place_back(self, items: list[Item]) -> None:
        """To the back of the line, or behind its priority."""
        for item in items:
            if item.priority:
                self.sequence += 1
                self._place_urgent(item, self.sequence)
            else:
                self.line.append(item)

    def place_front(self, items: list[Item]) -> None:
        """To the front of the line, or before its priority; the items in the order of delivery."""
        self.line = [*(item for item in items if not item.priority), *self.line]
        for item in items:
            if item.priority:
                self._place_urgent(item, 0)

    def _place_urgent(self, item: Item, sequence: int) -> None:
        item.sequence = sequence
        self.urgent.append(item)
        self.urgent.sort(key=lambda item: (-item.priority, item.sequence))

    def _is_deliverable(self, item: Item) -> bool:
        if item.has_deadline:
            was_watched = self.watched.get(item.id) is item
            if was_watched:
                del self.watched[item.id]
            if item.has_passed:
                if was_watched:
                    self.release(item)
                    self.totals["expired"] += 1
                    self.results[item.id] = "E"
                elif item.mode != "i":
                    self.release(item)
                return False
        if item.mode == "w":
            self.release(item)
        return True

    def _bury(self, item: Item, crashes: int = 0, losses: int = 0) -> None:
        item.delivered_again(crashes=crashes, losses=losses)
        self.release(item)
        self.dead[item.id] = item
        self.totals["buried"] += 1

    def _let_go(self, consumer: str, fence: int) -> Item:
        self.ended.discard(fence)
        return self.held[consumer].pop(fence)

    def _forget_delayed(self, item: Item) -> None:
        del self.delayed[item.id]
        self.due_order.pop(item.id, None)

    def _watch(self, item: Item) -> None:
        if item.has_deadline:
            self.watched[item.id] = item

    def _lines(self) -> list[Item | None]:
        return [*self.urgent, *self.line]
