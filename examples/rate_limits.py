"""Rate limits: 20 mails a second, and 5 a second to each customer, over all nodes together.

A limited message waits in Redis, not in a worker: other tasks pass it by.

In one terminal:  mqworker run rate_limits:app
In another:       python rate_limits.py
"""

import time

from mqworker import App, Rate, as_completed

app = App("rate_limits")


@app.task(rate=[Rate("20/s", burst=5), Rate("5/s", burst=1, key="{customer}")])
def send_mail(customer: str, number: int) -> str:
    return f"mail {number} to {customer}"


@app.task
def price(item: int) -> int:
    return 2 * item


if __name__ == "__main__":
    price.delay(0).result(timeout=20)  # the node is up

    began = time.monotonic()
    mails = send_mail.enqueue_many(
        [(customer, number) for number in range(6) for customer in ("ann", "bob", "eve")]
    )
    print(f"{len(mails)} mails enqueued; meanwhile price(21) = {price.delay(21).result(timeout=20)}")

    sent = 0
    for sent, job in enumerate(as_completed(mails, timeout=30), 1):
        if sent % 6 == 0:
            print(f"  {time.monotonic() - began:4.1f} s: {sent:2} sent, the last one {job.result()!r}")
    took = time.monotonic() - began
    print(f"{sent} mails in {took:.1f} s: six to each customer, one every fifth of a second")
