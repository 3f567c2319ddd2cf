"""The Spark extension as a whole."""

import subprocess
import sys


def test_a_missing_pyspark_is_one_sentence_that_names_the_extra():
    code = "import sys; sys.modules['pyspark'] = None; import widenet.spark"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    said = ended.stderr.strip().splitlines()[-1]
    assert "pyspark must be installed for this;" in said
    assert said.endswith("Install it with `pip install 'widenet[spark]'`.")
