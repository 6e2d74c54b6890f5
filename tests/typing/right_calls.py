"""Calls that a type checker must accept. Never run; checked by tests/unit/tasks/test_types.py."""
# ruff: noqa: ARG001 - never run

from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Annotated, Any, assert_type

from mqworker import (
    App,
    AsyncTask,
    Batch,
    BatchContext,
    Context,
    Depends,
    Fair,
    GraphStep,
    Job,
    JobStatus,
    OutgoingCall,
    Rate,
    Retry,
    WorkflowJob,
    aas_completed,
    await_all,
    chain,
    chord,
    graph,
    group,
    task,
)
from mqworker.errors import BatchFailed

app = App("shop")


@app.task
def send(to: str, subject: str = "") -> int:
    return len(to + subject)


@app.task(queue="mail", retry=Retry(max=8, backoff=2.0, cap=600), rate=Rate("100/s"), timeout=30)
def send_later(to: str) -> str:
    return to


@app.task(queue="reports", fair_by=Fair("{tenant}", weights={"gold": 3}))
def report(tenant: str) -> None: ...


@app.task
async def fetch(url: str) -> bytes:
    return url.encode()


@app.task
def with_context(ctx: Context, number: int) -> float:
    return ctx.attempt / number


@app.task(result_ttl=60)
async def async_with_context(ctx: Context, number: int) -> float:
    return ctx.attempt / number


@task
def module_level(number: int) -> list[int]:
    return [number]


@app.task
def loose(payload: dict[str, Any], count: int = 1) -> None: ...


async def use(ctx: Context) -> None:
    assert_type(send("a"), int)
    assert_type(send.enqueue("a", subject="b"), Job[int])
    assert_type(send.delay("a"), Job[int])
    assert_type(await send.aenqueue("a"), Job[int])
    assert_type(send.using(delay=60, priority=9, deadline=3600, id="order-7").enqueue("a", "b"), Job[int])
    assert_type(send.apply_async(("a",), countdown=5), Job[int])
    assert_type(send.enqueue_many([("a", "b"), {"to": "c"}]), list[Job[int]])
    assert_type(send.enqueue("a").result(timeout=5), int)
    assert_type(await send.enqueue("a").aresult(), int)
    assert_type(await send.enqueue("a").astatus(), JobStatus)
    assert_type(await send.enqueue("a").acancel(), bool)
    async for job in aas_completed(send.map(["a"]), timeout=5):
        assert_type(job, Job[int])
    await await_all([send.enqueue("a"), fetch.enqueue("u")])
    assert_type(send_later.enqueue("a"), Job[str])
    assert_type(fetch.enqueue("u"), Job[bytes])
    coroutine: Coroutine[Any, Any, bytes] = fetch("u")
    assert_type(await coroutine, bytes)
    assert_type(await fetch("u"), bytes)
    assert_type(with_context.enqueue(3), Job[float])
    assert_type(with_context(3), float)
    assert_type(async_with_context.enqueue(number=3), Job[float])
    assert_type(module_level.enqueue(3), Job[list[int]])
    assert_type(loose.enqueue({"a": 1}), Job[None])
    assert_type(app.producer().enqueue(send, "a", "b"), Job[int])
    some_task: AsyncTask[..., bytes] = fetch
    some_task.enqueue("anything")
    assert_type(chain(fetch.s("u"), send.s("b")).enqueue(), WorkflowJob[int])
    assert_type((fetch.s("u") | send.s() | with_context.si(3)).enqueue().result(), float)
    assert_type(group(send.s("a"), send.s("b")).enqueue().result(), list[int])
    assert_type(group(send.s(each) for each in "abc").enqueue(), WorkflowJob[list[int]])
    assert_type(chord([send.s("a"), fetch.s("a") | send.s()], loose.s({})).enqueue(), WorkflowJob[None])
    assert_type(await (await chain(send.s("a")).aenqueue()).aresult(), int)
    whole = graph()
    assert_type(whole.step(send.s("a")), GraphStep[int])
    whole.step(send.s(), after=[whole.step(fetch.s("u")), whole.step(fetch.s("v"))]).on_error(loose.s())
    assert_type(
        send.s("a").set(queue="q", countdown=3).link(loose.s({})).on_error(loose.s()).enqueue().result(), int
    )
    assert_type(ctx.spawn(send.s("a"), name="one", then=loose.s()), Job[int])
    assert_type(await ctx.aspawn_many(send.s(each) for each in "abc"), list[Job[int]])


