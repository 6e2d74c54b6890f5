"""The report as a document for programs: foreign names as they are, times in ms, instants in ISO 8601."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime

from mqworker.redaction import masked_text
from mqworker_services.pipeline.report.figures import (
    PERCENTS,
    Counts,
    Group,
    Histogram,
    Reason,
    SlowRun,
    Times,
    slowest,
)
from mqworker_services.pipeline.report.question import Report, Step
from mqworker_services.pipeline.report.trends import Kept, Storm

COUNTS = (
    *("enqueued", "started", "succeeded", "failed", "retried", "dead", "crashes"),
    *("reclaimed", "expired", "cancelled", "events"),
)

Document = dict[str, object]


def document(report: Report) -> Document:
    """Everything that the page shows, as JSON can hold it."""
    question = report.question
    return {
        "lake": str(report.lake),
        "since": _instant(report.first_ms),
        "until": _instant(report.last_ms),
        "by": question.by.value,
        "tasks": list(question.tasks),
        "queues": list(question.queues),
        "sla_ms": question.sla_ms,
        "total": _group(report, report.whole),
        "groups": [_group(report, group) for group in report.groups],
        "slowest": [group.name for group in slowest(report.groups, question.slowest)],
        "failures": [_reason(reason) for reason in report.reasons],
        "slowest_runs": [_slow_run(run) for run in report.slow_runs],
        "gaps": report.gaps,
        "unknown": report.unknown,
        "tz": question.zone,
        "slos": [_kept(kept) for kept in report.kept],
        "storms": [_storm(storm) for storm in report.storms],
        "wait_by_hour": [
            {"weekday": weekday, "hour": hour, **_distribution(waits)}
            for (weekday, hour), waits in sorted(report.waits_by_hour.items())
        ],
        "before": None if report.before is None else _before(report.before),
        "forecast": None if report.forecast is None else asdict(report.forecast),
        "step_ms": report.step_ms,
        "steps": [_step(step, report) for step in report.steps],
    }


def _group(report: Report, group: Group) -> Document:
    whole_ms = report.whole.counts.run_ms
    return {
        "name": group.name,
        **_counts(group.counts, report),
        "per_second": round(report.per_second(group.counts), 6),
        "run_ms_sum": round(group.counts.run_ms, 3),
        "time_share": round(group.counts.run_ms / whole_ms, 6) if whole_ms else 0.0,
        **_times(group.times),
    }


def _counts(counts: Counts, report: Report) -> Document:
    found: Document = {name: getattr(counts, name) for name in COUNTS}
    return found if report.question.sla_ms is None else {**found, "late": counts.late}


def _times(times: Times) -> Mapping[str, object]:
    measured = {"wait_ms": times.wait, "run_ms": times.run, "total_ms": times.total}
    return {name: _distribution(each) if each.total else None for name, each in measured.items()}


def _distribution(histogram: Histogram) -> Document:
    told = {f"p{percent}": round(histogram.percentile(percent) or 0.0, 3) for percent in PERCENTS}
    return {"count": histogram.total, **told, "max": histogram.max_ms}


def _step(step: Step, report: Report) -> Document:
    return {
        "at": _instant(step.at_ms),
        **_counts(step.counts, report),
        **_times(step.times),
        "errors": step.errors,
    }


def _kept(kept: Kept) -> Document:
    return {
        "slo": kept.slo.text,
        "good": kept.good,
        "late": kept.late,
        "dead": kept.dead,
        "percent": None if kept.share is None else round(kept.share, 4),
        "budget_burned": None if kept.burned is None else round(kept.burned, 4),
    }


def _storm(storm: Storm) -> Document:
    return {**asdict(storm), "at": _instant(storm.at_ms)}


def _before(report: Report) -> Document:
    return {
        "since": _instant(report.first_ms),
        "until": _instant(report.last_ms),
        "total": _group(report, report.whole),
        "groups": [_group(report, group) for group in report.groups],
    }


def _reason(reason: Reason) -> Document:
    example = masked_text(reason.example)
    return {"task": reason.task, "error": reason.error, "count": reason.count, "example": example}


def _slow_run(run: SlowRun) -> Document:
    return {
        "task_id": run.task_id,
        "task": run.task,
        "queue": run.queue,
        "worker": run.worker,
        "event": run.event,
        "attempt": run.attempt,
        "ended_at": _instant(run.ended_at_ms),
        "wait_ms": run.wait_ms,
        "run_ms": run.run_ms,
    }


def _instant(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
