"""Suggests choices for new trials by Optuna's TPE, and says which choices matter."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, filterwarnings

from widenet.late_imports import optional
from widenet.randomness import stream
from widenet.tuning.rungs import Rungs, Trial
from widenet.tuning.space import Choice, From, SpaceSpec, made, random_choices, rounded

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial

_SUGGESTIONS = 10
"""Number of suggestions, after which choices are drawn at random if all of these were made before."""


def suggestions(
    space: SpaceSpec, rungs: Rungs, trials: Sequence[Trial], seed: int
) -> Iterator[dict[str, Any]]:
    """Yield choices for the next trial, the best first, none of which a trial has; perhaps none at all.

    They depend on the trials and the seed alone. Trials that have reached a rung count as Optuna's pruned
    ones, so that TPE compares them by the highest rung and then by its metric.
    """
    tried = [dict(trial.choices) for trial in trials]
    for attempt in range(_SUGGESTIONS):
        number = int(stream(seed, "tuning/suggest", len(trials), attempt).integers(2**31))
        choices = _suggested(space, rungs, trials, number)
        if choices not in tried:
            yield choices
    yield from random_choices(space, tried, seed)


def distributions(space: SpaceSpec, choices: Mapping[str, Any]) -> "dict[str, BaseDistribution]":
    """Return Optuna's distributions of some choices."""
    known = space.choices
    return {place: _distribution(known[place]) for place in choices}


def importance(space: SpaceSpec, rungs: Rungs, trials: Sequence[Trial]) -> dict[str, float]:
    """Return each choice's share of the differences at the first rung, the largest first, by PED-ANOVA.

    Watanabe et al., "PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in Arbitrary Subspaces",
    IJCAI 2023. Empty if there are too few trials, or no differences.
    """
    from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
    from optuna.trial import TrialState

    at_first = [trial for trial in trials if rungs.value(trial, 0) is not None and trial.problem is None]
    if len({rungs.value(trial, 0) for trial in at_first}) < 2:
        return {}
    with quiet(), catch_warnings():
        filterwarnings("ignore", "Some regimes")  # choices that few trials have
        study = _study(0)
        for trial in at_first:
            study.add_trial(_frozen(space, trial, TrialState.COMPLETE, rungs.value(trial, 0)))
        found = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    return {place: float(share) for place, share in found.items()}


def _suggested(space: SpaceSpec, rungs: Rungs, trials: Sequence[Trial], seed: int) -> dict[str, Any]:
    """Return what TPE suggests after some trials; numbers have four digits."""
    from optuna.trial import TrialState

    with quiet():
        study = _study(seed)
        for trial in trials:
            state = TrialState.RUNNING
            if trial.problem is not None or trial.reached:
                state = TrialState.COMPLETE if rungs.is_complete(trial) else TrialState.PRUNED
            value = rungs.value(trial, len(rungs.epochs) - 1) if state == TrialState.COMPLETE else None
            study.add_trial(_frozen(space, trial, state, value))
        asked = study.ask()

        def choose(place: str, choice: Choice) -> Any:
            if isinstance(choice, From):
                return asked.suggest_categorical(place, choice.labels)
            low, high = choice.between
            number: float = (
                asked.suggest_int(place, int(low), int(high), log=choice.log)
                if choice.is_whole
                else asked.suggest_float(place, low, high, log=choice.log)
            )
            return rounded(choice, number)

        return made(space, choose)


def _study(seed: int) -> Any:
    """Return an empty study of Optuna in memory."""
    with optional("optuna", "tune"):
        import optuna
    return optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed))


def _frozen(space: SpaceSpec, trial: Trial, state: Any, value: float | None) -> "FrozenTrial":
    from optuna.trial import create_trial

    return create_trial(
        state=state,
        value=value,
        params=dict(trial.choices),
        distributions=distributions(space, trial.choices),
        intermediate_values={} if trial.problem is not None else dict(trial.reached),
    )


def _distribution(choice: Choice) -> "BaseDistribution":
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(choice, From):
        return CategoricalDistribution(choice.labels)
    low, high = choice.between
    if choice.is_whole:
        return IntDistribution(int(low), int(high), log=choice.log)
    return FloatDistribution(low, high, log=choice.log)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Optuna from printing that it makes a study; its warnings stay."""
    log = logging.getLogger("optuna")
    before = log.level
    log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(before)
