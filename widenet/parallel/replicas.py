"""The exchange of a process that holds whole replicas of a network."""

from collections.abc import Callable, Sequence
from typing import Any

from widenet.model.exchange import Exchange, Pending
from widenet.parallel.local import LocalExchange


class ReplicaExchange(LocalExchange):
    """An exchange whose shards are all here; what concerns the training as a whole, the group decides.

    Attributes:
        group: Exchange between the processes, with a replica in the place of a shard.
    """

    def __init__(self, num_shards: int, num_threads: int, group: Exchange) -> None:
        super().__init__(num_shards, num_threads)
        self.group = group
        self.leads = self.writes = group.leads

    def at(self, place: str) -> None:
        """See `model.exchange.Exchange.at`."""
        self.group.at(place)

    def start_any(self, questions: Sequence[Callable[[], bool]], where: str) -> Pending[list[bool]]:
        """See `model.exchange.Exchange.start_any`."""
        return self.group.start_any(questions, where)

    def collect(self, value: Any, where: str) -> list[Any]:
        """See `model.exchange.Exchange.collect`."""
        return self.group.collect(value, where)
