"""Values of other libraries as arguments and results: checked in the producer, and the same again."""
# ruff: noqa: RUF012 - models copy their defaults

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Generic, NamedTuple, NotRequired, TypedDict, TypeVar
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from mqworker import App
from mqworker.errors import ConfigurationError, InvalidArgument
from mqworker.model.annotation import rebuild_for
from mqworker.model.value_codec import NotAccepted, pack, unpack
from mqworker.testing import Bench

msgspec = pytest.importorskip("msgspec")
numpy = pytest.importorskip("numpy")
pydantic = pytest.importorskip("pydantic")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Line(pydantic.BaseModel):  # type: ignore[name-defined,misc]
    article: str
    count: int = pydantic.Field(gt=0, alias="quantity", default=1)
    price: Decimal = Decimal(1)

    @pydantic.computed_field
    def total(self) -> Decimal:
        return self.count * self.price


class Order(pydantic.BaseModel):  # type: ignore[name-defined,misc]
    model_config = pydantic.ConfigDict(extra="forbid")

    id: UUID
    at: datetime
    lines: list[Line] = []
    colour: Colour = Colour.RED
    pause: timedelta = timedelta(0)
    place: tuple[float, float] | None = None
    notes: set[str] = set()
    raw: bytes = b""
    home: pydantic.HttpUrl | None = None


ItemT = TypeVar("ItemT")


class Page(pydantic.BaseModel, Generic[ItemT]):  # type: ignore[name-defined,misc]
    items: list[ItemT]


class Point(msgspec.Struct):  # type: ignore[name-defined,misc]
    x: int
    y: float = 0.0
    at: datetime | None = None
    raw: bytes = b""
    names: set[str] = set()


class Circle(msgspec.Struct, tag=True, rename="camel"):  # type: ignore[name-defined,misc,call-arg]
    mid_point: Point
    radius: Decimal


class Where(NamedTuple):
    path: Path
    colour: Colour = Colour.RED


class Person(TypedDict):
    name: str
    since: timedelta
    where: NotRequired[Where]


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and other.cents == self.cents

    def __hash__(self) -> int:
        return hash(self.cents)

    @staticmethod
    def parse(text: str) -> Money:
        return Money(int(text))

    def text(self) -> str:
        return str(self.cents)


@dataclass
class Bill:
    to: Order | None
    sum: Money
    points: list[Point]


App("codecs").codec(Money, Money.text, Money.parse)

lines = some.builds(
    Line, article=some.text(), quantity=some.integers(1, 10**6), price=some.decimals(0, 1000, places=2)
)
instants = some.datetimes(timezones=some.just(UTC))
spans = some.timedeltas()
orders = some.builds(
    Order,
    id=some.uuids(),
    at=instants,
    lines=some.lists(lines, max_size=3),
    colour=some.sampled_from(Colour),
    pause=spans,
    place=some.none() | some.tuples(some.floats(-90, 90), some.floats(-180, 180)),
    notes=some.sets(some.text(), max_size=3),
    raw=some.binary(),
)
points = some.builds(
    Point,
    x=some.integers(-(2**63), 2**63 - 1),
    y=some.floats(allow_nan=False, allow_infinity=False),
    at=some.none() | instants,
    raw=some.binary(),
    names=some.sets(some.text(), max_size=3),
)
circles = some.builds(Circle, mid_point=points, radius=some.decimals(0, 1000, places=2))
names = some.text(some.characters(exclude_characters="\0/", codec="utf-8"), min_size=1)
wheres = some.builds(Where, path=names.map(Path), colour=some.sampled_from(Colour))
people = some.fixed_dictionaries({"name": some.text(), "since": spans}, optional={"where": wheres})
moneys = some.builds(Money, some.integers())
bills = some.builds(Bill, to=some.none() | orders, sum=moneys, points=some.lists(points, max_size=2))


@pytest.mark.parametrize(
    ("hint", "values"),
    [
        (Order, orders),
        (Order | None, some.none() | orders),
        (list[Order], some.lists(orders, max_size=2)),
        (dict[str, Line], some.dictionaries(some.text(), lines, max_size=2)),
        (Page[Line], some.builds(Page[Line], items=some.lists(lines, max_size=2))),
        (Point, points),
        (Circle | None, circles),
        (dict[str, Circle], some.dictionaries(some.text(), circles, max_size=2)),
        (Where, wheres),
        (Person, people),
        (timedelta, spans),
        (PurePosixPath, names.map(PurePosixPath)),
        (Money, moneys),
        (Annotated[Money, "euro"], moneys),
        (tuple[Money, ...], some.lists(moneys, max_size=3).map(tuple)),
        (Bill, bills),
    ],
    ids=lambda value: "" if isinstance(value, some.SearchStrategy) else str(value),
)
def test_what_an_annotation_names_is_the_same_again(hint: object, values: some.SearchStrategy[Any]) -> None:
    rebuild = rebuild_for(hint)
    assert rebuild is not None

    @settings(max_examples=60, deadline=None)
    @given(value=values)
    def check(value: object) -> None:
        again = rebuild(unpack(pack(value)))

        assert again == value
        assert type(again) is type(value)

    check()


