# Every target prepares .venv first, once. Needs python3 (3.11 to 3.13) and make; PYTHON=python3.12 chooses another.
PYTHON ?= python3
BIN := .venv/bin
# Without a C++ compiler, widenet is installed without its native library.
ifeq ($(shell command -v $${CXX:-c++}),)
$(info There is no C++ compiler: widenet is installed without its native library, and torch makes all passes.)
export WIDENET_NO_NATIVE := 1
endif
SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Processes of the tests load compiled modules, and workers of pytest the tests, instead of compiling all of them anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-avx2 test-gpu test-faults test-mlflow test-long test-slow test-page test-spark test-stores same same-whole lint docs sizes site bench bench-gpu test-pythons test-sanitizers wheels fuzz labs

setup: .venv/.stamp

# Install, train and evaluate on a small dataset; DATA=DIRECTORY takes another one.
demo: .venv/.stamp
	$(BIN)/widenet demo $(if $(DATA),--data '$(DATA)')
	@echo 'The command is in .venv: first run source .venv/bin/activate'

# Tests of Spark and of object stores, most of which start servers; `make test-spark` and `make test-stores` run them.
SPARK := tests/spark tests/test_spark.py
STORES := tests/stores tests/runs/test_machines.py

# All tests but those of SPARK and STORES, also where the libraries that they need are installed.
test: .venv/.stamp
	$(BIN)/python -m pytest -n 2 --dist worksteal $(addprefix --ignore=,$(SPARK) $(STORES))

# What depends on the processor once more, as on one that has AVX2 and no more.
test-avx2: .venv/.stamp
	WIDENET_CPU=v3 ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 \
	  $(BIN)/python -m pytest -n 2 --dist worksteal -m 'not faults and not long' tests/kernels \
	  --ignore tests/kernels/triton --ignore tests/kernels/test_triton.py tests/model/test_convolution.py \
	  tests/model/test_operands.py tests/model/test_product.py tests/predict/test_blocks.py tests/training/test_arithmetic.py \
	  tests/test_simulated_gpu.py

# What needs a CUDA device; without one it is skipped, and the kernels run in Triton's interpreter.
test-gpu: .venv/.stamp
	$(BIN)/python -m pytest -m "not faults" tests/test_gpu.py tests/kernels

# The tests that take longest: so `make test` takes less than ten minutes on 2 cores.
test-slow: .venv/.stamp
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'slow and not long'

# More cases, sizes and numbers of processes of what `make test` checks with a few. Takes minutes; a person runs it before a release.
test-long: .venv/.stamp
	$(BIN)/python -m pytest -n 2 --dist worksteal -m long

# Hosts and disks that are lost, and cables that are cut, under torchrun. Needs root, for mounts and network namespaces.
test-faults: .venv/.stamp
	$(BIN)/python -m pytest -m faults

# A real Spark of two executors. Needs Java 17 or newer; installs pyspark.
test-spark: .venv/.stamp-spark
	$(BIN)/python -m pytest $(SPARK)

# All tests that need a real Chromium, which is not installed (Debian has `chromium`), and requests that Schemathesis makes.
# Installs Playwright's driver, axe-core and Schemathesis.
test-page: .venv/.stamp-page
	$(BIN)/python -m pytest tests/serve/test_app.py $$(grep -rl needs_chromium --include='test_*.py' tests)

# Real MLflow stores on this machine. Installs mlflow-skinny.
test-mlflow: .venv/.stamp-mlflow
	$(BIN)/python -m pytest tests/tracking

# Servers of S3, Azure and Google Cloud Storage on this machine. Installs moto and Azurite; Azurite needs npm.
test-stores: .venv/.stamp-stores
	$(BIN)/python -m pytest -n 2 --dist worksteal $(STORES)

# A wheel in build/wheels for all Linux systems with glibc 2.28, which installs where no compiler is. Takes minutes.
wheels: .venv/.stamp
	.ci/wheels

# The tests of the native library with the sanitizers of addresses, undefined behaviour and threads.
test-sanitizers: .venv/.stamp
	.ci/sanitizers

# The wheel's demo in a new environment of each Python. All but 3.11 may download torch with CUDA, which is several gigabytes.
test-pythons: .venv/.stamp
	.ci/pythons $(or $(PYTHONS),3.11 3.12 3.13)

# Whether training, recommending, measuring and ingesting still give the bits of an old commit. Needs the whole history.
same: .venv/.stamp
	$(BIN)/python -m tests.same

# The same with all numbers of processes, interruptions and wider data. Takes about an hour.
same-whole: .venv/.stamp
	$(BIN)/python -m tests.same --whole

# Every command over 20,000 changed files and command lines; `make test` runs the first 100, `make test-long` the next 1,900.
fuzz: .venv/.stamp
	$(BIN)/python -m benchmarks fuzz

# Experiments about the ideas of the field, all in their small form: docs/landscape.md. `python -m labs.NAME` runs one in full.
labs: .venv/.stamp
	$(BIN)/python -m labs --small

lint: .venv/.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(SITE)

# Write the generated pages of docs/ anew.
docs: .venv/.stamp
	$(BIN)/python docs/generate.py

# Statements of every room beside its budget, words of documentation, lines of tests.
sizes:
	@$(PYTHON) docs/sizes.py

# The pages as a site: open build/site/index.html by a web server, such as `python -m http.server -d build/site`.
site: .venv/.stamp
	$(SITE)

bench: .venv/.stamp-benchmark
	$(BIN)/python -m benchmarks

bench-gpu: .venv/.stamp
	$(BIN)/python -m benchmarks gpu

# The stamp says that the environment holds what these files ask for. An environment made by hand is kept if its python
# runs, and completed.
.venv/.stamp: pyproject.toml constraints.txt setup.py native $(wildcard native/*)
	$(BIN)/python -c '' 2>/dev/null || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[develop]'
	touch $@

.venv/.stamp-benchmark: .venv/.stamp
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[benchmark]'
	touch $@

.venv/.stamp-spark: .venv/.stamp
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[spark]'
	touch $@

.venv/.stamp-mlflow: .venv/.stamp
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[mlflow]'
	touch $@

.venv/.stamp-page: .venv/.stamp
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[page-test]'
	touch $@

.venv/.stamp-stores: .venv/.stamp
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[stores-test]'
	npm install --silent --no-audit --no-fund --prefix .venv/azurite azurite@3.37.0 \
	  || echo 'Azurite cannot be installed here: the tests of abfs:// are skipped.'
	touch $@
