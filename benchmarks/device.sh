#!/usr/bin/env bash
# Test or measure widenet on a machine with a CUDA device and without a package registry:
#
#   benchmarks/device.sh test [FOLDER]     the bits of trainings, and every kernel against its definition
#   benchmarks/device.sh bench [FOLDER]    the time of training steps, and their peak memory
#   benchmarks/device.sh all [FOLDER]      tests, equal bits, the table and a profile: eleven minutes, once
#   benchmarks/device.sh try [FOLDER]      a small measurement on a CPU, to see that `bench` runs
#
# Words after FOLDER go to pytest or to the measurement: `bench FOLDER --parts e recommend`.
# The others take at most ten minutes. The results are in FOLDER, or in $OUT, or in runs/device.
# The interpreter, python3 or $PYTHON, needs torch 2.11, Triton 3.6, pyarrow, safetensors, tensorboard,
# setuptools and pytest with pytest-xdist. Other packages come from benchmarks/wheels, or from $WHEELS.
# This command fills the folder for Python 3.12:
#
#   python3 -m pip download --dest benchmarks/wheels --only-binary=:all: --python-version 3.12 \
#     --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 pydantic
set -euo pipefail

usage() {
    echo "usage: benchmarks/device.sh test|bench|all|try [FOLDER]" >&2
    exit 2
}

work=${1:-}
[[ $work == test || $work == bench || $work == all || $work == try ]] || usage
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${2:-${OUT:-runs/device}}
python=${PYTHON:-python3}
wheels=${WHEELS:-benchmarks/wheels}

site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
if compgen -G "$wheels/*.whl" >/dev/null; then
    "$python" -m pip install --quiet --no-index --no-deps --no-compile --target "$site" "$wheels"/*.whl
fi
"$python" setup.py -q build_ext --inplace # the native library
# Name, version and entry points of widenet, which reads them where it runs.
mkdir "$site/metadata"
"$python" -c "from setuptools.build_meta import prepare_metadata_for_build_wheel as write; write('$site/metadata')" >/dev/null
export PYTHONPATH=$site:$site/metadata:$PWD PYTHONUNBUFFERED=1
"$python" -m benchmarks.device "$work" "$out" "${@:3}"
