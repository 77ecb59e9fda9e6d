"""The bare prototype: FastAPI, nats-py and three durable hops; no contracts, no traces, no retries.

python -m benchmarks.peers.prototype gateway URL TOKEN PORT
python -m benchmarks.peers.prototype worker URL TOKEN
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import nats
import uvicorn
import uvloop
from fastapi import FastAPI, Request, Response
from nats.js.api import ConsumerConfig, RetentionPolicy, StreamConfig

HOPS = 3


async def _gateway(url: str, token: str, port: int) -> None:
    waiting: dict[str, asyncio.Future[bytes]] = {}

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> Any:
        app.state.nats = await nats.connect(url, token=token)
        app.state.stream = app.state.nats.jetstream()

        async def answered(message: Any) -> None:
            future = waiting.pop(message.subject.split(".")[1], None)
            if future is not None:
                future.set_result(message.data)

        await app.state.nats.subscribe("answer.*", cb=answered)
        yield
        await app.state.nats.close()

    app = FastAPI(lifespan=lifespan)

    @app.post("/run")
    async def run(request: Request) -> Response:
        name = uuid4().hex
        waiting[name] = asyncio.get_running_loop().create_future()
        future = waiting[name]
        await app.state.stream.publish("hop.0", await request.body(), headers={"id": name, "Nats-Msg-Id": name})
        return Response(await future)

    config = uvicorn.Config(app, host="127.0.0.1", port=port, http="httptools", log_level="warning", access_log=False)
    await uvicorn.Server(config).serve()


async def _worker(url: str, token: str) -> None:
    connection = await nats.connect(url, token=token)
    stream = connection.jetstream()

    async def handle(message: Any, hop: int) -> None:
        name = message.headers["id"]
        if hop + 1 < HOPS:
            headers = {"id": name, "Nats-Msg-Id": f"{name}.{hop}"}
            await stream.publish(f"hop.{hop + 1}", message.data, headers=headers)
        else:
            await connection.publish(f"answer.{name}", message.data)
        await message.ack()

    async def serve(hop: int) -> None:
        work_queue = RetentionPolicy.WORK_QUEUE
        await stream.add_stream(StreamConfig(name=f"HOP{hop}", subjects=[f"hop.{hop}"], retention=work_queue))
        pull = await stream.pull_subscribe(f"hop.{hop}", "worker", config=ConsumerConfig(ack_wait=5))
        tasks: set[asyncio.Task[None]] = set()
        while True:
            try:
                messages = await pull.fetch(64, timeout=5)
            except (nats.errors.TimeoutError, TimeoutError):
                continue
            for message in messages:
                task = asyncio.ensure_future(handle(message, hop))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

    await asyncio.gather(*(serve(hop) for hop in range(HOPS)))


if __name__ == "__main__":
    role, url, token, *rest = sys.argv[1:]
    uvloop.run(_gateway(url, token, int(rest[0])) if role == "gateway" else _worker(url, token))
