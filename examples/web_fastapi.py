"""Jobs from FastAPI: started by a request, looked at by another; a health route, and the console beside it.

mqworker run web_fastapi:tasks
uvicorn web_fastapi:web
curl -X POST '127.0.0.1:8000/orders' -H 'Content-Type: application/json' -d '{"article": "tea", "count": 3}'
"""

from fastapi import FastAPI
from pydantic import BaseModel, Field

from mqworker import App
from mqworker.contrib.fastapi import health_route, mount_console, producer_lifespan

tasks = App("orders")
web = FastAPI(lifespan=producer_lifespan(tasks))
web.add_route("/health", health_route(tasks))
mount_console(web, tasks)  # http://127.0.0.1:8000/mqworker/


class Order(BaseModel):
    article: str
    count: int = Field(gt=0)


@tasks.task(name="orders.price")
def price(order: Order) -> int:
    return order.count * 250


@web.post("/orders", status_code=202)
async def take_order(order: Order) -> dict[str, str]:
    job = await price.aenqueue(order)
    return {"id": job.id}


@web.get("/orders/{job_id}")
async def show_order(job_id: str) -> dict[str, object]:
    job = tasks.job(job_id)
    status = await job.astatus()
    return {"status": status, "price": await job.aresult(timeout=1) if status == "succeeded" else None}
