# Two commands do all on a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

demo: .venv/core ## index the bundled clips and search them: no data, no network, no GPU needed
	$(BIN)/centerclip demo

test: .venv/ready browser font ## run all tests
	$(BIN)/python -m pytest

test-install: .venv/ready ## install the core alone from the package index, try it, and print its size
	CENTERCLIP_INSTALL=index $(BIN)/python -m pytest -s --timeout 900 tests/test_install.py

test-mteb: .venv/mteb ## run the test of mteb's wrapper, after installing mteb (550 MB)
	$(BIN)/python -m pytest tests/integrations/test_mteb.py tests/data/test_get.py

.venv/mteb: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[mteb]'
	@touch $@

test-cluster: .venv/cluster ## run what needs Ray, a Milvus server, nginx and an S3 server, after installing them (1.5 GB)
	CENTERCLIP_CLUSTER=1 CENTERCLIP_MILVUS_PYTHON=.venv-milvus/bin/python CENTERCLIP_TEST_SECONDS=1000 \
		$(BIN)/python -m pytest --timeout 900 tests/machines tests/search/test_milvus.py

# The server is from PyPI, with an environment of its own: it needs old packages. nginx is the system's.
.venv/cluster: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[ray,milvus,s3]' milvus-lite 'moto[server]'
	$(PYTHON) -m venv .venv-milvus
	.venv-milvus/bin/python -m pip install --quiet --disable-pip-version-check 'milvus==2.3.5' 'setuptools<81'
	@command -v nginx >/dev/null || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null \
		|| { apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq nginx-light >/dev/null; }
	@touch $@

RUNS ?= 3
test-load: .venv/ready browser font ## run all tests RUNS times beside a busy loop for each core: nothing may depend on a quiet machine
	@for core in $$(seq $$(nproc)); do nice -n 0 sh -c "while :; do :; done" & loops="$$loops $$!"; done; trap "kill $$loops" EXIT; \
	for run in $$(seq $(RUNS)); do echo "run $$run"; $(BIN)/python -m pytest -q || failed=1; done; exit $${failed:-0}

# The tests of the web page need Chromium. Where the system has none and it may be installed, it is; else they fail and say so.
browser:
	@for name in $$CENTERCLIP_BROWSER chromium chromium-browser google-chrome google-chrome-stable chrome; do \
		command -v $$name >/dev/null && exit 0; \
	done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing Chromium for the tests of the web page"; \
		apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; \
	else \
		echo "no Chromium found: the tests of the web page will fail; install it (apt-get install chromium)"; \
	fi

# The tests of MiniVTT's drawn things need an emoji font; likewise.
font: .venv/ready
	@$(BIN)/python -c 'import sys; from centerclip.data.minivtt.render import find_font; sys.exit(find_font() is None)' \
	|| if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing an emoji font for the tests of MiniVTT"; \
		apt-get update -qq >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq fonts-noto-color-emoji >/dev/null; \
	else \
		echo "no emoji font found: its tests are left out; install one (apt-get install fonts-noto-color-emoji)"; \
	fi

lint: .venv/ready ## format check, lint, directions of imports, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

format: .venv/ready ## rewrite the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

reference: .venv/ready ## write docs/commands.md anew from the commands themselves
	$(BIN)/python -m typer centerclip.cli utils docs --name centerclip --title Commands --output docs/commands.md

pictures: .venv/ready browser ## make the page's pictures in docs/ anew: a real search over the bundled clips, recorded
	PYTHONPATH=. $(BIN)/python scripts/pictures.py

docs: .venv/docs ## build the documentation site into site/; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

dist: .venv/docs ## build the sdist and the wheel into dist/, and check them
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*

.venv/docs: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

bench: .venv/ready ## measure the speed claims (about ten minutes)
	$(BIN)/python benchmarks/clustering.py
	$(BIN)/python benchmarks/decode.py --quick
	$(BIN)/python benchmarks/metrics.py
	$(BIN)/centerclip bench encoder --quick
	$(BIN)/centerclip bench memory --quick

MINUTES ?= 10
soak: .venv/ready ## inject faults for MINUTES each: kills, damaged media, hostile requests, 256 clients; prints counts
	PYTHONPATH=. $(BIN)/python benchmarks/faults/soak.py --minutes $(MINUTES)

licences: .venv/ready ## list the licences of all dependencies, and check them
	$(BIN)/python scripts/supply_chain.py licences

sbom: .venv/ready ## write sbom.json, what is installed with which version and licence (CycloneDX)
	$(BIN)/python scripts/supply_chain.py sbom > sbom.json

audit: ## look for known vulnerabilities in the pinned versions; fails where the package index does not know them
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	.venv-audit/bin/pip-audit --strict --disable-pip --no-deps -r constraints.txt

clean: ## remove the virtual environment
	rm -rf .venv .venv-milvus

# The core alone: what searching, indexing and serving need.
.venv/core: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; try make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

# On Linux the usual index has torch with gigabytes of CUDA. PyTorch's own has one without: for machines without such a GPU.
TORCH_CPU := https://download.pytorch.org/whl/cpu
.venv/ready: .venv/core
	@[ "$$(uname -s)" != Linux ] || command -v nvidia-smi >/dev/null || $(BIN)/python -m pip install --quiet --quiet --quiet \
		--disable-pip-version-check --retries 0 --timeout 5 --no-deps -c constraints.txt --index-url $(TORCH_CPU) torch 2>/dev/null \
		|| echo "$(TORCH_CPU) cannot be reached: torch comes from the usual index"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[research,dev]'
	@touch $@

minivtt: .venv/ready ## train the bundled model again (about an hour on a CPU)
	$(BIN)/centerclip data make minivtt-images data/images --clips 40000
	$(BIN)/centerclip data make minivtt data/minivtt --clips 4600
	$(BIN)/centerclip train minivtt/images --root data/images
	$(BIN)/centerclip train minivtt/demo --root data/minivtt
	$(BIN)/python recipes/minivtt/bundle.py runs/minivtt-demo/best

SMALL := --data minivtt --root data/minivtt-2000 --model runs/minivtt-images/best -o docs/results
TABLES := msvd activitynet msrvtt-7k msrvtt-9k lsmdc selection twice frames norm learning place clusters
reports: .venv/ready ## every table and figure of the paper and beyond on MiniVTT, into docs/results (after minivtt; hours)
	$(BIN)/centerclip data make minivtt data/minivtt-2000
	$(BIN)/centerclip data make minivtt-order data/minivtt-order
	$(BIN)/centerclip report run methods $(SMALL) --seeds 2
	$(BIN)/centerclip report run frontier $(SMALL) --seeds 3
	$(BIN)/centerclip report run frontier $(SMALL) --seeds 3 --test-on data/minivtt-order
	$(BIN)/centerclip report run $(TABLES) $(SMALL)
	$(BIN)/centerclip report run tsne centres -o docs/results
	$(BIN)/centerclip train minivtt/comparison --root data/minivtt-2000
	$(BIN)/centerclip report training-free runs/minivtt-comparison/best --root data/minivtt-2000 -o docs/results

.PHONY: help demo pictures docs dist test test-install test-mteb test-cluster test-load browser font minivtt reports reference lint format bench soak licences sbom audit clean
.DEFAULT_GOAL := help
