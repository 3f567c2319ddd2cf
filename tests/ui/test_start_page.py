"""The page that starts a training, and the page of a run that is trained, in a real Chromium."""

import json
import os
import re
import shutil
import signal
from contextlib import suppress

import pytest

from tests.browser import WIDTHS, check_accessible, expect, needs_chromium, visit
from tests.trainings import UNTIED, books
from tests.ui.conftest import pages
from widenet.spec.layers import InputLayer
from widenet.spec.optimizers import Sgd
from widenet.spec.recurrent import RecurrentLayer

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def starting(trained, tmp_path_factory):
    """Pages that may train, also on "songs"; trainings that a test leaves behind are killed."""
    folder = tmp_path_factory.mktemp("starting")
    shutil.copytree(trained / "runs", folder / "runs")
    books(folder / "data" / "songs", field="songs")
    with pages(folder / "runs", "--allow-training", "--datasets", folder / "data") as running:
        yield f"http://127.0.0.1:{running.port}/"
    for note in (folder / "runs").glob(".*.start/process.json"):
        with suppress(ProcessLookupError):
            os.kill(json.loads(note.read_text())["pid"], signal.SIGKILL)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_that_starts_a_training_fits_and_axe_finds_nothing_serious(
    width, scheme, chromium, starting
):
    with visit(chromium, starting, width, color_scheme=scheme) as page:
        page.get_by_role("link", name="Start a training").click()
        page.get_by_role("img", name="memory of each process").wait_for()
        page.get_by_label("network.json", exact=True).fill('{"layers": [{"nam": 1}]}')
        mistake = page.locator("#mistake-network")
        expect(mistake).to_contain_text('layers[0].nam is not a known field. Did you mean "name"?')
        assert page.get_by_role("button", name="Start the training").is_disabled()
        choices(page, '{"layers": [{|}]}').first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        check_accessible(page)


def choices(page, text, editor="network"):
    """What may stand at the mark in a text."""
    page.locator(f"#{editor}").evaluate(
        "(editor, text) => { editor.value = text.replace('|', ''); const at = text.indexOf('|');"
        " editor.focus(); editor.setSelectionRange(at, at); editor.dispatchEvent(new Event('click')); }",
        text,
    )
    return page.locator(f"#fields-{editor} button")


def test_fields_and_values_are_completed_from_the_schema(chromium, starting):
    with visit(chromium, starting + "start") as page:
        page.locator("#network").click()
        page.locator("#fields-network button").first.wait_for()
        own = '{"layers": [{"kind": "input", "name": "a", |}]}'
        names = [name for name in InputLayer.model_fields if name not in ("kind", "name")]
        assert choices(page, own).all_inner_texts() == names
        assert choices(page, own.replace("|", '"po|"')).all_inner_texts() == ["popularity_damping"]
        assert choices(page, own.replace("|", '"scale": |')).all_inner_texts() == [
            "none", "mean", "rsqrt", "unit"
        ]  # fmt: skip
        assert choices(page, own.replace("|", '"field": "|"')).all_inner_texts() == ["items"]
        assert choices(page, '{"layers": [{|, "kind": "recurrent"}]}').all_inner_texts() == [
            name for name in RecurrentLayer.model_fields if name != "kind"
        ]
        assert choices(page, '{"layers": [{"name": "x{\\"|"}]}').all_inner_texts() == []
        page.locator("#training").click()
        choices(page, '{"optimizer": {"kind": "sgd", |}}', "training").first.wait_for()
        assert choices(page, '{"optimizer": {"kind": "sgd", |}}', "training").all_inner_texts() == [
            name for name in Sgd.model_fields if name != "kind"
        ]
        choices(page, '{"epochs": 3, "kee|": "best"}', "training")
        page.keyboard.press("Control+Space")
        page.keyboard.press("Enter")
        assert page.locator("#training").input_value() == '{"epochs": 3, "keep": "best"}'
        assert page.evaluate("document.activeElement.id") == "training"


def press(page, name):
    """Press a button by the keyboard, once it is there."""
    page.get_by_role("button", name=name).focus(timeout=60_000)
    page.keyboard.press("Enter")


def wait_for_state_after(page, before):
    """Wait until the page says that a training is in a later epoch."""
    page.wait_for_function(
        "before => Number(document.querySelector('[data-live=state]').innerText"
        ".match(/^training: epoch ([\\d,]+) of/)?.[1].replaceAll(',', '')) > before",
        arg=before,
        timeout=60_000,
    )


def wait_for_epoch_after(page, before):
    """Wait until a training goes on, and read the last epoch from the curve of its loss."""
    wait_for_state_after(page, before)
    figure = page.locator("figure.plot").first
    figure.scroll_into_view_if_needed()
    figure.get_by_role("img", name="loss").focus()
    page.keyboard.press("End")
    said = re.match(r"epoch ([\d,]+), loss \d", figure.locator("output").inner_text())
    last = int(said[1].replace(",", ""))
    assert last > before
    return last


def test_a_training_is_written_measured_started_watched_stopped_and_resumed(chromium, starting):
    with visit(chromium, starting + "start", 390, expected=["status of 409"]) as page:
        songs = page.get_by_label("Dataset").locator("option", has_text="songs").get_attribute("value")
        page.get_by_label("Dataset").select_option(songs)
        network = page.get_by_label("network.json", exact=True)
        expect(network).to_have_value(re.compile('"field": "songs"'))
        expect(choices(page, '{"layers": [{"field": "|"}]}')).to_have_text(["songs"])
        network.fill(json.dumps(UNTIED).replace('"items"', '"songs"'))
        page.get_by_label("training.json", exact=True).fill('{"epoch": 90000}')
        expect(page.locator("#mistake-training")).to_have_text(
            'training.json: epoch is not a known field. Did you mean "epochs"?'
        )
        assert page.get_by_role("button", name="Start the training").is_disabled()
        choices(page, '{"epo|": 90000}', "training").first.wait_for()
        page.keyboard.press("Control+Space")
        page.keyboard.press("Enter")
        expect(page.locator("#plan")).to_contain_text("the training 90,000 epochs")
        expect(page.locator("#mistake-training")).to_be_hidden()
        expect(page.get_by_role("img", name="memory of each process")).to_be_visible()
        press(page, "Measure the time")
        expect(page.get_by_label("Measured")).to_contain_text("Training", timeout=60_000)
        page.get_by_label("Name of the run").fill("untied")
        press(page, "Start the training")
        expect(page.get_by_role("alert")).to_contain_text("holds untied already")
        page.get_by_label("Name of the run").fill("mine")
        page.keyboard.press("Enter")
        expect(page.get_by_role("status").first).to_have_text("The training begins.")
        page.get_by_role("button", name="Stop with a checkpoint").wait_for(timeout=60_000)
        last = wait_for_epoch_after(page, wait_for_epoch_after(page, 0))
        wait_for_state_after(page, last + 1)
        read = page.locator("figure.plot").first.locator("output")
        assert read.inner_text().startswith(f"epoch {last:,}, loss ")
        page.keyboard.press("Tab")
        expect(read).to_be_empty()
        press(page, "Stop with a checkpoint")
        page.get_by_role("button", name="Resume").wait_for(timeout=60_000)
        expect(page.get_by_role("status").first).to_contain_text("interrupted: epoch")
        expect(page.get_by_label("Output of the training")).to_contain_text("Stopped; ")
        check_accessible(page)
        press(page, "Resume")
        assert wait_for_epoch_after(page, last) > last
        expect(page.get_by_label("Output of the training")).to_contain_text("Resuming ")
