"""A FastAPI service that publishes: `uvicorn main:app`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

try:
    from fastapi import FastAPI, HTTPException, Request
    from fastapi.concurrency import run_in_threadpool

    from headgate import HeadgateError, Publisher
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing.name} is not installed: pip install -r requirements.txt") from None


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    app.state.publisher = Publisher()  # HEADGATE_REDIS_URL, or the private Redis of a gateway in this folder
    yield
    app.state.publisher.close()


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{number}/ship")
def ship(number: int, request: Request) -> dict[str, object]:
    """A plain `def`: FastAPI runs it in a thread, so it may wait for Redis."""
    order = {"id": number, "status": "shipped"}
    try:
        receipt = request.app.state.publisher.publish(f"orders.{number}.shipped", order)
    except HeadgateError as error:
        raise HTTPException(503, f"shipped, but not told: {error}") from error
    return {**order, "offset": receipt.offset}


@app.post("/orders/{number}/pack")
async def pack(number: int, request: Request) -> dict[str, object]:
    """In an `async def` the publish goes to a thread, so that the loop does not wait."""
    receipt = await run_in_threadpool(request.app.state.publisher.publish, f"orders.{number}.packed", {"id": number})
    return {"id": number, "offset": receipt.offset}
