"""Failures of a task: what becomes of a delivery whose task raised, and the error as data."""

from __future__ import annotations

import asyncio
import random
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, assert_never

from mqworker.errors import (
    InvalidArgument,
    InvalidMessage,
    LeaseLost,
    RateLimited,
    StoreFull,
    StoreUnavailable,
    TaskCancelled,
)
from mqworker.model.delivery import Delivery
from mqworker.model.envelope import decode_call
from mqworker.model.instant import After
from mqworker.model.retry_policy import GiveUp, Retry, RetryIn, decide
from mqworker.model.settlement import Bury, Failure, Park, Release, RetryAt, Run, Settlement
from mqworker.tasks.context import Context
from mqworker.tasks.options import milliseconds
from mqworker.tasks.running.prepared_task import PreparedTask
from mqworker.tasks.secret import without_values

LONGEST_MESSAGE = 4_000
LONGEST_TRACEBACK = 16_000
MOST_FRAMES = 50
_OWN_FOLDER = str(Path(__file__).parent)


def settle_failure(
    policy: Retry,
    delivery: Delivery,
    context: Context,
    error: BaseException,
    *,
    run: Run,
    chance: random.Random,
    secrets: Sequence[str] = (),
) -> Settlement:
    """How a delivery ends whose task raised this; `secrets` are values that are not to be stored with it."""
    if isinstance(error, TaskCancelled):
        if context.is_cancelled:
            return Release(delivery)  # the queue knows that it was cancelled, and does not take it back
        return Bury(delivery, "cancelled", failure_of(error, secrets), run=run)
    if isinstance(error, RateLimited):
        return _rate_limited(delivery, context, error, secrets)
    if isinstance(error, LeaseLost) and context.is_known_lost:
        return Release(delivery)  # refused, as everything that this run could say
    match decide(policy, delivery.failures, error, chance):
        case RetryIn(ms):
            return RetryAt(delivery, After(ms), failure_of(error, secrets), run)
        case GiveUp(reason):
            return Bury(delivery, reason, failure_of(error, secrets), run=run)
        case other:
            assert_never(other)


def _rate_limited(
    delivery: Delivery, context: Context, error: RateLimited, secrets: Sequence[str]
) -> Settlement:
    """Back to wait, uncounted: in front of its key, which is closed, or alone where there is none."""
    due = After(0)
    try:
        due = After(milliseconds("retry_after", error.retry_after))
        if context.close_for_retry(error):
            return Release(delivery)
    except InvalidArgument as problem:
        return Bury(delivery, "failed", failure_of(problem, secrets))
    except (StoreUnavailable, StoreFull):
        pass  # its key is not closed then: others will be told the same
    return Park(delivery, due, failure_of(error, secrets))


def failure_of(error: BaseException, secrets: Sequence[str] = ()) -> Failure:
    """The error as data: looking at it runs code of its class, which may fail too."""
    try:
        message = str(error)
    except Exception as trouble:  # noqa: BLE001 - foreign code; the failure must be told in any case
        message = f"<its text cannot be had: {type(trouble).__name__}>"
    # Masked before it is cut: half a secret is not found.
    message, trace = without_values(message, secrets), without_values(_traceback_of(error), secrets)
    return Failure(type(error).__qualname__, message[:LONGEST_MESSAGE], trace[-LONGEST_TRACEBACK:])


def _traceback_of(error: BaseException) -> str:
    # Without our own frames at the top: the first line is the user's.
    trace = error.__traceback__
    while (
        trace is not None
        and trace.tb_next is not None
        and trace.tb_frame.f_code.co_filename.startswith(_OWN_FOLDER)
    ):
        trace = trace.tb_next
    try:
        lines = traceback.format_exception(type(error), error, trace, limit=-MOST_FRAMES)
    except Exception:  # noqa: BLE001 - as above
        lines = traceback.format_tb(trace, limit=-MOST_FRAMES)
    return "".join(lines)


def secrets_of(task: PreparedTask, delivery: Delivery) -> list[str]:
    """What is not to be seen in an error of this run; from the body, for a task may change its arguments."""
    try:
        call = decode_call(delivery.body)
    except InvalidMessage:
        return []
    return task.definition.binding.secrets.values(call.args, call.kwargs)


def facts_of_failure(failure: Failure, error: BaseException, secrets: Sequence[str]) -> dict[str, Any]:
    """For the line of the log."""
    trace = {"traceback": failure.traceback} if secrets else {"exc_info": error}
    return {"error": failure.error, "error_msg": failure.message, **trace}


def cancelled(context: Context) -> TaskCancelled:
    """The error of a run on an event loop that was cancelled because its job is to stop."""
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
    return TaskCancelled(f"{context.task} {context.id} was cancelled while it ran")


def is_being_cancelled(error: BaseException) -> bool:
    """Whether somebody outside cancels the run; a task that raises CancelledError itself has failed."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
