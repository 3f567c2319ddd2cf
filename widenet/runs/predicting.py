"""The k best items for every example of a dataset."""

from collections.abc import Iterator

from widenet.data.dataset import Dataset
from widenet.evaluate import check_part, output_name
from widenet.metrics.ranking import checked_k
from widenet.model.network import Network
from widenet.parallel.threads import fixed_arithmetic
from widenet.predict.rows import Block, recommendations
from widenet.runs.arguments import PredictArguments
from widenet.runs.rules import Restrictions
from widenet.runs.unread import warn_of_filters
from widenet.training.run_directory import RunDirectory


def predicted(
    run: RunDirectory, network: Network, dataset: Dataset, arguments: PredictArguments
) -> Iterator[Block]:
    """Check what `Model.predict` gets, and return the blocks that it yields."""
    k, name = checked_k(arguments.k), output_name(network, arguments.output)
    output = network.outputs[name]
    names = run.vocabulary(output.spec.field)
    if arguments.part is not None:
        check_part(arguments.part)
        dataset.sparse_field(output.spec.field, arguments.part)
    chosen = Restrictions.of(run, output, arguments)
    warn_of_filters(chosen.notes)
    return _one_thread_a_block(
        recommendations(
            network,
            dataset,
            names,
            name,
            k,
            arguments.exclude_seen,
            chosen.allowed.to(network.device),
            chosen.never_for,
            arguments.say,
            part=arguments.part,
            rules=chosen.rules,
            only_for=chosen.only_for,
        )
    )


def _one_thread_a_block(blocks: Iterator[Block]) -> Iterator[Block]:
    """Yield the blocks; the caller has torch's threads between two of them."""
    while True:
        with fixed_arithmetic():
            block = next(blocks, None)
        if block is None:
            return
        yield block
