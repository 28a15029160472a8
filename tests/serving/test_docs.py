"""What docs/serving.md says of load is what the committed run says."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_figures_of_load_are_the_run_s() -> None:
    results = json.loads((ROOT / "results/serving.json").read_text())
    text = (ROOT / "docs/serving.md").read_text().replace("\n", " ")
    assert f"eight callers get {results['throughput_eight_over_one']}x the throughput of one" in text
    assert f"{results['threads_eight_over_one']}x where the workers are threads" in text
    assert f"p99 is {results['p99_ten_times_over_capacity']}x that at capacity" in text
    assert results["answers_after_equal_before"]
    assert results["concurrent_answers_equal_lone"]
    assert not results["other_statuses"]


def test_the_codes_of_errors_are_those_the_server_sends() -> None:
    [section] = re.findall(
        r"^## Errors\n(.*?)^## ", (ROOT / "docs/serving.md").read_text(), flags=re.S | re.M
    )
    documented = set(re.findall(r"`([a-z_]+)`", section))
    source = "".join(path.read_text() for path in (ROOT / "src/ridgerank/serving").rglob("*.py"))
    raised = set(re.findall(r"ApiError\(\s*\d+,\s*\"([a-z_]+)\"", source))
    assert raised <= documented
    assert {code for code in documented if f'"{code}"' not in source} == set()
