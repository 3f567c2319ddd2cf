"""The service that a good user would write with plain torch: Starlette, uvicorn, and batches of what waits.

Its network has the sizes of the one of `benchmarks serve`, and weights that are drawn. Run it as
`python -m benchmarks.plain_service ITEMS UNITS`; it prints its address.
"""

import asyncio
import socket
import sys
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread

import msgspec
import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_MOST = 64
"""Largest batch."""


class Ask(msgspec.Struct):
    """Who asks for what."""

    items: list[str]
    k: int


class Plain:
    """A network with one hidden layer, and the ids of its items."""

    def __init__(self, items: int, units: int) -> None:
        torch.manual_seed(0)
        self.input_LH, self.output_LH = torch.randn(2, items, units).mul(0.1).unbind()
        self.hidden_H, self.bias_L = torch.zeros(units), torch.zeros(items)
        self.ids = [str(item) for item in range(items)]
        self.place = {name: place for place, name in enumerate(self.ids)}

    @torch.inference_mode()
    def answers(self, asks: Sequence[Ask]) -> list[bytes]:
        """Return the JSON of each answer."""
        rows = [[self.place[item] for item in ask.items if item in self.place] for ask in asks]
        flat = torch.tensor([item for row in rows for item in row])
        ends = torch.tensor([0, *(len(row) for row in rows)]).cumsum(0)
        mean_EH = torch.nn.functional.embedding_bag(flat, self.input_LH, ends, include_last_offset=True)
        logits_EL = torch.addmm(self.bias_L, torch.tanh(mean_EH + self.hidden_H), self.output_LH.T)
        sums_E = logits_EL.logsumexp(1)
        logits_EL[torch.repeat_interleave(torch.arange(len(rows)), ends.diff()), flat] = -torch.inf
        best_EK, units_EK = logits_EL.topk(max(ask.k for ask in asks), dim=1)
        scores_EK = (best_EK - sums_E[:, None]).exp()
        return [
            msgspec.json.encode(
                {
                    "items": [
                        {"item": self.ids[unit], "title": self.ids[unit], "score": score}
                        for unit, score in zip(units[: ask.k], scores, strict=False)
                    ]
                }
            )
            for ask, units, scores in zip(asks, units_EK.tolist(), scores_EK.tolist(), strict=True)
        ]


def main(items: int, units: int) -> None:
    """Answer until SIGTERM."""
    torch.set_num_threads(1)
    model, decode = Plain(items, units), msgspec.json.Decoder(Ask).decode
    waiting: SimpleQueue[tuple[Ask, asyncio.Future[bytes]]] = SimpleQueue()

    def work() -> None:
        while True:
            batch = [waiting.get()]
            while len(batch) < _MOST and not waiting.empty():
                batch.append(waiting.get())
            answers = model.answers([ask for ask, _ in batch])
            batch[0][1].get_loop().call_soon_threadsafe(_deliverer(batch, answers))

    async def recommend(request: Request) -> Response:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        waiting.put((decode(await request.body()), future))
        return Response(await future, media_type="application/json")

    Thread(target=work, daemon=True).start()
    app = Starlette(routes=[Route("/v1/recommend", recommend, methods=["POST"])])
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", file=sys.stderr, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False)).run(sockets=[listening])


def _deliverer(
    batch: Sequence[tuple[Ask, "asyncio.Future[bytes]"]], answers: list[bytes]
) -> Callable[[], None]:
    def deliver() -> None:
        for (_, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)

    return deliver


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
