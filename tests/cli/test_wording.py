"""The library's sentences in a shell's words."""

import pytest

import widenet as library
from widenet.cli.wording import on_command_line
from widenet.errors import OptionError


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("`grow` needs `vocabulary`: why.", "--grow needs --vocabulary: why."),
        ("Ingest with `keep_times=True`.", "Ingest with --keep-times."),
        ("say `users_header=False` if", "say --no-users-header if"),
        ("all are below `min_value=3.5`.", "all are below --min-value 3.5."),
        ("Say `format='csv'` or `delimiter=' '`.", "Say --format csv or --delimiter ' '."),
        ("`time_format='%d.%m.%Y'` has it", "--time-format '%d.%m.%Y' has it"),
        ("Resume it without `start_from`", "Resume it without --from"),
        ("`widenet.ingest(SOURCE, out=DIR)`", "`widenet data ingest SOURCE --out DIR`"),
        ("`users=FILE` `sparse={'age': 'COLUMN'}`", "--users FILE --sparse age=COLUMN"),
        (
            "`widenet.split('a b/c', out=DIR, heldout_last=1, field='tags')`",
            "`widenet data split 'a b/c' --out DIR --heldout-last 1 --field tags`",
        ),
        ("""`widenet.split("it's/d", out=DIR)`""", """`widenet data split 'it'"'"'s/d' --out DIR`"""),
        ('"widenet.train(..., resume=True)"', '"widenet train ... --resume"'),
    ],
)
def test_options_and_calls_become_flags_and_commands(sentence, shown):
    assert on_command_line(sentence) == shown


@pytest.mark.parametrize(
    "sentence",
    [
        "See `help(widenet.ingest)`.",
        "for example with `tail -c +4`.",
        'got "`grow`".',
        "got '`grow=1`'.",
        "`widenet.ingest(a b)`",
        'the column "my `rate`" and "a \\" `b`"',
    ],
)
def test_what_is_no_option_stays(sentence):
    assert on_command_line(sentence) == sentence


def test_one_mistake_is_told_in_the_words_of_each_face(tmp_path, widenet):
    path = tmp_path / "a.csv"
    path.write_text("user,item\nu,a\n", encoding="utf-8")
    rest = "without one every feature is new. Name a run or a dataset."
    with pytest.raises(OptionError, match=f"^`grow` needs `vocabulary`: {rest}$"):
        library.ingest(path, tmp_path / "ds", grow=True)
    said = widenet("data", "ingest", path, "--out", tmp_path / "ds", "--grow").err
    assert said == f"widenet: --grow needs --vocabulary: {rest}\n"


@pytest.mark.usefixtures("inside")
def test_the_share_of_users_has_a_longer_name_on_the_command_line(tmp_path, widenet):
    parts = ("--out", tmp_path / "a", "--users-out", tmp_path / "b")
    said = widenet("data", "split", "whole", *parts, "--heldout-users", 2, "--heldout", 0.5).err
    assert said == "widenet: --heldout-users must be a share above 0 and below 1; got 2.\n"
    same = ("--out", tmp_path / "a", "--users-out", tmp_path / "a")
    said = widenet("data", "split", "whole", *same, "--heldout-users", 0.5, "--heldout", 0.5).err
    assert "--out and --users-out must be two directories" in said
