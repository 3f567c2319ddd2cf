"""The cases: commands that make datasets, and trainings."""

from dataclasses import dataclass, field
from typing import Any

DATASETS = """
sets | ingest {drawn}/shop.csv --min-value 3 --titles {drawn}/items.csv --out all-sets;
  split all-sets --heldout 0.2 --validation 0.1 --out sets
users | ingest {drawn}/shop.csv --value rating --users {drawn}/users.csv --sparse country=country
  --dense person=age,income --weight importance --time time --heldout-last 1 --validation-last 1 --out users
items | ingest {drawn}/shop.csv --min-value 2 --items {drawn}/items.csv --items-separator /
  --items-sparse genre --items-dense price --normalize
  --time time --heldout-last 1 --validation-last 1 --out items
grown | ingest {drawn}/shop.csv --min-value 3 --out before;
  ingest {drawn}/later.csv --min-value 3 --vocabulary before --grow --keep-times --time time --out all-grown;
  split all-grown --heldout-last 1 --validation-last 1 --out grown
sequences | ingest {drawn}/shop.csv --min-value 2 --sequence --time time --heldout-last 1 --validation-last 1
  --out sequences
sessions | ingest {drawn}/sessions.txt --format sessions --sequence --heldout-last 1 --validation-last 1
  --out sessions
sentences | ingest {drawn}/sentences.txt --format sessions --sequence --field words --heldout-last 1
  --validation-last 1 --out sentences
points | extreme {drawn}/points.txt --test {drawn}/test-points.txt --out points --test-out test-points
gowalla | ingest {shared}/gowalla/train.txt@2000 --heldout {shared}/gowalla/test.txt@2000
  --format adjacency --out gowalla
goodbooks | ingest {shared}/goodbooks-10k/to_read.csv@40000 --titles {shared}/goodbooks-10k/books.csv
  --out all-goodbooks; split all-goodbooks --heldout 0.2 --validation 0.1 --out goodbooks
diginetica | ingest {shared}/diginetica/train_sessions.plain.txt@8000 --format sessions --sequence
  --heldout-last 1 --validation-last 1 --out diginetica
movielens | ingest {shared}/dsstne-movielens/movielens_input_1024.txt --format dsstne
  --out all-movielens; split all-movielens --heldout 0.2 --validation 0.1 --out movielens
lastfm | ingest {shared}/more/lastfm/sequences.txt --format adjacency --sequence --heldout-last 1
  --validation-last 1 --out lastfm
written | dsstne import-data {shared}/dsstne-written/datasets/bool.nc --out bool;
  dsstne import-data {shared}/dsstne-written/datasets/char.nc --out char;
  dsstne import-data {shared}/dsstne-written/datasets/t0.nc --out t0;
  dsstne import-data {shared}/dsstne-written/datasets/t4.nc --out t4;
  dsstne import-data {shared}/dsstne-written/datasets/t6.nc --out t6
small files | ingest {shared}/cases/files/pieces_*.csv --out pieces;
  ingest {shared}/cases/files/stray_quotes.tsv --value plays --out quotes;
  ingest {shared}/cases/files/reviews.csv --out reviews;
  ingest {shared}/cases/files/impressions.tsv --columns n,user,at,item,shown --out impressions;
  ingest {shared}/cases/files/blocks_by_item.txt --out blocks;
  ingest {shared}/cases/files/lists.parquet --item item --out lists;
  ingest {shared}/cases/files/few.csv --titles {shared}/cases/files/titles_unneeded_column.json --out few;
  ingest {shared}/cases/files/repeated_pair.csv --time t --heldout-since 2024-02-01 --out repeated
whole gowalla | ingest {shared}/gowalla/train.txt --heldout {shared}/gowalla/test.txt
  --format adjacency --out whole-gowalla
whole to-read | ingest {shared}/goodbooks-10k/to_read.csv --titles {shared}/goodbooks-10k/books.csv
  --out to-read
whole ratings | ingest {shared}/goodbooks-10k/ratings.csv --min-value 4 --min-user-items 5 --min-item-users 5
  --titles {shared}/goodbooks-10k/books.csv --out ratings
whole diginetica | ingest {shared}/diginetica/train_sessions.plain.txt --format sessions --sequence
  --out whole-diginetica
whole citeulike | ingest {shared}/more/citeulike-a/train.txt --heldout {shared}/more/citeulike-a/test.txt
  --format adjacency --out citeulike
whole beauty | ingest {shared}/more/beauty/sequences.txt --format adjacency --sequence --heldout-last 1
  --validation-last 1 --out beauty
"""
"""A name, and commands of `widenet data`, or of `widenet dsstne` with this word.

file@N stands for the first N lines of a file.

A case of the whole form alone begins with "whole".
"""


