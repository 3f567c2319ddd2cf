"""Which items may be recommended: filters and rules of an output, before and after weights are read."""

from collections.abc import Sequence
from pathlib import Path

from widenet.data.vocabulary import Vocabulary
from widenet.evaluate import output_of
from widenet.predict.filters import PerUser, filter_of
from widenet.predict.list_rules import ListRules, Ranked, Unloaded, banned_by, existing, rules_of
from widenet.predict.top_k import Filter
from widenet.run_arguments import PredictArguments, RecommendArguments
from widenet.training.run_directory import RunDirectory


def unloaded(run: RunDirectory, output: str | None) -> Unloaded:
    """Return an output of a run without its weights; raises FitError if there is none or no only one."""
    layers = {layer.name: layer for layer in run.network.outputs}
    name = output_of(list(layers), output)
    return Unloaded(layers[name], run.layout.units[name])


def check_rules(
    run: str | Path, arguments: RecommendArguments | PredictArguments, names: Sequence[str] = ()
) -> None:
    """Check the rules of attributes, and the names of some, before weights are read.

    Raises as `Model.recommend` and `Model.attributes_of` do.
    """
    if not (arguments.where or arguments.at_most or arguments.diversity or names):
        return
    directory = RunDirectory.open(Path(run))
    output = unloaded(directory, arguments.output)
    attributes = directory.attributes(output.spec.field)
    banned_by(output, attributes, arguments.where)
    rules_of(output, attributes, arguments.at_most, arguments.diversity)
    for name in names:
        existing(attributes, "attributes_of").check(name)


def filter_and_rules(
    run: RunDirectory, output: Ranked, arguments: RecommendArguments | PredictArguments
) -> tuple[Filter, ListRules]:
    """Return the filter and the rules of lists that arguments describe, in the host's memory."""
    names, attributes = run.vocabulary(output.spec.field), run.attributes(output.spec.field)
    allowed = filter_of(output, names, arguments.never, arguments.only, arguments.weights)
    allowed = allowed.without(banned_by(output, attributes, arguments.where))
    return allowed, rules_of(output, attributes, arguments.at_most, arguments.diversity)


def personal(
    arguments: RecommendArguments | PredictArguments, names: Vocabulary
) -> tuple[PerUser | None, PerUser | None]:
    """Return the items that single users must not be shown, and those that they alone may be shown."""
    never_for, only_for = arguments.never_for, arguments.only_for
    return (
        None if never_for is None else PerUser(never_for, names),
        None if only_for is None else PerUser(only_for, names, "only_for", skips_unknown=True),
    )
