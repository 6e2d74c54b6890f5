"""What is not in a lake and never will be: a note for each loss of each queue, written once.

A queue with a loss that nobody accepted stands still, and the others go on. Accepting is by name: the archive
goes on with what the queue has, and the lake is verified against that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from mqworker.events import BEGINNING, id_order
from mqworker_services.pipeline.checkpoint import UnreadableCheckpoint
from mqworker_services.pipeline.days import moment_of
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.offsets import Mark


@dataclass(frozen=True, slots=True)
class Loss:
    """Blocks of events of one queue that were gone before they were archived."""

    queue: str
    after: str
    """The last block before them."""
    read: int
    """How many blocks of the queue had been archived: tells apart losses behind the same block."""
    blocks: int | None
    """How many; None: nobody knows, for the stream was made anew."""
    until: str = ""
    """The first block after them; empty: none was there."""
    is_accepted: bool = False

    def told(self) -> str:
        """In words."""
        number = "an unknown number of" if self.blocks is None else f"{self.blocks:,}"
        since = f"after {_moment(self.after)}" if self.after != BEGINNING else "from the beginning"
        till = f" until {_moment(self.until)}" if self.until else ""
        return f"queue {self.queue}: {number} blocks of events were lost, {since}{till}"

    def overlaps(self, since_ms: int | None, until_ms: int) -> bool:
        """Whether it may concern a window of time."""
        is_after = bool(self.until) and since_ms is not None and id_order(self.until)[0] < since_ms
        return not is_after and id_order(self.after)[0] < until_ms


@dataclass(frozen=True, slots=True)
class LossBook:
    """The notes of one lake."""

    lake: Lake

    @property
    def _note(self) -> str:
        return self.lake.note("losses.json")

    def all(self) -> list[Loss]:
        """In the order in which they were found."""
        try:
            noted = self.lake.storage.read_note(self._note)["losses"]
            return [Loss(**each) for each in noted]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UnreadableCheckpoint(
                f"the notes of losses of {self.lake.root} cannot be read: {error}"
            ) from error

    def note(self, loss: Loss) -> bool:
        """Write it down, unless it was; one that was is accepted or counted anew. Whether it is new."""
        losses = self.all()
        for position, known in enumerate(losses):
            if _place(known) == _place(loss):
                renewed = replace(loss, is_accepted=loss.is_accepted or known.is_accepted)
                if renewed != known:
                    losses[position] = renewed
                    self._write(losses)
                return False
        self._write([*losses, loss])
        return True

    def is_accepted(self, queue: str, mark: Mark) -> bool:
        """Whether the loss behind a mark was accepted by a run that was killed before it went on."""
        return any(loss.is_accepted and _place(loss) == (queue, mark.id, mark.read) for loss in self.all())

    def _write(self, losses: Iterable[Loss]) -> None:
        self.lake.storage.write_note(self._note, {"losses": [asdict(loss) for loss in losses]})


def book_of(lake: Lake) -> LossBook:
    """The notes of a lake."""
    return LossBook(lake)


def beginning_told(queue: str, blocks: int) -> str:
    """What was gone before the archive began, in words."""
    return f"queue {queue}: {blocks:,} blocks of events were dropped before the archive began"


def _place(loss: Loss) -> tuple[str, str, int]:
    return loss.queue, loss.after, loss.read


def _moment(block_id: str) -> str:
    return moment_of(id_order(block_id)[0])
