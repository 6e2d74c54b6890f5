"""Jobs from Flask: started by a request, looked at by another; a health route.

mqworker run web_flask:tasks
flask --app web_flask run
curl -X POST '127.0.0.1:5000/orders/3'
"""

from typing import Any

from flask import Flask

from mqworker import App
from mqworker.contrib.flask import init_app

tasks = App("orders")
web = Flask(__name__)
init_app(web, tasks, console_url="http://127.0.0.1:8780/")  # mqworker web


@tasks.task(name="orders.price")
def price(count: int) -> int:
    return count * 250


@web.post("/orders/<int:count>")
def take_order(count: int) -> Any:  # noqa: ANN401 - whatever Flask takes for an answer
    return {"id": price.delay(count).id}, 202


@web.get("/orders/<job_id>")
def show_order(job_id: str) -> Any:  # noqa: ANN401 - the same
    job = tasks.job(job_id)
    status = job.status()
    return {"status": status, "price": job.result(timeout=1) if status == "succeeded" else None}
