"""Calls that a type checker must reject, each marked. Never run; checked by unit/tasks/test_types.py."""
# ruff: noqa: ARG001 - never run

from collections.abc import Iterator

from mqworker import App, Batch, Context, Depends, OutgoingCall, Rate, Retry, graph
from mqworker.errors import BatchFailed

app = App("shop")


@app.task
def send(to: str, subject: str = "") -> int:
    return len(to + subject)


@app.task(queue="mail")
async def fetch(url: str) -> bytes:
    return url.encode()


@app.task
def with_context(ctx: Context, number: int) -> float:
    return ctx.attempt / number


def use(ctx: Context) -> None:
    send.enqueue()  # wrong
    send.enqueue(1)  # wrong
    send.enqueue("a", "b", "c")  # wrong
    send.delay(to=b"a")  # wrong
    send.enqueue("a", topic="b")  # wrong
    send.using(priority="high").enqueue("a")  # wrong
    send.using(urgency=3).enqueue("a")  # wrong
    send.using(delay=3).enqueue(3)  # wrong
    send.apply_async(("a",), timeout_s=5)  # wrong
    len(send.enqueue("a").result())  # wrong
    len(fetch("u"))  # wrong
    fetch.enqueue(b"u")  # wrong
    with_context.enqueue("three")  # wrong
    with_context.enqueue(ctx, 3)  # wrong
    app.producer().enqueue(send, 1)  # wrong
    app.task(queue=3)  # wrong
    app.task(retries=3)  # wrong
    app.task(delivery="exactly_once")  # wrong
    Retry(times=3)  # wrong
    Rate(100)  # wrong
    send.s(1, 2, 3)  # wrong
    send.si()  # wrong
    send.s("a") | 3  # wrong
    graph().step(send)  # wrong
    graph().step(send.s("a"), after=3)  # wrong
    send.s("a").set(urgency=3)  # wrong
    send.s("a").on_error(3)  # wrong
    ctx.spawn(send)  # wrong
    len(ctx.spawn(send.s("a")).result())  # wrong
    app.schedule(5)  # wrong
    app.schedule(every=5, catch_up="some")  # wrong


class Session: ...


def open_session() -> Iterator[Session]:
    yield Session()


@app.task
def save(name: str, session: Session = Depends(open_session)) -> int:
    return len(name)


def open_number() -> Iterator[int]:
    yield 1


@app.task
def mixed_up(session: Session = Depends(open_number)) -> None: ...  # wrong


class Money: ...


def use_more(call: OutgoingCall) -> None:
    save.enqueue()  # wrong
    save.enqueue("a", session=3)  # wrong
    send.enqueue_many([send.si(1)])  # wrong
    send.enqueue_many([fetch.si("u")])  # wrong
    Depends(open_session, scope="request")  # wrong
    call.headers["a"] = 1  # wrong
    app.codec(Money, len, lambda _text: Money())  # wrong
    app.enqueue_middleware(open_session)  # wrong


@app.task(batch=Batch(size=500))
def load_rows(rows: list[Session]) -> list[int]:
    return [len(rows)] * len(rows)


@app.task(batch=Batch(size=500))  # wrong
def no_list(row: Session) -> list[int]:
    return []


@app.task(batch=Batch(size=500))  # wrong
def no_list_back(rows: list[str]) -> str:
    return rows[0]


def use_batches() -> None:
    load_rows.enqueue([Session()])  # wrong
    load_rows.enqueue("a")  # wrong
    load_rows.enqueue()  # wrong
    load_rows(Session())  # wrong
    len(load_rows.enqueue(Session()).result())  # wrong
    Batch(wait=3)  # wrong
    Batch(size="500")  # wrong
    BatchFailed({"3": ValueError()})  # wrong
    BatchFailed({3: "wrong"})  # wrong
