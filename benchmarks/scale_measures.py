"""The measures that change one thing and look at the rate: the body, the length, the workers, the queues.

Each gives its figures by what was changed. They run once: their steps are compared with each other, and
a step is a session of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.figures import steady_rate
from benchmarks.peer import Peer
from benchmarks.session import NO_WORK, Arrangement, Session, open_session

Steps = dict[str, dict[str, float]]

CEILING_BY_BODY = {
    "1 ms CPU": 1_600,
    "5 ms CPU": 380,
    "10 ms CPU": 190,
    "50 ms CPU": 39,
    "100 ms waiting": 1_800,
    "10 kB arguments": 30_000,
}
"""What two workers can reach at most, about; it only sizes the queue."""
BODY_S = 1.5
LENGTHS = (1_000, 10_000, 100_000, 1_000_000, 5_000_000)
FILL_LIMIT_S = 10.0
"""A peer that needs longer is measured with what is queued by then, and the figures say how much that is."""
LONG_FILL_LIMIT_S = 60.0
LONG = 1_000_000
SINGLE_S = 0.3
SINGLE_MOST = 20_000
SAMPLE_S = 1.0
WORKER_COUNTS = (1, 2, 4)
QUEUE_COUNTS = (1, 10, 100, 1_000)
START_LIMIT_S = 20.0


def measure_bodies(peer: Peer) -> Steps:
    """Tasks per second with bodies that do something."""
    return {body: {"drain": _rate_of_body(peer, body, ceiling)} for body, ceiling in CEILING_BY_BODY.items()}


def measure_lengths(peer: Peer) -> Steps:
    """Enqueue and drain with so many tasks in the queue."""
    steps: Steps = {}
    for length in LENGTHS:
        if length <= peer.longest_queue:
            steps[str(length)] = _rates_at_length(peer, length)
    return steps


def measure_workers(peer: Peer) -> Steps:
    """Drain with so many worker processes."""
    return {
        str(count): {"drain": _rate_of_arrangement(peer, Arrangement(workers=count))}
        for count in WORKER_COUNTS
    }


def measure_queues(peer: Peer) -> Steps:
    """Drain with the tasks spread over so many queues; nothing for a peer whose workers serve one each."""
    with open_session(peer) as session:
        if not session.about.has_queues:
            return {}
    return {
        str(count): {"drain": _rate_of_arrangement(peer, Arrangement(queues=count))} for count in QUEUE_COUNTS
    }


SCALE_MEASURES: Mapping[str, Callable[[Peer], Steps]] = {
    "bodies": measure_bodies,
    "length": measure_lengths,
    "workers": measure_workers,
    "queues": measure_queues,
}


def _rate_of_body(peer: Peer, body: str, ceiling: float) -> float:
    with open_session(peer, Arrangement(body=body)) as session:
        count = round(min(ceiling, session.about.drain_hint) * BODY_S)
        return _sampled_rate(session, session.fill(count), 3 * BODY_S)


def _rates_at_length(peer: Peer, length: int) -> dict[str, float]:
    with open_session(peer, Arrangement(capacity=length + 2 * SINGLE_MOST)) as session:
        numbers = session.fill(length, LONG_FILL_LIMIT_S if length >= LONG else FILL_LIMIT_S)
        first = session.take_numbers(SINGLE_MOST)
        single = session.producer.single(NO_WORK, first, SINGLE_MOST, SINGLE_S)
        drain = _sampled_rate(session, numbers, SAMPLE_S)
        return {"queued": len(numbers), "enqueue": single.rate, "drain": drain}


def _rate_of_arrangement(peer: Peer, arrangement: Arrangement) -> float:
    with open_session(peer, arrangement) as session:
        return _sampled_rate(session, session.fill(round(session.about.drain_hint * SAMPLE_S)), 2 * SAMPLE_S)


def _sampled_rate(session: Session, numbers: range, limit_s: float) -> float:
    """The rate of what runs in so many seconds after the first task."""
    session.start_workers()
    # The order differs from peer to peer; whoever begins does so within the first thousand, or nearly.
    session.wait_until_some_run(numbers[:1_000], 1, START_LIMIT_S)
    session.wait_until_run(numbers, limit_s)
    return steady_rate(session.board.ran_at(numbers.start, numbers.stop))
