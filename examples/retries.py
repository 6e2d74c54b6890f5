"""Retries: a shop whose bank is unreliable. Errors are tried again, with pauses; hopeless ones are set aside.

In one terminal:  mqworker run retries:app
In another:       python retries.py
"""

from mqworker import App, Context, Retry
from mqworker.errors import TaskFailed

app = App("retries")


class CardRefused(Exception):
    """The bank answered, and the answer is no: asking again is of no use."""


# Up to 5 more tries; the first after 0.2 s, each pause twice the one before, none above 2 s.
@app.task(retry=Retry(max=5, first=0.2, backoff=2.0, cap=2, never=(CardRefused,)))
def charge(order: int, ctx: Context) -> str:
    if ctx.attempt < 3:
        raise ConnectionError("the bank did not answer")
    return f"order {order} charged at attempt {ctx.attempt}"


@app.task(retry=Retry(max=5, never=(CardRefused,)))
def charge_stolen_card(order: int) -> str:
    raise CardRefused(f"order {order}: the card was reported stolen")


@app.task
def poll(ctx: Context) -> str:
    """A task may say itself that it wants to be run again, and when."""
    if ctx.attempt < 4:
        raise Retry("not ready yet", in_=0.1)
    return f"ready after {ctx.attempt} looks"


if __name__ == "__main__":
    charged, refused, polled = charge.delay(7), charge_stolen_card.delay(8), poll.delay()

    print(charged.result(timeout=20))
    print(polled.result(timeout=20))
    try:
        refused.result(timeout=20)
    except TaskFailed as failed:
        print(f"given up at once ({failed.reason}): {failed.error}: {failed.message}")

    # It rests as a dead letter, with its arguments and traceback: see `mqworker dead list`.
    letter = app.work_queue().dead_letters()[-1]
    print(f"{letter.message and letter.message.task} is a dead letter; job.retry() puts it back in line")
