"""The benchmarks that pages name are there, with their options."""

import re
import shlex
from pathlib import Path

from benchmarks.__main__ import parser


def test_every_benchmark_that_a_page_names_has_these_options():
    folders = ("docs", "benchmarks/results", "examples/*")
    pages = [Path("README.md"), *(page for folder in folders for page in Path().glob(f"{folder}/*.md"))]
    texts = [page.read_text("utf-8").replace("\\\n", " ") for page in pages]
    lines = [line for text in texts for line in re.findall(r"python -m benchmarks([^`\n#]*)", text)]
    named = [shlex.split(line) for line in lines]  # as a shell does: names of sets may have blanks
    assert len(named) > 60
    known = parser()
    for words in [words for words in named if words[:1] != ["NAME"]]:
        known.parse_args(words)
