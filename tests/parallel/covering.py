"""A few cases that together hold every value, or every two values, of some settings."""

import itertools
import random


def covering(settings, strength, seed=0):
    """A few cases in which every value (strength 1) or every two values of different settings (2) stand:
    greedily, the best of some.
    """
    chance = random.Random(seed)
    places = {name: range(len(values)) for name, values in settings.items()}
    missing = set()
    for names in itertools.combinations(places, strength):
        missing |= {
            frozenset(zip(names, chosen, strict=True))
            for chosen in itertools.product(*(places[name] for name in names))
        }
    cases = []
    while missing:
        forced = dict(min(missing, key=sorted))
        tried = [
            {name: forced.get(name, chance.choice(values)) for name, values in places.items()}
            for _ in range(30)
        ]
        best = max(tried, key=lambda case: len(_parts(case, strength) & missing))
        missing -= _parts(best, strength)
        cases.append({name: settings[name][place] for name, place in best.items()})
    return cases


def _parts(case, strength):
    return {frozenset(part) for part in itertools.combinations(case.items(), strength)}
