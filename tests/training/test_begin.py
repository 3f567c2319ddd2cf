"""A training of a described weight resumes with the descriptions that it began with, and no others."""

import pytest

from tests.described import INTERRUPTED, described, interrupt, network
from widenet.errors import FitError
from widenet.runs import train


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return described(tmp_path_factory.mktemp("described") / "data")


@pytest.mark.parametrize("other", [{"genres": ("play", "novel", "poem")}, {"normalize": False}])
def test_a_training_resumes_with_its_descriptions_alone(other, data, tmp_path):
    with_others = described(tmp_path / "others", **other)
    assert with_others.digest == data.digest
    assert with_others.fields == data.fields
    interrupt(network(), data, tmp_path / "run")
    with pytest.raises(FitError, match='does not describe the items of field "items" as the dataset that '):
        train(network(), INTERRUPTED, with_others, tmp_path / "run", resume=True)


def test_a_network_that_reads_no_descriptions_resumes_with_others(data, tmp_path):
    plain = network()
    del plain["layers"][1]["described_by"]
    interrupt(plain, data, tmp_path / "run")
    with_others = described(tmp_path / "others", normalize=False)
    train(plain, INTERRUPTED, with_others, tmp_path / "run", resume=True)
