"""A published split that is not here against trainings of its files."""

from benchmarks import usual
from benchmarks.__main__ import parser
from tests.benchmarks.toys import HISTORIES, cells_of
from widenet import ingest, split, train


def test_a_published_split_is_measured_by_its_own_test_part(tmp_path, capsys):
    source = tmp_path / "toys"
    source.mkdir()
    for file, lists in {"train.txt": HISTORIES, "test.txt": [[38, 39]] * 9}.items():
        lines = (f"{user} {' '.join(map(str, items))}\n" for user, items in enumerate(lists))
        (source / file).write_text("".join(lines))
    usual.run(parser().parse_args(["usual", "--splits", str(source), "--no-tuned"]))
    printed = cells_of(capsys.readouterr().out)
    assert [row[:2] for row in printed] == [
        ["toys", documents]
        for documents in ("default", "default, its term not fitted", "default, all interactions")
    ]
    whole = ingest([source / "train.txt"], tmp_path / "data", heldout=source / "test.txt")
    dataset = split(whole, tmp_path / "parted", validation=0.1)
    model = train(None, None, dataset, tmp_path / "run")
    validated, tested = (model.evaluate(dataset, part, ks=(20,)) for part in ("validation", "heldout"))
    expected = [validated["ndcg@20"], tested["recall@20"], tested["ndcg@20"]]
    assert printed[0][2:5] == [f"{metric:.4f}" for metric in expected]
