"""An application whose tasks wait for the results of others."""

from __future__ import annotations

from mqworker import App, Context

app = App("waiting")


@app.task(queue="waiting")
def child() -> str:
    """What parents wait for."""
    return "grown"


@app.task(queue="waiting")
def parent() -> str:
    """Waits for a child without a time-out: with one worker that cannot come."""
    return child.enqueue().result()


@app.task(queue="circle")
async def partner(other: str, ctx: Context) -> str:
    """Waits for another one, which waits for this one."""
    return str(await app.job(other, queue=ctx.queue).aresult())
