"""Sentences to read before trusting the numbers of a model."""

from collections.abc import Mapping
from typing import Any

from widenet.training.run_directory import RunDirectory
from widenet.training.run_log import diverged
from widenet.training.saved_facts import TrainingFacts, facts_of
from widenet.training.state import mixed_arithmetic


def caveats_of(run: RunDirectory, saved: Mapping[str, Any]) -> list[str]:
    """Return the sentences about a run; `saved` are the facts that were saved beside its weights."""
    found = []
    facts = facts_of(saved)
    arithmetic = facts.state.arithmetic if isinstance(facts, TrainingFacts) else facts.arithmetic
    if isinstance(facts, TrainingFacts):
        state = facts.state
        place = f"step {state.step:,} of epoch {state.epoch + 1}" if state.step else f"epoch {state.epoch}"
        found.append(f"{run.path} has not ended: this is its checkpoint after {place}.")
    if len(arithmetic) > 1:
        found.append(mixed_arithmetic(run.path))
    if (problem := diverged(run.training, run.records())) is not None:
        found.append(f"{run.path}: {problem}")
    return found
