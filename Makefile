# Every target sets up .venv by itself; Python 3.11 or newer and make are all it needs.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test adapters lint bench miniature figures clean
.DELETE_ON_ERROR:

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[engine,colpali,dense,langchain,rerankers,ocr,gguf,miniature,plot,dev]'
	@touch $@

demo: $(READY)  ## the main job: draw, index, calibrate, search, compare with the full model
	$(BIN)/python -m benchmarks.demo

test: $(READY)  ## every test, coverage measured
	$(BIN)/python -m pytest --cov --cov-report=term:skip-covered

adapters: $(READY)  ## the adapters' tests with the packages that take long to install
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[llamaindex,mteb]'
	$(BIN)/python -m pytest tests/adapters

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
	$(BIN)/python -m benchmarks.rank_overhead --out results/rank_overhead.json
	$(BIN)/python -m benchmarks.one_pass --out results/one_pass.json

miniature: $(READY)  ## the miniature's models on its first four corpora; about ten minutes
	$(BIN)/python -m benchmarks.miniature --out results/miniature/models.json

figures: $(READY)  ## the pictures in docs/, and the results they show
	$(BIN)/python -m benchmarks.overview_figure
	$(BIN)/python -m benchmarks.label_free_convergence
	$(BIN)/python -m benchmarks.weight_safety
	$(BIN)/python -m benchmarks.learning_curves

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage
