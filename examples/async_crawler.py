"""An async crawler: coroutines run on an event loop in the worker, hundreds at once, and enqueue more.

It crawls a little web that is made up here, so that it runs anywhere; put httpx in place of `download`.

In one terminal:  mqworker run async_crawler:app
In another:       python async_crawler.py
"""

import asyncio
import time

from mqworker import App, Retry

app = App("crawler")

PAGES = 200


async def download(page: int) -> list[int]:
    """Stands for a request: it takes a fifth of a second and finds links to two more pages."""
    await asyncio.sleep(0.2)
    return [link for link in (2 * page, 2 * page + 1) if link <= PAGES]


@app.task(timeout=10, retry=Retry(max=3), result_ttl=60)
async def crawl(page: int) -> int:
    links = await download(page)
    for link in links:
        # An id makes a call unique: a page that many others link to is fetched once.
        await crawl.using(id=f"page-{link}").aenqueue(link)
    return len(links)


async def main() -> None:
    began = time.monotonic()
    first = await crawl.using(id="page-1").aenqueue(1)
    links = await first.aresult(timeout=30)
    for page in range(2, PAGES + 1):
        links += await app.job(f"page-{page}").aresult(timeout=30)  # by its id, whoever enqueued it
    took = time.monotonic() - began
    print(f"{PAGES} pages, {links} links in {took:.1f} s; one after the other it takes {PAGES * 0.2:.0f} s")
    await app.aclose()


if __name__ == "__main__":
    asyncio.run(main())
