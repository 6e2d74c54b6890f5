"""The peers: who is measured beside whom, with which versions. To add one, write its adapter and its line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    """One contestant: an adapter in `benchmarks/peers/`, run in an environment of its own."""

    name: str
    label: str
    adapter: str
    requirements: tuple[str, ...] = ()
    """Exact versions; none means the environment of this very program."""
    environment: str = ""
    """The folder of the environment; by default the name of the peer."""
    variant: str = "tuned"
    has_safe_variant: bool = True
    """Other settings make it survive a crash; the crash is then measured with both."""
    longest_queue: int = 100_000
    """Where the measure by queue length ends: as long as the peer can be filled in some seconds."""

    most_workers: int = 1_000
    """More processes than that only make it slower."""
    measures: tuple[str, ...] = ()
    """Only these; by default all of them."""
    checkout: str = ""
    """Of mqworker itself: the folder of another revision (`against.py`); by default this one."""

    def takes_part_in(self, measure: str) -> bool:
        """Whether it is measured there."""
        return not self.measures or measure in self.measures

    @property
    def folder(self) -> str:
        """The name of the environment."""
        return self.environment or self.name

    @property
    def is_node(self) -> bool:
        """Runs on Node, not on Python."""
        return self.adapter.endswith(".mjs")


REDIS_PY = ("redis==8.1.0", "hiredis==3.5.0")
UVLOOP = "uvloop==0.23.0"
# The last one is imported by kombu and not declared by it; so is the last one of SAQ.
CELERY = ("celery==5.7.0", "kombu==5.7.0", *REDIS_PY, "packaging==26.3")
BULLMQ = ("bullmq@6.7.0", "ioredis@6.0.0")
CEILING = "bare"
OURS = "mqworker"

PEERS = (
    Peer(OURS, "mqworker", "mqworker_peer.py", has_safe_variant=False, longest_queue=5_000_000),
    Peer("celery", "Celery, tuned", "celery_peer.py", CELERY),
    Peer(
        *("celery-stock", "Celery, stock", "celery_peer.py", CELERY),
        environment="celery",
        variant="stock",
        has_safe_variant=False,
    ),
    Peer("dramatiq", "Dramatiq", "dramatiq_peer.py", ("dramatiq==2.2.1", *REDIS_PY)),
    Peer("huey", "Huey", "huey_peer.py", ("huey==3.5.4", *REDIS_PY), has_safe_variant=False),
    Peer("rq", "RQ", "rq_peer.py", ("rq==2.12.0", *REDIS_PY)),
    Peer("arq", "arq", "arq_peer.py", ("arq==0.28.0", "redis==5.3.1", "hiredis==3.5.0", UVLOOP)),
    Peer("taskiq", "taskiq", "taskiq_peer.py", ("taskiq==0.13.0", "taskiq-redis==1.2.4", *REDIS_PY, UVLOOP)),
    Peer(
        *("saq", "SAQ", "saq_peer.py"),
        ("saq==0.26.4", "redis==7.4.1", "hiredis==3.5.0", "typing-extensions==4.16.0"),
    ),
    Peer("streaq", "streaQ", "streaq_peer.py", ("streaq==7.2.0", "coredis==6.9.0", UVLOOP)),
    Peer("bullmq", "BullMQ (Node)", "bullmq_peer.mjs", BULLMQ),
    Peer(
        *("bullmq-1", "BullMQ, 1 process", "bullmq_peer.mjs", BULLMQ),
        environment="bullmq",
        has_safe_variant=False,
        most_workers=1,
    ),
    Peer(
        *(CEILING, "two bare processes, no queue", "bare_peer.py"),
        has_safe_variant=False,
        measures=("bodies",),
    ),
)
PEER_BY_NAME = {peer.name: peer for peer in PEERS}
