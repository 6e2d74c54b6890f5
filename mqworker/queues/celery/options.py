"""What a Celery queue was told of the application of Celery, as its keys depend on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mqworker.queues.celery.keys import DEFAULT_STEPS

DEFAULT_RESULT_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class CeleryOptions:
    """Where Celery's lists and results are."""

    prefix: str = ""
    steps: Sequence[int] = DEFAULT_STEPS
    writes_results: bool = True
    result_prefix: str = ""
    result_db: int | None = None
    result_ms: int = DEFAULT_RESULT_MS
