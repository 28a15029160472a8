"""The first lines of README: their figures are those of the results, and the bars of starting up hold."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_the_recipe_s_figures_are_those_of_the_results() -> None:
    measured = json.loads((ROOT / "results" / "first_hour.json").read_text())
    assert f"{measured['index_cpu_seconds_per_page']:.1f} processor seconds" in README
    assert f"{measured['bytes_per_page'] / 1000:.0f} kB per page" in README
    assert f"{measured['calibrate_cpu_seconds_per_page']:.1f} seconds per page" in README
    assert f"command line {measured['search_cpu_seconds']:.0f} seconds" in README
    assert f"[{measured['pages']} pages, measured]" in README
