"""The service that a good user would write around a model in an afternoon: FastAPI, one answer at a time.

Run it as `python -m benchmarks.fastapi_service RUN`; it prints its address.
"""

import socket
import sys
from threading import Lock

import torch
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

from widenet import Model


class Request(BaseModel):
    """Who asks for what."""

    items: list[str]
    k: int


def main(run: str) -> None:
    """Answer until SIGTERM."""
    torch.set_num_threads(1)
    model = Model.load(run, device="cpu")
    app, one_at_a_time = FastAPI(), Lock()

    @app.post("/v1/recommend")
    def recommend(request: Request) -> list[dict[str, str | float]]:
        with one_at_a_time:
            best = model.recommend(request.items, request.k)
        return [{"item": str(found.item), "score": found.score} for found in best]

    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(2048)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False)).run(sockets=[listening])


if __name__ == "__main__":
    main(sys.argv[1])
