# Every target sets up .venv by itself; Python 3.11 or newer and make are all it needs.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help demo test test-fast test-browser test-scale torture adapters lint docs dist bench miniature reproduce figures clean
.DELETE_ON_ERROR:

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[engine,colpali,dense,langchain,rerankers,ocr,gguf,vidore,serve,serve-test,otel,object-store-tests,miniature,plot,notebook,dev]'
	@touch $@

help:  ## these lines
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

demo: $(READY)  ## the main job: draw, index, calibrate, search, compare with the full model
	$(BIN)/python -m benchmarks.demo

test: $(READY)  ## every test, on all cores, coverage measured
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile --cov --cov-report=term:skip-covered

test-fast: $(READY)  ## the tests of the daily loop, under two minutes on two cores
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile -m 'not slow'

test-browser: $(READY)  ## the page in a real browser; installs chromium where it may
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null \
	  || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver; } \
	  || { echo 'no chromium, and apt-get could not install it: install chromium and chromium-driver, then run this again' >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[serve,browser]'
	$(BIN)/python -m pytest tests/browser

test-scale: $(READY)  ## index, calibrate and serve on a Ray cluster on this machine
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[ray,object-store-tests]'
	$(BIN)/python -m pytest tests/scaleout

torture: $(READY)  ## ten minutes of kills, full disks, flipped bits and hostile callers; longer with SECONDS=1800
	$(BIN)/python -m benchmarks.torture --seconds $(or $(SECONDS),600) --out results/torture.json

adapters: $(READY)  ## the adapters' tests with the packages that take long to install
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[haystack,llamaindex,mteb,adapters-test]'
	$(BIN)/python -m pytest tests/adapters

lint: $(READY)  ## style, types, import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(READY)  ## the documentation as a site, in site/; a broken link fails
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

dist: $(READY)  ## wheel and sdist in dist/, checked
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[release]'
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*

bench: $(READY)  ## speed against what one would use instead; ratios go to results/; needs 25 GB of disk
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench,ray]'
	$(BIN)/python -m benchmarks.fusion_speed --out results/fusion_speed.json
	$(BIN)/python -m benchmarks.ridge_speed --out results/ridge_speed.json
	$(BIN)/python -m benchmarks.shallow_speed --out results/shallow_speed.json
	$(BIN)/python -m benchmarks.store_read --out results/store_read.json
	$(BIN)/python -m benchmarks.index_memory --out results/index_memory.json
	$(BIN)/python -m benchmarks.rank_overhead --out results/rank_overhead.json
	$(BIN)/python -m benchmarks.one_pass --out results/one_pass.json
	$(BIN)/python -m benchmarks.serving_load --out results/serving_load.json
	$(BIN)/python -m benchmarks.object_store --out results/object_store.json
	$(BIN)/python -m benchmarks.growth --out results/growth.json
	$(BIN)/python -m benchmarks.ray_overhead --out results/ray_overhead.json

miniature: $(READY)  ## the miniature's models on its first four corpora, about ten minutes; weights on six, about twenty
	$(BIN)/python -m benchmarks.miniature --out results/miniature/models.json

reproduce: $(READY)  ## the paper's tables and figures on the miniature; at most 40 minutes on two quiet cores
	$(BIN)/ridgerank reproduce --benchmark miniature --work build/reproduce --out results/miniature/reproduce
	$(BIN)/python -m benchmarks.docs_tables

figures: $(READY)  ## the pictures in docs/, and the results they show
	$(BIN)/python -m benchmarks.overview_figure
	$(BIN)/python -m benchmarks.label_free_convergence
	$(BIN)/python -m benchmarks.weight_safety
	$(BIN)/python -m benchmarks.learning_curves
	$(BIN)/python -m benchmarks.scale_arithmetic
	$(BIN)/python -m benchmarks.real_documents_figure

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage
