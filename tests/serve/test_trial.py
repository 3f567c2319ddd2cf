"""A model that has been loaded has compiled and imported what requests need."""

import subprocess
import sys

_AFTER_LOADING = """
import sys
import widenet.kernels.compiled as compiled
from widenet.parallel.threads import fixed_arithmetic
from widenet.serve.engine import Engine
from widenet.serve.messages import Explain, Recommend, Score

made, make = [], compiled._kept_or_not


def noted(by, function, *more):
    made.append(function.__name__)
    return make(by, function, *more)


compiled._kept_or_not = noted
engine = Engine.load(sys.argv[1], sys.argv[2], "cpu", None)
assert made
made.clear()
before = {name.partition(".")[0] for name in sys.modules}
person = {"items": ["i1", "i5"]}
rules = {"never": ["i7"]}, {"only": ["i7"]}, {"weights": {"i7": 2.0}}, {"diversity": 0.3}, {"k": 80}
rules += {"at_most": {"genre": 1}}, {"where": {"in_stock": True}}, {"attributes": ["price"]}
asks = [Recommend(**person, **rule) for rule in rules]
asks += [Recommend(user="u3"), Score(**person, candidates=["i8"]), Explain(**person, item="i9")]
with fixed_arithmetic():
    for ask in asks:
        engine.answers([ask])
    engine.answers(asks * 4)
print(made, {name.partition(".")[0] for name in sys.modules} - before)
"""


def test_no_request_compiles_or_imports_what_loading_has_not(ruled):
    _, model, data = ruled
    line = [sys.executable, "-c", _AFTER_LOADING, str(model.run.path), str(data.path)]
    ended = subprocess.run(line, capture_output=True, text=True, check=True)
    assert ended.stdout == "[] set()\n"
