"""What the pages of a run, of a comparison and of a dataset show, in a real Chromium."""

import json
import re
import shutil

import numpy as np
import pytest

from tests.browser import check_accessible, expect, needs_chromium, visit
from tests.ui.conftest import pages, training
from widenet.data.ingest import ingest
from widenet.metrics.kept import kept_evaluations
from widenet.plan.job import Job
from widenet.plan.memory import memory
from widenet.plan.numbers import amount
from widenet.report.subject import Subject
from widenet.runs import Model
from widenet.training.run_directory import RunDirectory

pytestmark = needs_chromium

RUNS = ["untied", "deep/tied"]
FIRST_DAY = 1_600_000_000
LENGTHS = [sum(user % (item + 1) == 0 for item in range(40)) for user in range(60)]
SHARES = {
    name: f"{sum(low <= length < 2 * low for length in LENGTHS) / 60:.1%}"
    for name, low in {
        "0": 0,
        "1": 1,
        "2 to 3": 2,
        "4 to 7": 4,
        "8 to 15": 8,
        "16 to 31": 16,
        "32 to 63": 32,
    }.items()
}
"""Of the users of "sales", by the number of their items."""


@pytest.fixture(scope="module")
def folder(trained, tmp_path_factory):
    """The runs, which keep an evaluation, and "sales": 40 items, few of them popular, on 101 days."""
    folder = tmp_path_factory.mktemp("kept")
    shutil.copytree(trained / "runs", folder / "runs")
    for name in RUNS:
        Model.load(folder / "runs" / name, "cpu").evaluate(trained / "data", "validation", keep=True)
    lines = [
        f"u{user},i{item},{FIRST_DAY + 86_400 * ((user * 7 + item * 13) % 101)}"
        for user in range(60)
        for item in range(40)
        if user % (item + 1) == 0
    ]
    (folder / "sales.csv").write_text("user,item,time\n" + "\n".join(lines))
    (folder / "items.csv").write_text(
        "item,title\n" + "\n".join(f"i{item},Tales {item}" for item in range(40))
    )
    ingest(
        [folder / "sales.csv"], folder / "sales", time="time", keep_times=True, titles=folder / "items.csv"
    )
    return folder


@pytest.fixture(scope="module")
def address(folder):
    with pages(folder / "runs", "--data", folder / "sales") as running:
        yield f"http://127.0.0.1:{running.port}/"


def section(page, title):
    """The section of a page with a heading."""
    return page.locator("section", has=page.get_by_role("heading", name=title, exact=True))


def curve(part, title):
    """The figure of a curve and what takes the keyboard; it is drawn once it comes near the window."""
    figure = part.locator(f'figure[data-title="{title}"]')
    figure.scroll_into_view_if_needed()
    return figure, figure.get_by_role("img", name=title)


def rows(table):
    return [row.locator("td").all_inner_texts() for row in table.locator("tbody tr").all()]


def edges(shape):
    """Left, top, right and bottom of something that can be seen."""
    expect(shape).to_be_visible()
    box = shape.bounding_box()
    return box["x"], box["y"], box["x"] + box["width"], box["y"] + box["height"]


def test_a_run_shows_its_network_as_a_graph_and_the_weights_that_layers_share(chromium, address):
    with visit(chromium, address + "run?name=deep%2Ftied", 390) as page:
        graph = section(page, "Network").get_by_role("group", name="The network")
        boxes = [edges(box) for box in graph.locator("rect").all()]
        names = [graph.get_by_text(name, exact=True) for name in ("history", "taste", "next")]
        assert len(boxes) == len(names)
        for (left, top, right, bottom), name in zip(boxes, names, strict=True):
            inner = edges(name)
            assert left < inner[0] < inner[2] < right < 390
            assert top < inner[1] < inner[3] < bottom
        assert [box[1] for box in boxes] == sorted(box[1] for box in boxes)
        left, top, _, bottom = edges(graph.get_by_role("img", name="taste and next share their weights"))
        assert left < min(box[0] for box in boxes)
        assert boxes[1][1] < top < boxes[1][3]
        assert boxes[2][1] < bottom < boxes[2][3]