@dataclass(frozen=True)
class Training:
    """A training and what is asked of it.

    data: the dataset's directory, as the old side made it.
    documents: where two documents lie in the old tree, up to `network.json`; two documents; None: defaults.
    changes: values by `field` of the training or `layer.field` of the network.
    options: more words of `widenet train`; {demo} is the side's own run of the first case.
    evaluate: more words of `widenet evaluate`.
    processes: numbers of processes of this side.
    is_interrupted: whether this side also stops, goes on, is killed, and goes on again.
    then: further commands about the run.
    is_small: whether the small form has it too.
    """

    name: str
    data: str
    documents: Any = None
    changes: dict[str, Any] = field(default_factory=dict)
    options: str = ""
    evaluate: str = ""
    processes: tuple[int, ...] = (1,)
    is_interrupted: bool = False
    then: tuple[str, ...] = ()
    is_small: bool = True


SAMPLE = {"kind": "popularity", "units": 64}
# fmt: off
TRAININGS = [
    Training("demo", "sets", "widenet/demo/", processes=(1, 2, 3), is_interrupted=True,
             evaluate="--beyond --groups --propensity 0.55,1.5",
             then=("quantize {run} --out {run}-8", "fingerprint {run}-8", "knn like {run} i1 -k 9 --json")),
    Training("goodbooks", "sets", "examples/goodbooks/", is_small=False),
    Training("goodbooks, neighbours", "sets", "examples/goodbooks/neighbours-"),
    Training("gowalla", "sets", "examples/gowalla/", is_small=False),
    Training("gowalla, neighbours", "sets", "examples/gowalla/neighbours-", is_interrupted=True),
    Training("movielens", "sets", "examples/movielens-20m/", is_small=False),
    Training("movielens, DSSTNE's", "sets", "examples/movielens-20m/dsstne-", {"epochs": 2}),
    Training("diginetica", "sessions", "examples/diginetica/", {"next.sample": SAMPLE}),
    Training("diginetica, GRU", "sessions", "examples/diginetica/gru-", {"next.sample": SAMPLE}),
    Training("diginetica, full", "sessions", "examples/diginetica/full-", is_interrupted=True),
    Training("next word", "sentences", "examples/next-word/", {"epochs": 4}),
    Training("extreme", "points", "examples/extreme/"),
    Training("extreme, linear", "points", "examples/extreme/linear-", {"epochs": 3}, is_small=False),
    Training("AlexNet", "golden/photos", "examples/alexnet/",
             {"epochs": 1, "batch_size": 8, "full6.units": 48, "full7.units": 48}, is_small=False),
    Training("default, sets", "sets"),
    Training("default, users", "users", is_small=False),
    Training("default, items", "items", is_small=False),
    Training("default, sequences", "sequences", processes=(1, 2)),
    Training("default, sessions", "sessions", is_small=False),
    Training("default, no validation", "all-sets", options="--no-validation", is_small=False),
    Training("default, part set aside", "all-sets"),
    Training("default, from", "grown", options="--from {demo}"),
    Training("whole goodbooks", "goodbooks", "examples/goodbooks/neighbours-", is_interrupted=True),
    Training("whole gowalla", "gowalla", "examples/gowalla/neighbours-", {"epochs": 2}, processes=(1, 3)),
    Training("whole movielens", "movielens", "examples/movielens-20m/dsstne-", {"epochs": 1}),
    Training("whole diginetica", "diginetica", "examples/diginetica/", {"epochs": 2}, is_interrupted=True),
    Training("whole diginetica, GRU", "diginetica", "examples/diginetica/gru-", {"epochs": 1}),
    Training("whole diginetica, full", "diginetica", "examples/diginetica/full-", {"epochs": 1}),
    Training("whole AlexNet", "golden/photos", "examples/alexnet/", {"epochs": 1, "batch_size": 12}),
    Training("whole default, gowalla", "gowalla", processes=(1, 2)),
    Training("whole default, lastfm", "lastfm", is_interrupted=True),
    Training("whole default, movielens", "movielens", processes=(1, 3)),
]
