"""What an app says of a Celery queue: `app.queue("celery", model=CeleryQueue())`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mqworker.errors import InvalidArgument
from mqworker.model.names import shown, whole_number
from mqworker.queues.celery.keys import DEFAULT_STEPS
from mqworker.queues.celery.options import CeleryOptions

_LONGEST_PREFIX = 128
_MOST_STEPS = 10
_SHORTEST_POLL_S, _LONGEST_POLL_S = 0.01, 60.0


@dataclass(frozen=True, slots=True)
class CeleryQueue:
    """A queue of Celery in Redis: its producers stay as they are, its workers may run beside ours.

    The server and database of the setting `redis_url` are those of Celery's `broker_url`.
    """

    results: bool = True
    """Whether results are written where Celery's `AsyncResult` reads them."""
    prefix: str = ""
    """`global_keyprefix` of Celery's `broker_transport_options`; on a cluster one in braces."""
    priority_steps: Sequence[int] = DEFAULT_STEPS
    """`priority_steps` of Celery's `broker_transport_options`."""
    result_prefix: str = ""
    """`global_keyprefix` of Celery's `result_backend_transport_options`."""
    result_db: int | None = None
    """The database of Celery's `result_backend`, where it is another one of the same server."""
    result_expires: int = 86_400
    """Seconds for which results are kept, 0 for ever: Celery's `result_expires`."""
    lease: int = 30
    """Seconds after which what a dead node held comes back; renewed in time, however long a task runs."""
    poll: float = 0.2
    """Seconds between two looks into an empty queue."""

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "priority_steps", _steps(self.priority_steps)
        )  # frozen: checked, and hashable
        if not isinstance(self.results, bool):
            raise InvalidArgument(f"results is {shown(self.results)}; accepted are True and False")
        for name in ("prefix", "result_prefix"):
            text = getattr(self, name)
            if not isinstance(text, str) or len(text) > _LONGEST_PREFIX or "\x06" in text:
                raise InvalidArgument(
                    f"{name} is {shown(text)}; accepted are texts of up to {_LONGEST_PREFIX} characters"
                )
        if self.result_db is not None:
            whole_number("result_db", self.result_db, least=0, most=10_000)
        whole_number("result_expires", self.result_expires, least=0, most=366 * 86_400)
        whole_number("lease", self.lease, least=1, most=86_400)
        _check_poll(self.poll)

    @property
    def title(self) -> str:
        """What the model is called in texts."""
        return "Celery"

    @property
    def wishes(self) -> frozenset[str]:
        """What a call may ask for beyond its turn."""
        return frozenset({"delay", "deadline"})

    @property
    def is_once(self) -> bool:
        """Whether what was begun is never begun again."""
        return False

    @property
    def reports_results(self) -> bool:
        """Whether what a task returns goes to the queue."""
        return True

    @property
    def lease_ms(self) -> int:
        """After how long without a renewal a delivery is somebody else's."""
        return self.lease * 1000

    @property
    def renew_every_ms(self) -> int:
        """How often that is renewed."""
        return max(100, self.lease_ms // 3)

    @property
    def options(self) -> CeleryOptions:
        """The same as its queue takes it."""
        return CeleryOptions(
            prefix=self.prefix,
            steps=self.priority_steps,
            writes_results=self.results,
            result_prefix=self.result_prefix,
            result_db=self.result_db,
            result_ms=self.result_expires * 1000,
        )


def _check_poll(poll: object) -> None:
    is_number = isinstance(poll, int | float) and not isinstance(poll, bool)
    if is_number and _SHORTEST_POLL_S <= float(str(poll)) <= _LONGEST_POLL_S:
        return
    accepted = f"{_SHORTEST_POLL_S:g} to {_LONGEST_POLL_S:g} seconds"
    raise InvalidArgument(f"poll is {shown(poll)}; accepted are {accepted}")


def _steps(steps: object) -> tuple[int, ...]:
    found = tuple(steps) if isinstance(steps, list | tuple | range) else ()
    are_numbers = all(isinstance(each, int) and not isinstance(each, bool) for each in found)
    if are_numbers and 0 < len(found) <= _MOST_STEPS and list(found) == sorted({*found}) and found[0] == 0:
        return found
    raise InvalidArgument(
        f"priority_steps is {shown(steps)}; accepted are up to {_MOST_STEPS} numbers that ascend from 0, as "
        "in Celery's broker_transport_options"
    )
