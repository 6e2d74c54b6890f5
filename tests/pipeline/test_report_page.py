"""The page is one well-formed file that refers to nothing outside and runs nothing, whatever the names."""

from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click import unstyle

from mqworker.cli.pipeline_report import write_page
from mqworker.cli.report_screen import report_lines
from mqworker.errors import MqworkerError
from mqworker_services.pipeline.lake import Lake
from mqworker_services.pipeline.report.charts import (
    Bar,
    Part,
    Series,
    TimeAxis,
    bar_chart,
    column_chart,
    duration_label,
    durations,
    heat_map,
    line_chart,
    linear,
    time_ticks,
)
from mqworker_services.pipeline.report.document import document
from mqworker_services.pipeline.report.figures import (
    Cell,
    Histogram,
    SlowRun,
    Times,
    bucket_of,
    groups,
    reasons,
    run_times,
    tally,
    whole,
)
from mqworker_services.pipeline.report.page import page
from mqworker_services.pipeline.report.question import By, Detail, Question, Report, Step, Window

AT_MS = 1_772_452_800_000
HOUR_MS = 3_600_000
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title></svg></style><b>",
    "it's ${heading} & $title",
    "\x1b[2J\u202eexe.gpj\x00",
    "名前🚀 with spaces",
    "x" * 500,
)
VOID = {"meta", "br", "img", "link", "input", "hr"}


def a_report(names: tuple[str, ...] = ("shop.mail", "shop.pay"), by: By = By.TASK) -> Report:
    cells = [
        cell
        for number, name in enumerate(names)
        for cell in (
            Cell(name, name, "enqueued", None, None, 10, 0.0, 0.0),
            Cell(name, name, "succeeded", None, bucket_of(40.0 + number), 9, 360.0, 41.0),
            Cell(name, name, "buried", f"Error of {name}", bucket_of(9.0), 1, 9.0, 9.0),
        )
    ]
    examples = {(name, f"Error of {name}"): f"{name} password=hunter2" for name in names}
    found = groups(cells, {name: Histogram({bucket_of(5.0): 10}, 5.0) for name in names}, {})
    step = Step(AT_MS, tally(cells), Times(run=run_times(cells)), dict.fromkeys(names, 369.0))
    nothing = Step(AT_MS + HOUR_MS, tally([]), Times(), {})
    runs = [SlowRun(name, name, name, name, "succeeded", 1, AT_MS, 5.0, 325_000.0) for name in names]
    question = Question(
        Lake.at("lake"), Window(None, AT_MS), by, tasks=names, sla_ms=50.0, detail=Detail.PAGE
    )
    return Report(
        question=question,
        first_ms=AT_MS,
        last_ms=AT_MS + 2 * HOUR_MS,
        step_ms=HOUR_MS,
        whole=whole(found, cells),
        groups=found,
        steps=[step, nothing, step],
        reasons=reasons(cells, examples),
        slow_runs=runs,
        gaps=[f"queue {name}: 15 blocks of events were lost" for name in names],
    )


