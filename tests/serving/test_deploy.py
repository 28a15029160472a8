"""The files that put the server into an image, and that docs say what the code and the committed run say."""

import json
import re
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest
import yaml
from fastapi.testclient import TestClient

from ridgerank.documents.images import MAX_JPEG_SCANS
from ridgerank.documents.sources import MAX_DOCUMENT_PAGES, MAX_FILE_BYTES, MAX_IMAGE_PIXELS
from ridgerank.records import MAX_QUERY_CHARACTERS
from ridgerank.serving.server import END_SECONDS, GRACE_SECONDS
from ridgerank.serving.settings import Limits

ROOT = Path(__file__).parents[2]
ENTRYPOINT = ROOT / "deploy/entrypoint.sh"


def run_entrypoint(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The script in an environment that has nothing but a `ridgerank` that prints its words."""
    command = folder / "ridgerank"
    command.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    command.chmod(0o755)
    variables = {"PATH": f"{folder}:/usr/bin:/bin", **environment}
    return subprocess.run(
        [ENTRYPOINT, *words], env=variables, cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_entry_point_serves_the_store_with_keys(tmp_path: Path) -> None:
    (tmp_path / "my pages").mkdir()
    done = run_entrypoint(
        tmp_path,
        "--encode-missing",
        RIDGERANK_STORE=str(tmp_path / "my pages"),
        RIDGERANK_API_KEY_FILE="/run/key",
        RIDGERANK_PORT="9000",
    )
    assert done.returncode == 0, done.stderr
    address = ["--host", "0.0.0.0", "--port", "9000"]
    store = ["serve", "--store", str(tmp_path / "my pages")]
    keys = ["--api-key-file", "/run/key"]
    assert done.stdout.splitlines() == [*store, *address, "--json-logs", *keys, "--encode-missing"]


@pytest.mark.parametrize("words", [(), ("serve",)])
def test_a_bucket_is_served_without_keys_only_where_told(tmp_path: Path, words: tuple[str, ...]) -> None:
    refused = run_entrypoint(tmp_path, *words, RIDGERANK_STORE="s3://bucket/pages")
    assert refused.returncode == 2
    assert "RIDGERANK_NO_AUTH=1" in refused.stderr
    done = run_entrypoint(tmp_path, *words, RIDGERANK_STORE="s3://bucket/pages", RIDGERANK_NO_AUTH="1")
    assert done.stdout.splitlines()[-1] == "--no-auth"


def test_a_store_that_is_not_there_is_told_and_other_commands_run_as_typed(tmp_path: Path) -> None:
    done = run_entrypoint(tmp_path, RIDGERANK_STORE=str(tmp_path / "none"), RIDGERANK_NO_AUTH="1")
    assert done.returncode == 2
    assert "no page store" in done.stderr
    assert run_entrypoint(tmp_path, "store", "info", "a b").stdout.splitlines() == ["store", "info", "a b"]


def test_every_metric_of_the_dashboard_exists(client: TestClient) -> None:
    text = client.get("/metrics").text
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, flags=re.M))
    existing = set(kinds)
    for name, kind in kinds.items():
        if kind == "histogram":
            existing |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"}
    dashboard = json.loads((ROOT / "deploy/grafana/dashboards/ridgerank.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    named = set(re.findall(r"\bridgerank_\w+", " ".join(expressions)))
    assert len(named) > 10
    assert named <= existing


def test_what_the_compose_file_mounts_is_there_and_the_image_has_what_it_runs() -> None:
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    for service in compose["services"].values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert not source.startswith("./deploy") or (ROOT / source).exists(), volume
    dockerfile = (ROOT / "Dockerfile").read_text()
    stages = re.findall(r"^FROM \S+ AS (\w+)$", dockerfile, flags=re.M)
    assert compose["services"]["ridgerank"]["build"]["target"] in stages
    assert stages == ["base", "cuda", "cpu"]
    for stage in re.split(r"^FROM ", dockerfile, flags=re.M)[2:]:
        assert stage.rstrip().endswith("USER 10001")
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    for source in re.findall(r"^COPY (.+) \S+$", dockerfile, flags=re.M):
        for name in source.split():
            assert (ROOT / name).exists()
            assert f"!{name}" in kept
    for path in (ROOT / "deploy").rglob("*.y*ml"):
        assert yaml.safe_load(path.read_text())


SECURITY = (ROOT / "docs/security.md").read_text()


def test_the_figures_of_load_are_the_run_s() -> None:
    drawn, slides = (
        json.loads((ROOT / f"results/{name}.json").read_text()) for name in ("serving", "serving-smollm2")
    )
    text = (ROOT / "docs/serving.md").read_text().replace("\n", " ")
    eight, p99 = "throughput_eight_over_one", "p99_ten_times_over_capacity"
    assert f"eight callers get {drawn[eight]}x the throughput of one, and {slides[eight]}x." in text
    assert f"p99 is {drawn[p99]}x that at capacity, and {slides[p99]}x." in text
    late = slides["degraded"]
    assert (
        f"an order within {late['longest_seconds']} s; {late['reranked_a_second_over_capacity']} of" in text
    )
    for results in (drawn, slides):
        assert results["answers_after_equal_before"]
        assert results["concurrent_answers_equal_lone"]
        assert not results["other_statuses"]
        assert results["degraded"]["without_an_order"] == 0


def test_the_codes_of_errors_are_those_the_server_sends() -> None:
    [section] = re.findall(
        r"^## Errors\n(.*?)^## ", (ROOT / "docs/serving.md").read_text(), flags=re.S | re.M
    )
    documented = set(re.findall(r"`([a-z_]+)`", section))
    source = "".join(path.read_text() for path in (ROOT / "src/ridgerank/serving").rglob("*.py"))
    raised = set(re.findall(r"ApiError\(\s*\d+,\s*\"([a-z_]+)\"", source))
    assert raised <= documented
    assert {code for code in documented if f'"{code}"' not in source} == set()


def test_the_table_has_every_limit_with_its_default() -> None:
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| ([\d,.]+) \|", SECURITY, flags=re.M))
    documented = {name: float(value.replace(",", "")) for name, value in rows.items()}
    assert documented == asdict(Limits())


def test_the_other_limits_are_those_of_the_code() -> None:
    assert f"a query of {MAX_QUERY_CHARACTERS:,} characters" in SECURITY
    assert f"a JPEG of {MAX_JPEG_SCANS} scans" in SECURITY
    assert f"a PDF of {MAX_DOCUMENT_PAGES:,} pages, a file of {MAX_FILE_BYTES >> 30} GiB" in SECURITY
    assert f"{MAX_IMAGE_PIXELS // 10**6} million pixels" in SECURITY
    assert GRACE_SECONDS < END_SECONDS < 10
