"""The tasks of the demo: quick, slow, failing, rate-limited and async ones (`mqworker run shop:app`)."""

import asyncio
import random
import time

from mqworker import App, Context, Rate, Retry

app = App("shop")


@app.task
def price(item: int, quantity: int) -> int:
    """Quick work: thousands a second."""
    return item * quantity


@app.task(queue="images")
def resize(image: int) -> str:
    """Slow work: a twentieth of a second each."""
    time.sleep(0.05)
    return f"image {image} resized"


@app.task(retry=Retry(max=20, first=0.2, backoff=1.5, cap=2))
def charge(order: int, ctx: Context) -> str:
    """Unreliable work: fails every other time, and is tried again."""
    if random.random() < 0.5:
        raise ConnectionError(f"the bank did not answer (attempt {ctx.attempt})")
    return f"order {order} charged"


@app.task(retry=0)
def refuse(order: int) -> None:
    """Hopeless work: ends as a dead letter, with the reason."""
    raise ValueError(f"order {order} has no address")


@app.task(queue="mail", rate=Rate("50/s", burst=10))
def send_mail(to: str) -> str:
    """Limited work: fifty a second over all nodes, waiting in Redis, not in a worker."""
    return f"mail to {to}"


@app.task
async def fetch(page: int) -> str:
    """Async work: many at once on an event loop."""
    await asyncio.sleep(0.3)
    return f"page {page}"