class Reader(HTMLParser):
    """Notes what a browser would make of the page; elements must be closed in the order they were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    return reader


@pytest.mark.parametrize("names", [("shop.mail", "shop.pay"), HOSTILE], ids=["plain", "hostile"])
def test_the_page_is_well_formed_and_refers_to_nothing_outside(names: tuple[str, ...]) -> None:
    reader = read(page(a_report(names)))

    assert reader.open == []
    assert not reader.tags & {"script", "img", "link", "iframe", "object", "embed", "b", "a", "image", "use"}
    assert not [name for name, _ in reader.attributes if name.startswith("on") or name in {"src", "href"}]
    assert not [value for _, value in reader.attributes if "://" in value or "url(" in value]
    assert "@import" not in page(a_report(names))
    assert "url(" not in page(a_report(names))


def test_hostile_names_are_shown_as_text_without_control_characters() -> None:
    text = page(a_report(HOSTILE))

    assert "<script>" in "".join(read(text).text)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\x00" not in text
    assert "it's ${heading} & $title" in "".join(read(text).text)


def test_secrets_in_what_errors_said_are_masked_on_page_and_in_the_document() -> None:
    report = a_report()

    assert "hunter2" not in page(report)
    assert "hunter2" not in str(document(report))


def test_every_chart_has_a_name_for_readers_of_screens() -> None:
    reader = read(page(a_report()))

    assert [name for name, value in reader.attributes if (name, value) == ("role", "img")] == ["role"] * 6
    assert len([value for name, value in reader.attributes if name == "aria-label" and value]) == 6


@pytest.mark.parametrize("by", list(By))
def test_a_report_without_events_is_a_page_and_a_screen(by: By) -> None:
    empty = a_report((), by)

    assert read(page(empty)).open == []
    assert "no event of the lake fits" in "\n".join(report_lines(empty, 100))


def test_the_screen_shows_hostile_names_harmlessly() -> None:
    text = "\n".join(report_lines(a_report(HOSTILE), 100))

    assert "\x1b[2J" not in text
    assert "\\x1b[2J\\u202eexe.gpj\\x00" in text


def test_the_screen_shows_counts_and_times() -> None:
    lines = [unstyle(line) for line in report_lines(a_report(("shop.mail",)), 120)]

    row = next(line for line in lines if line.startswith("shop.mail"))
    assert row.split()[1:5] == ["10", "10", "9", "1"]
    assert row.split()[-3:] == ["0.0013", "100.0", "%"]
    assert [line for line in lines if "5.42 min" in line]


def test_the_document_holds_all_groups() -> None:
    groups_by_name = {group["name"]: group for group in document(a_report())["groups"]}  # type: ignore[attr-defined]

    assert groups_by_name["shop.mail"]["started"] == 10
    assert groups_by_name["shop.mail"]["run_ms"]["count"] == 10


AXIS = TimeAxis(AT_MS, HOUR_MS, ["a", "b", "<c>"])


@pytest.mark.parametrize(
    "svg",
    [
        column_chart("<t>", AXIS, [Series("<n>", "s1", [1, None, 2]), Series("m", "s2", [0, 0, 5])]),
        line_chart(
            "t&t", AXIS, [Series("p50", "s1", [1.0, None, 20_000.0]), Series("p99", "s2", [None] * 3)]
        ),
        bar_chart(
            "t", [Bar("<b>" * 20, [Part("p", "s1", 0)]), Bar("b", [Part("p", "s1", 7), Part("q", "s1", 1)])]
        ),
        bar_chart("t", []),
        heat_map("t", AXIS, [("<r>", [0, 1, 1e9])]),
        column_chart("t", TimeAxis(AT_MS, HOUR_MS, []), []),
    ],
)
def test_a_chart_is_well_formed_whatever_it_shows(svg: str) -> None:
    assert ET.fromstring(svg).tag == "svg"  # noqa: S314 - made a line above


def test_a_line_breaks_where_there_is_nothing_to_tell() -> None:
    svg = line_chart("t", AXIS, [Series("p50", "s1", [1.0, None, 2.0])])

    assert svg.count("M") - svg.count('class="tick" d="M') - svg.count('class="grid" d="M') == 2


def test_scales_end_at_round_values_around_what_they_show() -> None:
    assert linear(2_730).ticks == (0, 1_000, 2_000, 3_000)
    assert linear(0).ticks == (0, 1)
    assert [duration_label(tick) for tick in durations([67, 14_000]).ticks] == [
        "10 ms",
        "100 ms",
        "1 s",
        "10 s",
        "1 min",
    ]
    assert [duration_label(tick) for tick in durations([21, 90]).ticks] == ["20 ms", "50 ms", "100 ms"]
    assert [label for _, label in time_ticks(AT_MS, AT_MS + 6 * HOUR_MS)][0:2] == ["12:00", "13:00"]


def test_a_page_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    target.mkdir()

    with pytest.raises(MqworkerError, match=r"page\.html could not be written"):
        write_page(target, "text")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]
