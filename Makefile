# Every target sets up .venv by itself; Python 3.11 or newer and make are all it needs.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: help demo test test-fast coverage test-browser test-scale stress adapters lint docs dist bench reproduce validate-gpu clean
.DELETE_ON_ERROR:

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[engine,colpali,dense,langchain,rerankers,ocr,gguf,vidore,serve,serve-test,otel,object-store-tests,miniature,plot,notebook,dev]'
	@touch $@

help:  ## these lines
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

demo: $(READY)  ## the main job: draw, index, calibrate, search, compare with the full model
	$(BIN)/python -m benchmarks.demo

PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

test: $(READY)  ## every test, on all cores
	$(PYTEST)

test-fast: $(READY)  ## the tests of the daily loop, about a minute on two quiet cores
	$(PYTEST) -m 'not slow'

coverage: $(READY)  ## every test with the lines and branches it runs; takes a third longer
	$(PYTEST) --cov --cov-report=term:skip-covered

test-browser: $(READY)  ## the page in a real browser; installs chromium where it may
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null \
	  || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver; } \
	  || { echo 'no chromium, and apt-get could not install it: install chromium and chromium-driver, then run this again' >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[serve,browser]'
	$(BIN)/python -m pytest tests/browser

test-scale: $(READY)  ## index, calibrate and serve on a Ray cluster on this machine
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[ray,object-store-tests]'
	$(BIN)/python -m pytest tests/scaleout

stress: $(READY)  ## ten minutes of traffic to stores that change; longer with SECONDS=1800
	$(BIN)/python -m benchmarks.stress --seconds $(or $(SECONDS),600) --out results/stress.json

adapters: $(READY)  ## the adapters' tests with the packages that take long to install
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[haystack,llamaindex,adapters-test]' 'mteb>=2.20'
	$(BIN)/python -m pytest tests/integrations

lint: $(READY)  ## style, types, import contract, size
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m benchmarks.budget

docs: $(READY)  ## the documentation as a site, in site/; a broken link fails
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

dist: $(READY)  ## wheel and sdist in dist/, checked
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[release]'
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*

bench: $(READY)  ## load of a server; results/serving.json (processor time: python -m benchmarks.speed --help)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python -m benchmarks.serving --out results/serving.json

reproduce: $(READY)  ## the paper's tables and figures on the miniature; at most 40 minutes on two quiet cores
	$(BIN)/python -m experiments.reproduce --benchmark miniature --work build/reproduce --out results/miniature/reproduce
	$(BIN)/python -m benchmarks.tables

# BENCHMARK=miniature for a run of minutes without a GPU; CORPUS, BACKBONE and RETRIEVER replace what is run.
validate-gpu: $(READY)  ## on a machine with a GPU: checks, then quality, latency and memory to post; some three hours
	$(BIN)/python -m experiments.validate_gpu --benchmark $(or $(BENCHMARK),vidore2) --out results/validate_gpu \
	  $(if $(CORPUS),--corpus $(CORPUS)) $(if $(BACKBONE),--backbone $(BACKBONE)) $(if $(RETRIEVER),--retriever $(RETRIEVER))

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage
