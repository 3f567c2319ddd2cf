"""What the page asks for beside items: values, ids, numbers and pictures, in a real Chromium."""

import struct
import zlib

import numpy as np
import pytest

from tests.browser import WIDTHS, check_accessible, needs_chromium, visit
from tests.serve.conftest import service
from tests.serve.test_page import add, expect_items
from widenet.data.lists import dataset_from_lists
from widenet.runs import Model, train

pytestmark = needs_chromium

SHAPE = 3, 4, 6
PIXELS = np.random.default_rng(8).integers(0, 256, SHAPE)
"""A picture, which is not scaled: levels from 0 to 255."""


def png(pixels):
    """A picture of channels, rows and columns in the format PNG, whose rows begin with their filter: none."""
    _, height, width = pixels.shape
    rows = np.moveaxis(pixels, 0, 2).astype(np.uint8).reshape(height, -1)
    packed = zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", packed),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )


@pytest.fixture(scope="module")
def covers(tmp_path_factory):
    """Ratings, the cover that somebody likes, from -1 to 1, a country, and a profile of three numbers."""
    folder = tmp_path_factory.mktemp("covers")
    random = np.random.default_rng(5)
    rows = [sorted(random.choice(20, 5, replace=False).tolist()) for _ in range(60)]
    dense = {
        "cover": np.append(random.uniform(-1, 1, (60, PIXELS.size - 1)), [[-1], [1]] * 30, axis=1),
        "profile": random.uniform(size=(60, 3)),
    }
    data = dataset_from_lists(
        folder / "data",
        rows,
        values=[random.integers(1, 6, 5).tolist() for _ in rows],
        sparse={"country": [[user % 4] for user in range(60)]},
        dense=dense,
    )
    read = ["items", "cover", "country", "profile"]
    layers = [{"name": f"of {name}", "kind": "input", "field": name} for name in read]
    layers[1]["shape"] = SHAPE
    sources = [layer["name"] for layer in layers]
    middle = {"name": "mid", "source": sources, "units": 6, "activation": "tanh"}
    layers += [middle, {"name": "out", "kind": "output", "field": "items"}]
    train({"layers": layers}, {"epochs": 2, "shards": 2}, data, folder / "run")
    return folder / "run"


@pytest.mark.parametrize("width", WIDTHS)
def test_values_ids_numbers_and_pictures_reach_the_network(width, chromium, covers):
    model, fields = Model.load(covers, "cpu"), {}
    with (
        service(covers) as running,
        visit(chromium, f"http://127.0.0.1:{running.port}/", width) as page,
    ):
        add(page, "7")
        page.get_by_label("Value of 7").fill("4")
        page.keyboard.press("Tab")
        expect_items(page, model.recommend(["7"], values=[4]))
        page.get_by_role("textbox", name="country").fill("2, 3")
        page.keyboard.press("Tab")
        fields["country"] = ["2", "3"]
        expect_items(page, model.recommend(["7"], values=[4], fields=fields))
        page.get_by_role("textbox", name="profile").fill("0.5 0.25, 1")
        page.keyboard.press("Tab")
        fields["profile"] = [0.5, 0.25, 1]
        expect_items(page, model.recommend(["7"], values=[4], fields=fields))
        page.get_by_role("group", name="cover").get_by_label("A picture").set_input_files(
            {"name": "cover.png", "mimeType": "image/png", "buffer": png(PIXELS)}
        )
        fields["cover"] = (PIXELS.ravel() / 255 * 2 - 1).astype(np.float32).tolist()
        expect_items(page, model.recommend(["7"], values=[4], fields=fields))
        assert page.get_by_role("img", name="The picture of cover").is_visible()
        check_accessible(page)
        page.get_by_role("button", name="Remove cover").click()
        del fields["cover"]
        expect_items(page, model.recommend(["7"], values=[4], fields=fields))
        assert page.evaluate("document.documentElement.scrollWidth") <= width
