"""Profiles steps of the two networks of the table that lie farthest behind: where a device's time goes.

`python -m benchmarks.gpu_profile FOLDER [--trial]` writes one table for each to FOLDER.
"""

import sys
from pathlib import Path

from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu_cases import CASES, TRIALS
from benchmarks.places import workplace
from benchmarks.steps.widenet_steps import train
from benchmarks.synthetic import write_histories

_STEPS = 5


def main() -> None:
    """Profile some steps of each case after as many others."""
    out, is_trial = Path(sys.argv[1]), "--trial" in sys.argv
    out.mkdir(parents=True, exist_ok=True)
    for name, case in TRIALS.items() if is_trial else ((name, CASES[name]) for name in ("d", "a")):
        with workplace() as folder:
            write_histories(folder, case.width, 4 * case.batch)
            steps = train(
                str(folder),
                case.hidden,
                case.softmax,
                case.batch,
                case.optimizer,
                threads=1,
                precision="bfloat16",
                device=case.device,
            )
            steps(_STEPS)
            kinds = [ProfilerActivity.CPU, *([] if is_trial else [ProfilerActivity.CUDA])]
            with profile(activities=kinds) as found:
                steps(_STEPS)
        key = "self_cpu_time_total" if is_trial else "self_cuda_time_total"
        table = f"{case.title}, {_STEPS} steps\n{found.key_averages().table(sort_by=key, row_limit=30)}\n"
        (out / f"profile-{name}.txt").write_text(table)
        print(table)


if __name__ == "__main__":
    main()