def test_a_run_shows_its_layers_memory_time_and_log(chromium, address, folder):
    run = RunDirectory.open(folder / "runs" / "deep" / "tied")
    subject = Subject("tied", run)
    with visit(chromium, address + "run?name=deep%2Ftied", 390) as page:
        layers = section(page, "Layers")
        figure, drawn = curve(layers, "norms of weights")
        drawn.focus()
        page.keyboard.press("End")
        (name, last), *_ = subject.histograms[4]["weights"].items()
        said = figure.locator("output").inner_text()
        assert said.startswith("epoch 4, ")
        assert float(re.search(rf"{name} ([\d.]+)", said)[1]) == pytest.approx(last.norm, rel=1e-5)
        expect(layers.get_by_role("img", name=name, exact=True)).to_be_visible()
        hidden = layers.get_by_role("img", name="taste", exact=True)
        expect(hidden).to_be_hidden()
        layers.get_by_text("Activations", exact=True).focus()
        page.keyboard.press("Enter")
        expect(hidden).to_be_visible()

        manifest = run.dataset().manifest
        needed = memory(Job.of(run.layout, manifest.entries_per_example, manifest.num_examples))
        sizes = [size for size in vars(needed).values() if size > 0]
        plan = section(page, "Plan")
        widths = plan.locator("rect").evaluate_all("all => all.map(one => one.getBoundingClientRect().width)")
        assert max(widths) > 100
        assert np.divide(widths, sum(widths)) == pytest.approx(np.divide(sizes, sum(sizes)), abs=0.01)
        plan.get_by_text("Numbers").focus()
        page.keyboard.press("Enter")
        assert [size for _, size in rows(plan)] == [amount(size) for size in [*sizes, needed.total]]

        phases = rows(section(page, "Time").locator("table").first)
        assert [name for name, *_ in phases] == [
            "steps", "waiting for examples", "evaluation", "checkpoints", "in all"
        ]  # fmt: skip
        expect(section(page, "Time").get_by_role("img", name="time by phase")).to_be_visible()
        log = rows(section(page, "Log"))
        assert [epoch for epoch, *_ in log] == ["4", "3", "2", "1"]
        assert [float(loss) for _, loss, *_ in log] == [
            pytest.approx(record["loss"], rel=1e-3) for record in subject.records[::-1]
        ]
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        check_accessible(page)


MARKED = """figure => {
  const canvas = figure.querySelector("canvas");
  const copy = new OffscreenCanvas(canvas.width, canvas.height);
  const context = copy.getContext("2d", { willReadFrequently: true });
  context.drawImage(canvas, 0, 0);
  const [whole, inner] = [canvas, figure.querySelector(".u-over")].map(each => each.getBoundingClientRect());
  const scale = canvas.width / whole.width, height = Math.floor(inner.height * scale);
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--soft");
  const soft = [1, 3, 5].map(at => parseInt(context.fillStyle.slice(at, at + 2), 16));
  const found = [];
  for (let x = -1; x <= inner.width; x++) {
    const at = [inner.left - whole.left + x, inner.top - whole.top].map(each => Math.round(each * scale));
    const { data } = context.getImageData(...at, 1, height);
    let like = 0;
    for (let y = 0; y < data.length; y += 4) {
      like += data[y + 3] > 60 && soft.every((level, of) => Math.abs(data[y + of] - level) < 12);
    }
    if (like > height / 3) found.push(x / inner.width);
  }
  return found;
}"""
"""Where dashed lines in the colour of small print stand in a curve: 0 is its left edge, 1 its right one."""


