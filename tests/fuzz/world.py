"""A folder of small whole files of every kind that commands read, made by the commands and by other
libraries.
"""

import gzip
import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import scipy.sparse

from tests.fuzz.forks import Forks
from tests.movielens import SAMPLE

USERS, ITEMS = 12, 9
LIKES = [
    (user, item)
    for user in range(USERS)
    for item in range(ITEMS)
    if (user + item) % 2 == 0 or item == user % ITEMS
]
NETWORK = {
    "layers": [
        {"name": "history", "kind": "input", "field": "items"},
        {"name": "taste", "units": 4, "activation": "tanh"},
        {"name": "next", "kind": "output", "field": "items"},
    ]
}
TRAINING = {"epochs": 1, "batch_size": 4, "shards": 2, "evaluation": {"metric": "recall@3"}, "keep": "best"}
COMMANDS = [
    "data ingest likes.csv --out whole --titles titles.csv",
    "data split whole --out data --heldout 0.25 --validation 0.25",
    "data ingest sessions.txt --format sessions --sequence --out clicks",
    "train network.json training.json --data data --out run --quiet --device cpu",
    "dsstne export-model run run.nc",
    "dsstne generateNetCDF -d gl_input -i likes.dsstne -o gl_input.nc -f features.txt -s samples.txt -c",
    "dsstne generateNetCDF -d gl_output -i likes.dsstne -o gl_output.nc -f outputs.txt -s samples.txt -c",
]


def make(folder: Path, forks: Forks) -> None:
    """Fill a folder; every command must succeed."""
    _write_sources(folder)
    _write_others(folder)
    for line in COMMANDS:
        ended = forks.run(line.split(), folder)
        assert ended.status == 0, (line, ended)


def _write_sources(folder: Path) -> None:
    """The same interactions in every format that ingest reads."""
    header, rows = (
        "user,item,rating,time\n",
        [f"u{user},{item},{item % 5 + 1},{1_600_000_000 + item * 977}" for user, item in LIKES],
    )
    text = header + "\n".join(rows) + "\n"
    histories = {user: [item for who, item in LIKES if who == user] for user in range(USERS)}
    (folder / "likes.csv").write_text(text)
    (folder / "likes.tsv").write_text(text.replace(",", "\t"))
    (folder / "tildes.txt").write_text(text.replace(",", "~"))
    (folder / "likes.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    (folder / "likes.csv.zst").write_bytes(pa.compress(text.encode(), "zstd", asbytes=True))
    objects = [
        {"user": f"u{user}", "item": item, "rating": item % 5 + 1, "time": item} for user, item in LIKES
    ]
    (folder / "likes.jsonl").write_text("".join(json.dumps(each) + "\n" for each in objects))
    (folder / "likes.json").write_text(json.dumps(objects))
    (folder / "sessions.txt").write_text(
        "".join(" ".join(f"i{item}" for item in items * 2) + "\n" for items in histories.values())
    )
    (folder / "lists.txt").write_text(
        "".join(f"{user} {' '.join(map(str, items))}\n" for user, items in histories.items())
    )
    (folder / "likes.dsstne").write_text(
        "".join(f"u{user}\t{':'.join(f'i{item},1' for item in items)}\n" for user, items in histories.items())
    )
    table = pa.csv.read_csv(folder / "likes.csv")
    pa.parquet.write_table(table, folder / "likes.parquet")
    users, items = np.array(LIKES).T
    scipy.sparse.save_npz(
        folder / "likes.npz", scipy.sparse.csr_matrix((np.ones(len(LIKES)), (users, items)))
    )
    (folder / "titles.csv").write_text(
        "item,title\n" + "".join(f"{item},The {item}th Hobbit\n" for item in range(ITEMS))
    )
    (folder / "users.csv").write_text(
        "user,country,age,weight\n"
        + "".join(f"u{user},{'NL' if user % 2 else 'DE'},{user},1.5\n" for user in range(USERS))
    )


def _write_others(folder: Path) -> None:
    """Documents, filters, vectors, and what is no ordinary file."""
    (folder / "network.json").write_text(json.dumps(NETWORK))
    (folder / "training.json").write_text(json.dumps(TRAINING))
    (folder / "config.json").write_text(json.dumps(SAMPLE))
    (folder / "never.txt").write_text("1\n3\n")
    (folder / "never-for.csv").write_text("user,item\nu1,1\nu2,4\n")
    (folder / "weights.csv").write_text("item,weight\n1,0\n2,0.5\n")
    (folder / "vectors.txt").write_text("".join(f"k{row}\t{row} {row % 3} 0.5\n" for row in range(9)))
    np.save(folder / "vectors.npy", np.arange(27, dtype=np.float32).reshape(9, 3))
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to("loop")
    with (folder / "sparse").open("wb") as file:
        file.truncate(1 << 40)
