"""Ideas for the preset: every row, and the gradients and the term against their formulas."""

import json
import re

import numpy as np
import pytest
import torch

from benchmarks import ideas
from benchmarks.__main__ import parser
from benchmarks.piece import Piece
from benchmarks.places import presets
from benchmarks.switches import Autoencoder, Switches, _losses
from benchmarks.terms import neighbourhood
from tests.benchmarks.toys import HISTORIES, ITEMS, cells_of
from widenet.data.lists import dataset_from_lists
from widenet.data.together import neighbours


def test_every_idea_is_a_row(ordered, capsys):
    words = f"ideas --ordered {ordered} --users 50 --least 4 --units 4 --epochs 2"
    ideas.run(parser().parse_args(words.split()))
    first, second = capsys.readouterr().out.split("\n\n")[1:3]
    trainings = {name: cells for name, *cells in cells_of(first)}
    assert [*trainings] == [text for text, _ in ideas.TRAININGS.values()]
    assert [name for name, *_ in cells_of(second)] == [text for text, _ in ideas.RANKINGS.values()]
    preset = trainings.pop("preset, seed 0")
    assert preset[3:] == ["-", "-"]
    assert all(re.fullmatch(r"[+-]0\.\d{4}", cells[3]) for cells in trainings.values())
    assert sum(cells[:3] != preset[:3] for cells in trainings.values()) > len(trainings) - 3


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    held = [[(history[0] + 11) % ITEMS] for history in HISTORIES]
    return dataset_from_lists(tmp_path_factory.mktemp("piece") / "data", HISTORIES, heldout=held, width=ITEMS)


def test_the_gradients_of_bsl_and_of_delta_boost_are_those_of_their_formulas(dataset):
    piece, rows = Piece.of(dataset, 50, 0), torch.arange(6)
    documents = [json.loads(path.read_text()) for path in presets("gowalla")["best"]]
    history = piece.histories.take(rows)
    visible = torch.arange(history.num_entries) % 3 > 0
    chosen = history.to_dense(ITEMS).double()
    networks = [
        Autoencoder(piece, switches, documents, 5)
        for switches in (Switches(), Switches(negatives=0.7), Switches(others=0.6))
    ]
    shown = history.with_values(visible * networks[0].damping[history.indices]).to_dense(ITEMS).double()
    vectors = networks[0].vectors.detach().double().requires_grad_()
    hidden = torch.nn.functional.normalize(shown @ vectors, dim=1)
    logits = hidden @ torch.nn.functional.normalize(vectors, dim=1).T / 0.1
    share = logits.detach().softmax(1) * chosen.sum(1, keepdim=True)
    by_product = share - chosen, 0.7 * share - chosen, share * (0.6 + 0.4 * chosen) - chosen
    by_bias = share - chosen, share - chosen, by_product[2]
    for network, product, bias in zip(networks, by_product, by_bias, strict=True):
        _losses(network, rows, history, visible, torch.full((6, 1), 0.1)).sum().backward()
        [expected] = torch.autograd.grad((product * logits).sum(), vectors, retain_graph=True)
        torch.testing.assert_close(network.vectors.grad.double(), expected, atol=1e-3, rtol=1e-4)
        torch.testing.assert_close(network.bias.grad.double(), bias.sum(0), atol=1e-4, rtol=1e-4)


def test_the_term_has_the_neighbours_that_widenet_counts(dataset):
    piece = Piece.of(dataset, 50, 0)
    counted = neighbours(dataset, "items", range(ITEMS), 5)
    expected = np.zeros((ITEMS, ITEMS))
    expected[counted.features, counted.positions] = counted.similarities
    found = neighbourhood(piece, weight=1.0, floor=0.01, neighbours=5, popularity=0.0).matrix.toarray()
    np.testing.assert_allclose(np.sort(found, axis=0), np.sort(expected, axis=0), rtol=1e-6)
    assert (found > 0).sum() == (expected > 0).sum() > 100