def test_the_kept_epoch_is_marked_in_curves_named_and_said_and_moves_with_the_training(chromium, runs):
    document = runs / "untied" / "training.json"
    document.write_text(json.dumps(json.loads(document.read_text()) | {"keep": "best"}))
    with training(runs / "untied") as run, pages(runs) as running:
        for number, value in ((2, 0.9), (3, 0.8)):
            run.log({"epoch": number, "loss": 1 / number, "ndcg@5": value})
        with visit(chromium, f"http://127.0.0.1:{running.port}/run?name=untied") as page:
            figure = page.locator("figure.plot").first
            drawn = figure.get_by_role("img", name="loss. kept: epoch 2")
            drawn.focus()
            for key, kept in (("Home", ""), ("ArrowRight", ", kept: epoch 2"), ("ArrowRight", "")):
                page.keyboard.press(key)
                expect(figure.locator("output")).to_have_text(re.compile(rf"loss [\d.]+{kept}$"))
            assert figure.evaluate(MARKED) == pytest.approx([1 / 2], abs=0.01)
            page.evaluate(
                "() => { const { prototype } = CanvasRenderingContext2D, { fillText } = prototype;"
                " window.texts = []; prototype.fillText = function (...all) {"
                " texts.push(all[0]); return fillText.apply(this, all); }; }"
            )
            run.log({"epoch": 4, "loss": 0.2, "ndcg@5": 0.95, "ndcg@9": 0.5})
            figure.get_by_role("img", name="loss. kept: epoch 4").wait_for()
            assert figure.evaluate(MARKED) == pytest.approx([1], abs=0.01)
            assert "kept: epoch 4" in page.evaluate("texts")
            both, drawn = curve(page, "ndcg")
            drawn.focus()
            page.keyboard.press("End")
            expect(both.locator("output")).to_have_text(
                re.compile("^epoch 4, ndcg@5 0.95, .*, ndcg@9 0.5, kept: epoch 4$")
            )


def test_a_comparison_shows_paired_differences_with_their_intervals_and_what_differs(
    chromium, address, folder
):
    first, second = (kept_evaluations(folder / "runs" / name)[0].read().users for name in RUNS)
    changes = dict(zip(first.names, (second.values - first.values).astype(np.float64).T, strict=True))
    with visit(chromium, address + "compare?run=untied&run=deep%2Ftied", 390) as page:
        paired = section(page, "Paired differences")
        heads = paired.get_by_role("columnheader").all_inner_texts()
        assert heads == ["", *RUNS, "difference", "95 % interval", "p"]
        listed = {name: numbers for name, *numbers in rows(paired)}
        assert listed.keys() == changes.keys()
        for name, change in changes.items():
            _, _, difference, interval, _ = listed[name]
            low, high = map(float, interval.split(" to "))
            half = 1.96 * change.std() / len(change) ** 0.5
            assert float(difference) == pytest.approx(change.mean(), abs=1e-4)
            assert [low, high] == pytest.approx([change.mean() - half, change.mean() + half], abs=0.5 * half)
        between = section(page, "Differences")
        found = {name: numbers for name, *numbers in rows(between)}
        assert found["optimizer.learning_rate"] == ["0.05", "0.01"]
        assert found["epochs"] == ["3", "4"]
        assert found["layers[taste].activation"] == ['"tanh"', '"linear"']
        assert "batch_size" not in found
        assert between.locator("mark", has_text="0.01").count() == 1
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        wide = paired.get_by_role("group", name="Table")
        wide.focus()
        for _ in range(20):
            page.keyboard.press("ArrowRight")
        page.wait_for_function(
            "one => one.scrollLeft > 0 && one.scrollLeft + one.clientWidth > one.scrollWidth - 2",
            arg=wide.element_handle(),
        )


def test_a_dataset_shows_its_long_tail_its_lengths_its_times_and_what_is_found(chromium, address):
    with visit(chromium, address + "data", 390) as page:
        part = section(page, "items, train")
        figure, tail = curve(part, "items: entries of each item")
        tail.focus()
        said = figure.locator("output")
        page.keyboard.press("Home")
        expect(said).to_have_text("rank 1, entries 60")
        page.keyboard.press("ArrowRight")
        expect(said).to_have_text("rank 2, entries 30")
        page.keyboard.press("End")
        expect(said).to_have_text("rank 40, entries 2")
        lengths = part.locator("figure", has=page.get_by_role("img", name="items: entries of each user"))
        texts = lengths.locator("svg text").all_text_contents()
        assert dict(zip(texts[::2], texts[1::2], strict=True)) == SHARES
        expect(part).to_contain_text("The oldest entry has the time 2020-09-13, the newest 2020-12-22.")
        page.get_by_label("Find users by id, and items by id or title").focus()
        page.keyboard.type("tales 3")
        expect(page.locator("#found li").first).to_have_text("Tales 3 i3: 15 entries")
        page.keyboard.press("Control+A")
        page.keyboard.type("u1")
        page.get_by_role("link", name="u12", exact=True).focus()
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="User u12").wait_for()
        had = page.locator("#found li").all_inner_texts()
        assert sorted(had) == sorted(f"Tales {item}" for item in range(40) if 12 % (item + 1) == 0)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        check_accessible(page)
