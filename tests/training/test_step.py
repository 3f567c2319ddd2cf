"""Training steps: memory that does not grow with the width."""

from tests.scripts import Script

A_TRAINING = """
import sys, torch
from pathlib import Path
from widenet import Network, Training, dataset_from_lists, train

width = int(sys.argv[2])
rows = [[example * 97 % width] for example in range(1024)]
data = dataset_from_lists(Path(sys.argv[1]) / "data", rows, width=width)
layers = [{"name": "in", "kind": "input", "field": "items"}, {"name": "h", "units": 2}]
output = {"name": "next", "kind": "output", "field": "items"}
layers += [output | {"activation": "softmax", "loss": "cross_entropy"}]
training = Training.of({"epochs": 1, "batch_size": 1024, "optimizer": "sgd", "shards": 1})
model = train(Network.of({"layers": layers}), training, data, Path(sys.argv[1]) / "run", device="cpu")
print(int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) // 1000)
"""


def test_a_step_over_ten_times_as_many_units_takes_hardly_more(tmp_path):
    """Each tile has 1 MB of logits: kept, or left unused between what outlives their tile, those of
    300,000 units take 1.2 GB.
    """

    def peak_megabytes(width):
        folder = tmp_path / str(width)
        folder.mkdir()
        script = Script(A_TRAINING, folder / "said", words=[str(folder), str(width)])
        out, err = script.communicate()
        assert script.returncode == 0, err
        return int(out.split()[-1])

    assert peak_megabytes(300_000) - peak_megabytes(30_000) < 200