@app.schedule("*/5 * * * *", timezone="Europe/Berlin")
def tick() -> int:
    return 1


@app.schedule(every=5, kwargs={"number": 3})
@app.task
async def atick(ctx: Context, number: int) -> float:
    return ctx.attempt / number


assert_type(tick.enqueue(), Job[int])
assert_type(atick.enqueue(3), Job[float])


class Session: ...


def open_session() -> Iterator[Session]:
    yield Session()


async def aopen_session() -> AsyncIterator[Session]:
    yield Session()


async def load() -> bytes:
    return b""


assert_type(Depends(open_session), Session)
assert_type(Depends(aopen_session, scope="worker"), Session)
assert_type(Depends(load), bytes)
assert_type(Depends(Session), Session)


@app.task
def save(name: str, session: Session = Depends(open_session), loaded: bytes = Depends(load)) -> int:
    return len(name) + len(loaded)


@app.task
async def asave(
    ctx: Context, name: str, session: Annotated[Session | None, Depends(open_session)] = None
) -> int:
    return ctx.attempt


assert_type(save.enqueue("a"), Job[int])
assert_type(save("a", session=Session()), int)
assert_type(asave.enqueue("a"), Job[int])


@app.lifespan
async def lifespan(of: App) -> AsyncIterator[dict[str, Any]]:
    yield {"name": of.name}


@app.middleware
def around(ctx: Context) -> Iterator[None]:
    yield


@app.enqueue_middleware
def outgoing(call: OutgoingCall) -> Iterator[None]:
    call.headers["a"] = "b"
    yield


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents


app.codec(Money, lambda money: money.cents, Money)


async def use_more() -> None:
    assert_type(await send.aenqueue_many([("a", "b"), {"to": "c"}, send.si("d")]), list[Job[int]])
    assert_type(send.enqueue_many(send.si(each) for each in "abc"), list[Job[int]])
    with app.override(open_session, value=Session()), app.override(open_session, Session):
        assert_type(app.state.name, Any)


@app.task(batch=Batch(size=500, wait=0.2, by="{name}"), retry=3)
def load_rows(rows: list[Session]) -> list[int]:
    return [len(rows)] * len(rows)


@app.task(batch=Batch(size=500))
def load_with_context(ctx: BatchContext, rows: list[str]) -> None:
    if ctx.members[0].attempt > 1:
        raise BatchFailed({0: ValueError(rows[0])})


@app.task(batch=Batch(size=32, wait=0.05))
async def embed(texts: list[str], session: Session = Depends(open_session)) -> list[list[float]]:
    return [[float(len(each))] for each in texts]


@app.task(batch=Batch(size=32))
async def embed_all(ctx: BatchContext, texts: list[str]) -> None: ...


async def use_batches() -> None:
    assert_type(load_rows.enqueue(Session()), Job[int])
    assert_type(load_rows.enqueue(Session()).result(), int)
    assert_type(load_rows.using(priority=3).delay(Session()), Job[int])
    assert_type(load_rows.map([Session()]), list[Job[int]])
    assert_type(load_rows.enqueue_many([(Session(),)]), list[Job[int]])
    assert_type(load_rows([Session()]), list[int])
    assert_type(load_with_context.enqueue("a"), Job[None])
    assert_type(await embed.aenqueue("a"), Job[list[float]])
    assert_type(await embed(["a", "b"]), list[list[float]])
    assert_type(embed_all.enqueue("a"), Job[None])
    assert_type(group(load_rows.s(Session()), load_rows.s(Session())).enqueue(), WorkflowJob[list[int]])
