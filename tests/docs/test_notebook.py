"""docs/notebook.ipynb runs from top to bottom, and what it shows is what it printed."""

from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs/notebook.ipynb"


@pytest.mark.slow
def test_every_cell_of_the_notebook_runs(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    kept = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    assert kept
    assert all(kept)
    assert not any(output.output_type == "error" for outputs in kept for output in outputs)
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    printed = "".join(
        output.get("text", "")
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if output.output_type == "stream" and output.name == "stdout"
    )
    assert "pages added" in printed
    assert "agreement with the full model 0." in printed
    assert "up from" in printed
    pictures = [
        output
        for cell in notebook.cells
        for output in cell.get("outputs", [])
        if "image/png" in output.get("data", {})
    ]
    assert len(pictures) == 1
