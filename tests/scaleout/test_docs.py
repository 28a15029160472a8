"""The tables of docs/scale.md say what the results say."""

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "scale.md").read_text()


def result(name: str) -> Any:  # noqa: ANN401 (JSON)
    return json.loads((ROOT / "results" / f"{name}.json").read_text())


def test_sizes_are_planned_in_both_presets_and_small_reads_a_fifth() -> None:
    sizes = result("scale")["sizes"]
    assert list(sizes) == ["1 M", "100 M", "1 B"]
    for size, models in sizes.items():
        for model, presets in models.items():
            small, paper = (presets[preset] for preset in ("small", "paper"))
            assert small["read_gb_s"] < 0.21 * paper["read_gb_s"]
            for preset, figures in presets.items():
                expected = (
                    f"| {size} | {model} | `{preset}` | {figures['prefixes_tb']:,.1f} TB | "
                    f"{figures['vectors_tb']:,.1f} TB | {figures['gpu_hours']:,.0f} | "
                    f"{figures['read_gb_s']:.1f} GB/s | {100 * figures['hit_memory']:.0f} % | "
                    f"{100 * figures['hit_disk']:.0f} % | {figures['bucket_gb_s']:.1f} GB/s | "
                    f"{figures['replicas']} |"
                )
                assert expected in TEXT


def test_the_table_of_hit_rates_says_what_the_results_say() -> None:
    rates = result("scale")["hit_rates"]
    for exponent in ("0.6", "0.8", "1.0", "1.2"):
        cells = [
            f"{100 * rates[size][exponent]['memory']:.0f} %, {100 * rates[size][exponent]['disk']:.0f} %"
            for size in rates
        ]
        assert f"| {exponent} | {' | '.join(cells)} |" in TEXT


def test_the_table_of_a_page_s_bytes_says_what_the_results_say() -> None:
    figures = result("scale")["page_bytes"]
    for kind in figures["Qwen2.5-VL-7B"]:
        assert f"| {kind} | {' | '.join(f'{figures[model][kind]:.1f} MB' for model in figures)} |" in TEXT


def test_the_approximation_is_as_close_to_the_simulation_as_it_is_said_to_be() -> None:
    worst = max(abs(point["simulated"] - point["che"]) for point in result("scale")["simulated"])
    assert f"at most {100 * worst:.1f} points" in TEXT


@pytest.mark.parametrize("kind", ["listed", "indexed"])
def test_the_table_of_requests_says_what_the_results_say(kind: str) -> None:
    for what, figures in result("object_store")[kind].items():
        if isinstance(figures, dict):
            assert f"| {kind} | {what} | {figures['requests']:.0f} | {figures['megabytes']:.2f} MB |" in TEXT


def test_the_table_of_growth_says_what_the_results_say_and_the_bars_are_met() -> None:
    growth = result("growth")
    latency, retrieval = growth["rerank_p50_ms"], growth["retrieval_p50_ms"]
    first, *_, last = growth["open_s"]
    for pages in growth["open_s"]:
        indexed = retrieval["indexed"].get(pages)
        cells = [
            f"{latency['equal'][pages] / latency['equal'][first]:.2f}x",
            f"{latency['uniform'][pages] / latency['uniform'][first]:.2f}x",
            f"{growth['open_s'][pages]:.2f} s",
            f"{growth['memory_above_model_mib'][pages]:.0f} MiB",
            f"{retrieval['exact'][pages] / retrieval['exact'][first]:.1f}x",
            "none" if indexed is None else f"{indexed / retrieval['exact'][first]:.1f}x",
        ]
        assert f"| {int(pages):,} | {' | '.join(cells)} |" in TEXT
    assert latency["equal"][last] <= growth["bars"]["rerank_p50_last_over_first"] * latency["equal"][first]
    assert max(growth["open_s"].values()) < growth["bars"]["open_s"]


def test_the_price_of_ray_is_the_one_measured() -> None:
    overhead = result("ray_overhead")
    assert overhead["same_bytes"]
    text = TEXT.replace("\n", " ")
    assert f"{overhead['time_over_one_process']}x the time of one" in text
    assert f"further pages took them {overhead['further_pages_over_one_process']}x" in text
