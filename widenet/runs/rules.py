"""Which items may be recommended: filters and rules of an output, before and after weights are read."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from widenet.evaluate import output_of
from widenet.predict.filters import PerUser, filter_of
from widenet.predict.list_rules import ListRules, Ranked, Unloaded, banned_by, existing, rules_of
from widenet.predict.top_k import Filter
from widenet.runs.arguments import PredictArguments, RecommendArguments
from widenet.training.run_directory import RunDirectory


def unloaded(run: RunDirectory, output: str | None) -> Unloaded:
    """Return an output of a run without its weights; raises FitError if there is none or no only one."""
    layers = {layer.name: layer for layer in run.network.outputs}
    name = output_of(list(layers), output)
    return Unloaded(layers[name], run.layout.units[name])


@dataclass(frozen=True)
class Restrictions:
    """Which items of an output may be recommended, in the host's memory.

    Attributes:
        allowed: Filter for everybody.
        rules: Rules for each list.
        never_for: Items that single users must not be shown.
        only_for: The only items that single users may be shown.
        notes: Sentences about ids of filters that are unknown.
    """

    allowed: Filter
    rules: ListRules
    never_for: PerUser | None
    only_for: PerUser | None
    notes: list[str]

    @classmethod
    def of(
        cls, run: RunDirectory, output: Ranked, arguments: RecommendArguments | PredictArguments
    ) -> "Restrictions":
        """Read and check what arguments say of an output's items.

        Raises:
            DataError: A file cannot be read, all ids of a filter are unknown, or a weight is wrong.
            FitError: The scores cannot be weighted, or the items have no attributes.
            OptionError: A rule is wrong.
        """
        names, attributes = run.vocabulary(output.spec.field), run.attributes(output.spec.field)
        notes: list[str] = []
        allowed = filter_of(output, names, notes, arguments.never, arguments.only, arguments.weights)
        allowed = allowed.without(banned_by(output, attributes, arguments.where))
        rules = rules_of(output, attributes, arguments.at_most, arguments.diversity)
        never_for, only_for = (
            None if lists is None else PerUser(lists, names, notes, option)
            for option, lists in (("never_for", arguments.never_for), ("only_for", arguments.only_for))
        )
        return cls(allowed, rules, never_for, only_for, notes)


def notes_on_rules(
    run: str | Path, arguments: RecommendArguments | PredictArguments, names: Sequence[str] = ()
) -> list[str]:
    """Check filters, rules and the names of attributes before weights are read; return notes on the filters.

    Without filters, rules and names, it reads nothing. Raises as `Restrictions.of` and `Model.attributes_of`.
    """
    if not names and not _has_rules(arguments):
        return []
    directory = RunDirectory.open(Path(run))
    output = unloaded(directory, arguments.output)
    notes = Restrictions.of(directory, output, arguments).notes
    for name in names:
        existing(directory.attributes(output.spec.field), "attributes_of").check(name)
    return notes


def _has_rules(arguments: RecommendArguments | PredictArguments) -> bool:
    """Return whether arguments say anything of which items may be recommended."""
    settings = ("never", "only", "weights", "where", "at_most", "diversity", "never_for", "only_for")
    return any(getattr(arguments, name) for name in settings)
