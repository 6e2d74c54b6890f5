"""Tasks of the project, as its users write them: by Django's decorator."""

import os
import signal
import threading
import time
from pathlib import Path

from django.conf import settings
from django.db import connection, transaction
from django.db.models import F

from djshop.models import Order
from mqworker.contrib.django.project import project_app

try:
    from django.tasks import task
    from django.tasks.signals import task_finished, task_started
except ImportError:
    from django_tasks import task
    from django_tasks.signals import task_finished, task_started

app = project_app()


def note(*words):
    """A line in a file beside the database, for tests to read."""
    with Path(f"{settings.DATABASES['default']['NAME']}.heard").open("a") as file:
        file.write(" ".join(words) + "\n")


def hear_start(sender, task_result, **kwargs):
    """Note a signal of a worker."""
    note("started", sender.__name__, task_result.id, str(task_result.status))


def hear_end(sender, task_result, **kwargs):
    """Note a signal of a worker, and raise: that is to change nothing."""
    note("finished", sender.__name__, task_result.id, str(task_result.status))
    raise RuntimeError("a receiver that raises")


task_started.connect(hear_start)
task_finished.connect(hear_end)


@task
def add(left, right=1):
    """Add."""
    return left + right


@task(priority=10, queue_name="mail")
def mail(to):
    """Send."""
    return f"to {to}"


@task
async def aadd(left, right=1):
    """Add, on an event loop."""
    return left + right + 0 * await Order.objects.acount()


@task
def fail(text):
    """Fail."""
    raise ValueError(text)


@task
async def afail(text):
    """Fail on an event loop."""
    raise ValueError(text)


@task(takes_context=True)
def look(context, word):
    """What the context says."""
    result = context.task_result
    before = str(result.status)
    result.refresh()
    return [word, context.attempt, result.id, before, str(result.status), result.args, len(result.worker_ids)]


@task(backend="tried", takes_context=True)
def third_time(context):
    """Fail twice."""
    if context.attempt < 3:
        raise LookupError(f"attempt {context.attempt}")
    return context.attempt


@task(takes_context=True)
def die_once(context):
    """Kill the worker, the first time."""
    if context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return context.attempt


@task
def die():
    """Kill the worker, always."""
    os.kill(os.getpid(), signal.SIGKILL)


@task
def wait_for(path):
    """Run until a file is there."""
    while not Path(path).exists():
        time.sleep(0.01)


@task
def count(order):
    """Count a run in the database."""
    Order.objects.filter(pk=order).update(runs=F("runs") + 1)
    return connection.vendor


@task
def process_id():
    """Which server process of PostgreSQL this worker has."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return [cursor.fetchone()[0], os.getpid()]


@task
async def aprocess_id():
    """The same through the async ORM's thread."""
    from asgiref.sync import sync_to_async  # noqa: PLC0415

    return await sync_to_async(process_id.func)()


@task
def nothing_of_json():
    """Return what JSON has not."""
    return threading.Lock()


@task(backend="at_once")
def at_once(word):
    """A task of the backend that does not wait for a commit."""
    return word


@task
def order_in_order(article):
    """Enqueue from a task, in a transaction."""
    with transaction.atomic():
        order = Order.objects.create(article=article)
        return [order.pk, count.enqueue(order.pk).id]


@app.task(name="djshop.native")
def native(order):
    """A task of mqworker's own in the project's app."""
    return Order.objects.get(pk=order).article
