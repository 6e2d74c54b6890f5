"""Schedules: tasks that nobody calls; they run once per tick however many nodes run.

Start as many as you like:  mqworker run schedule:app
"""

from datetime import timedelta

from mqworker import App, Context

app = App("schedule")


@app.schedule(every=2)
def tick(ctx: Context) -> None:
    """A plain function becomes a task. Its message is named after the tick: schedule@milliseconds."""
    ctx.log.info("ticked", tick=ctx.id.partition("@")[2])


@app.schedule("*/5 7-19 * * MON-FRI", timezone="Europe/Berlin", jitter=30)
@app.task(queue="reports", unique=True)
def refresh(ctx: Context) -> None:
    """Every five minutes of a working day, up to half a minute late, and never beside itself."""
    ctx.log.info("refreshed")


@app.schedule("0 3 * * *", catch_up="one", kwargs={"keep_days": 30})
def tidy_up(ctx: Context, keep_days: int) -> None:
    """At three in the morning; if nobody ran then, once as soon as somebody does."""
    ctx.log.info("tidied_up", keep_days=keep_days)


@app.schedule(every=timedelta(hours=1), catch_up="all", name="hourly-bill")
@app.task
def bill(ctx: Context) -> None:
    """Every hour counts: those that were missed are made up for, each on its own."""
    ctx.log.info("billed", hour=ctx.id.partition("@")[2])


if __name__ == "__main__":
    for schedule in app.schedules.declared.values():
        print(schedule.name, schedule.timing)
