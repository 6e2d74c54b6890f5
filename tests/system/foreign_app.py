"""An application for tests that write rubbish around it: an echo, a schedule and a subscription."""

from __future__ import annotations

from mqworker import App

QUEUE = "steady"

app = App("foreign")


@app.task(queue=QUEUE)
def echo(word: str) -> str:
    """What a well-behaved client asks for."""
    return word


@app.schedule(every=60)
@app.task(queue=QUEUE)
def tick() -> None:
    """Called by the schedule."""


@app.subscribe("foreign.topic")
@app.task(queue=QUEUE)
def listen(event: object) -> None:
    """Takes every event of the topic."""
