"""A FastAPI service that publishes: `uvicorn main:app --port 8001`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

try:
    from fastapi import Depends, FastAPI, HTTPException, Request
    from fastapi.responses import FileResponse

    from headgate import AsyncPublisher, HeadgateError
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing.name} is not installed: README.md says how") from None


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with AsyncPublisher() as app.state.publisher:  # HEADGATE_REDIS_URL, or the private Redis of a gateway in this folder
        yield


def get_publisher(request: Request) -> AsyncPublisher:
    return request.app.state.publisher


Publisher = Annotated[AsyncPublisher, Depends(get_publisher)]
app = FastAPI(lifespan=lifespan)


@app.get("/")
def page() -> FileResponse:
    return FileResponse("page.html")


@app.post("/orders/{number}/ship")
async def ship(number: int, publisher: Publisher) -> dict[str, object]:
    order = {"id": number, "status": "shipped"}
    try:
        receipt = await publisher.publish(f"orders.{number}.shipped", order)
    except HeadgateError as error:
        raise HTTPException(503, f"shipped, but not announced: {error}") from error
    return {**order, "offset": receipt.offset}


@app.post("/orders/{number}/pack")
async def pack(number: int, publisher: Publisher) -> dict[str, object]:
    receipt = await publisher.publish(f"orders.{number}.packed", {"id": number})
    return {"id": number, "offset": receipt.offset}
