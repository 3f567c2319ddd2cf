"""The service keeps to its OpenAPI document, for requests that Schemathesis makes from it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCHEMATHESIS = shutil.which("schemathesis", path=Path(sys.executable).parent)

WORDS = (
    "--max-examples 30 --seed 1 --phases coverage,fuzzing --generation-database none"
    " --exclude-checks positive_data_acceptance"
)


@pytest.mark.skipif(SCHEMATHESIS is None, reason="needs Schemathesis: make test-page")
def test_made_requests_get_what_the_document_says_and_no_server_error(served, tmp_path):
    """One rule is left out: a request with an unknown item is as the document says, and yet refused."""
    address = f"http://127.0.0.1:{served.port}/openapi.json"
    checked = subprocess.run(
        [SCHEMATHESIS, "run", address, *WORDS.split()],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert checked.returncode == 0, checked.stdout
    assert "passed" in checked.stdout
    assert served.recommend(items=["i1"]).status == 200
