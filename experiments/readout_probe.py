"""Which weights a shipped readout accepts: its probe run in two precisions and over rounded weights.

    python -m experiments.readout_probe MODELS/smollm2-135m --out results/readouts.json

Each model's folder is called as its readout. Weights are rounded by the block formats of GGUF files.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from gguf import quants
from gguf.constants import GGMLQuantizationType as Format

from ridgerank.atomic import replace_text_file
from ridgerank.backbones.base import Backbone
from ridgerank.backbones.load import load_backbone, parse_dtype
from ridgerank.calibration.readout_file import ReadoutFile, shipped_readouts

FORMATS = (Format.Q8_0, Format.Q5_0, Format.Q4_0)


def main() -> None:
    """Write what the probe says of every model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", type=Path, help="folders of models")
    parser.add_argument("--out", type=Path, required=True, help="JSON to write")
    options = parser.parse_args()
    rows = [row for model in options.models for row in measure(model)]
    with replace_text_file(options.out) as file:
        file.write(json.dumps(rows, indent=1) + "\n")


def measure(model: Path) -> list[dict[str, Any]]:
    """One row for each precision and rounding."""
    file = ReadoutFile.load(shipped_readouts()[model.name])

    def run(weights: str, backbone: Backbone) -> dict[str, Any]:
        result = file.check(backbone, file.calibration.readout.lineage)
        return {
            "readout": model.name,
            "source": file.source,
            "weights": weights,
            "correlation": round(result.correlation, 4),
            "swapped": result.swapped,
            "accepted": result.accepted,
        }

    dtypes = ("float32", "bfloat16")
    rows = [run(dtype, load_backbone(str(model), dtype=parse_dtype(dtype))) for dtype in dtypes]
    for each in FORMATS:
        backbone = load_backbone(str(model), dtype=torch.float32)
        for module in backbone._model.modules():
            if isinstance(module, torch.nn.Linear):
                rounded = quants.dequantize(quants.quantize(module.weight.detach().numpy(), each), each)
                module.weight = torch.nn.Parameter(torch.from_numpy(rounded), requires_grad=False)
        rows.append(run(each.name, backbone))
    return rows


if __name__ == "__main__":
    main()
