"""The Spark extension as a whole."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

JOB = Path(__file__).parent.parent / "examples" / "spark" / "books.py"


@pytest.mark.skipif(
    importlib.util.find_spec("pyspark") is None or shutil.which("java") is None,
    reason="needs Java and pyspark, which `make test-spark` installs",
)
def test_the_example_job_runs_and_gives_what_the_commands_give(tmp_path):
    import widenet
    from widenet.predict.files import table_of

    rows = [(f"reader {n % 90}", (n * n + n // 90) % 50) for n in range(900)]
    users, items = zip(*rows, strict=True)
    pq.write_table(pa.table({"user": users, "item": items}), tmp_path / "rows.parquet")
    spark_submit = Path(sys.executable).with_name("spark-submit")
    words = [
        spark_submit,
        "--master",
        "local-cluster[2,1,2048]",
        JOB,
        tmp_path / "rows.parquet",
        tmp_path,
        "2",
    ]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]

    example: dict = {}
    exec(compile(JOB.read_text("utf-8").partition("def main")[0], JOB, "exec"), example)
    data = widenet.ingest(tmp_path / "rows.parquet", tmp_path / "again")
    model = widenet.train(example["NETWORK"], example["TRAINING"], data, tmp_path / "alone", device="cpu")
    assert f"Fingerprint {model.fingerprint()}" in ended.stdout
    blocks = [*map(table_of, model.predict(data, 10))]
    order = [("user", "ascending"), ("rank", "ascending")]
    written = pq.read_table(tmp_path / "recommendations").sort_by(order)
    assert written.to_pylist() == pa.concat_tables(blocks).sort_by(order).to_pylist()