def test_models_are_arguments_and_results_of_tasks() -> None:
    app = App("shop")

    @app.task(name="add")
    def add(order: Order, line: Line | None = None, more: list[Point] | None = None) -> Order:
        assert isinstance(order, Order)
        assert line is None or isinstance(line, Line)
        assert all(isinstance(each, Point) for each in more or ())
        return order.model_copy(update={"lines": [*order.lines, *([line] if line else [])]})

    order = Order(id=UUID(int=7), at=datetime(2026, 1, 1, tzinfo=UTC), home="https://example.org/a")
    with Bench(app) as bench:
        job = add.enqueue(order, line=Line(article="tea", quantity=2), more=[Point(1)])
        plain = add.enqueue({"id": str(UUID(int=8)), "at": "2026-01-01T00:00:00Z"})  # type: ignore[arg-type]
        bench.run_all()
        result = job.result()
        assert result.lines == [Line(article="tea", quantity=2)]
        assert result.home == order.home
        assert plain.result().id == UUID(int=8)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            {"id": "x", "at": "2026-01-01T00:00:00Z"},
            "'order': a dict is no Order: id: Input should be a valid UUID",
        ),
        ({"id": str(UUID(int=7)), "at": "2026-01-01", "more": 1}, "more: Extra inputs are not permitted"),
        (7, "'order': a int is no Order"),
        (None, "'order'"),
    ],
)
def test_what_a_worker_would_refuse_is_refused_in_the_producer(value: Any, text: str) -> None:  # noqa: ANN401
    app = App("shop")

    @app.task(name="t")
    def t(order: Order) -> None: ...

    with Bench(app) as bench:
        with pytest.raises(InvalidArgument, match=f"^t: argument {text}" if "'" in text else text):
            t.enqueue(value)
        with pytest.raises(InvalidArgument):
            t.enqueue_many([(value,)])
        assert bench.enqueued() == []


def test_a_struct_that_does_not_fit_is_refused_with_its_place() -> None:
    app = App("shop")

    @app.task(name="t")
    def t(circle: Circle | None) -> None: ...

    with Bench(app), pytest.raises(InvalidArgument, match=r"Expected `int`, got `str` - at `\$.midPoint.x`"):
        t.enqueue({"type": "Circle", "midPoint": {"x": "one"}, "radius": "1"})  # type: ignore[arg-type]


def test_a_secret_of_pydantic_is_refused_and_not_sent_as_asterisks() -> None:
    class Login(pydantic.BaseModel):  # type: ignore[name-defined,misc]
        key: pydantic.SecretStr

    with pytest.raises(NotAccepted):
        pack([Login(key="hush")])


@pytest.mark.parametrize(
    ("value", "arrives_as"),
    [
        (numpy.int64(7), 7),
        (numpy.uint8(7), 7),
        (numpy.float32(0.5), 0.5),
        (numpy.float64(0.5), 0.5),
        (numpy.bool_(True), True),  # noqa: FBT003
        (Path("a/b"), "a/b"),
        (timedelta(days=1, microseconds=2), "P1DT0.000002S"),
        (Where(Path("a")), ("a", "red")),
    ],
)
def test_what_nobody_annotates_arrives_as_something_plain(value: object, arrives_as: object) -> None:
    again = unpack(pack(value))

    assert again == arrives_as
    assert type(again) is type(arrives_as)


@pytest.mark.parametrize(
    "value", [numpy.array([1, 2]), numpy.datetime64("2026-01-01"), numpy.complex64(1)], ids=repr
)
def test_other_values_of_numpy_are_refused_with_a_hint(value: object) -> None:
    app = App("shop")

    @app.task(name="t")
    def t(value: object) -> None: ...

    with Bench(app), pytest.raises(InvalidArgument, match=r"send \.item\(\) or \.tolist\(\) of it"):
        t.enqueue(value)


def test_a_codec_that_fails_is_said_with_the_argument() -> None:
    class Odd:
        pass

    app = App("shop")
    app.codec(Odd, lambda _odd: 1 / 0, lambda _plain: Odd())

    @app.task(name="t")
    def t(odd: object) -> None: ...

    with (
        Bench(app),
        pytest.raises(InvalidArgument, match=r"'odd' of t: this .*Odd cannot be sent: ZeroDivisionError"),
    ):
        t.enqueue(Odd())
    with pytest.raises(ConfigurationError, match="one codec for a class"):
        app.codec(Odd, str, lambda _plain: Odd())
    with pytest.raises(InvalidArgument, match="two functions"):
        app.codec("Odd", str, str)  # type: ignore[arg-type]


def test_json_of_others_will_do_where_an_annotation_says_what_is_meant() -> None:
    rebuild = rebuild_for(Order)
    assert rebuild is not None

    order = Order(
        id=UUID(int=7), at=datetime(2026, 1, 1, tzinfo=UTC), lines=[Line(article="tea", quantity=3)]
    )

    assert (
        rebuild(json.loads(order.model_dump_json(by_alias=True, exclude={"lines": {0: {"total"}}}))) == order
    )
