# Every target sets up .venv by itself; Python 3.11 or newer and make are all it needs.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test lint bench figures clean
.DELETE_ON_ERROR:

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[engine,miniature,plot,dev]'
	@touch $@

demo: $(READY)  ## the main job, on data made on the spot
	$(BIN)/python -m benchmarks.demo

test: $(READY)  ## every test, coverage measured
	$(BIN)/python -m pytest --cov --cov-report=term:skip-covered

lint: $(READY)  ## style, types, import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)  ## speed against what one would use instead; ratios go to results/
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python -m benchmarks.fusion_speed --out results/fusion_speed.json
	$(BIN)/python -m benchmarks.ridge_speed --out results/ridge_speed.json
	$(BIN)/python -m benchmarks.shallow_speed --out results/shallow_speed.json
	$(BIN)/python -m benchmarks.store_read --out results/store_read.json
	$(BIN)/python -m benchmarks.index_memory --out results/index_memory.json

figures: $(READY)  ## the pictures in docs/, and the results they show
	$(BIN)/python -m benchmarks.overview_figure
	$(BIN)/python -m benchmarks.label_free_convergence
	$(BIN)/python -m benchmarks.weight_safety

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage
