"""The quick start of the README: define a task, enqueue it, wait for the result.

In one terminal:  mqworker run quickstart:app
In another:       python quickstart.py
"""

from mqworker import App, Retry

app = App("quickstart")


@app.task(retry=Retry(max=5, backoff=2.0))
def greet(name: str) -> str:
    return f"Hello, {name}!"


if __name__ == "__main__":
    job = greet.delay("world")  # returns at once; arguments are checked here
    print(job.id, "→", job.result(timeout=10))

    jobs = greet.enqueue_many([(f"reader {number}",) for number in range(1_000)])  # one round trip
    print(jobs[-1].result(timeout=10))
