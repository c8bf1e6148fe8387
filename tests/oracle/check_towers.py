"""Compare kvplan's parameters and buffers with real `transformers` builds: towers, encoders, encoder–decoder models.

Random small configs of `tower_cases.py`, which vary towers, heads and nested decoders (`check_transformers.py` varies
decoders). Needs torch and transformers beside kvplan; models are built on the meta device.

    python tests/oracle/check_towers.py --trials 20
    python tests/oracle/check_towers.py --trials 3 --record tests/oracle/small_towers.jsonl
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import sys
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[2]))

import torch
import transformers
from check_transformers import keep
from tower_cases import CASES, OneOf
from transformers import CONFIG_MAPPING
from transformers.models.auto import modeling_auto

from kvplan.core.parameters import parameters_total
from kvplan.errors import KvplanError
from kvplan.specs.huggingface import from_config

#: Config classes that transformers has under no model type of their own.
THINKERS = {
    "qwen2_5_omni_thinker": ("qwen2_5_omni", "Qwen2_5OmniThinkerConfig"),
    "qwen3_omni_moe_thinker": ("qwen3_omni_moe", "Qwen3OmniMoeThinkerConfig"),
}
MAPPINGS = ("MODEL_FOR_IMAGE_TEXT_TO_TEXT", "MODEL_FOR_MULTIMODAL_LM", "MODEL_FOR_CAUSAL_LM", "MODEL")


def draw(case: Any, rng: random.Random) -> Any:
    """One config: choices made, sets of fields merged."""
    if isinstance(case, OneOf):
        return draw(rng.choice(case), rng)
    if not isinstance(case, dict):
        return case
    fields: dict[str, Any] = {}
    for name, value in case.items():
        drawn = draw(value, rng)
        if name.startswith("*"):
            fields |= drawn
        else:
            fields[name] = drawn
    return fields


def config_class(model_type: str) -> Any:
    if model_type in THINKERS:
        package, name = THINKERS[model_type]
        module = importlib.import_module(f"transformers.models.{package}.configuration_{package}")
        return getattr(module, name)
    return CONFIG_MAPPING[model_type]


def build(data: dict[str, Any]) -> Any:
    """The real model on the meta device: the class in `architectures`, else the one of the widest auto class."""
    fields = json.loads(json.dumps(data))
    config = config_class(fields.pop("model_type")).from_dict(fields)
    if data.get("architectures"):
        cls = getattr(transformers, data["architectures"][0])
    else:
        names = (getattr(modeling_auto, f"{m}_MAPPING_NAMES", {}).get(config.model_type) for m in MAPPINGS)
        cls = getattr(transformers, next(name for name in names if name))
    with torch.device("meta"):
        return cls(config)


def truth(data: dict[str, Any]) -> dict[str, int]:
    model = build(data)
    model.tie_weights()
    buffers = 0
    for module in model.modules():
        kept = {name for name in module._buffers if name not in module._non_persistent_buffers_set}
        buffers += sum(module._buffers[name].numel() for name in kept if module._buffers[name] is not None)
    return {"parameters": sum(p.numel() for p in model.parameters()), "buffers": buffers}


def ours(data: dict[str, Any]) -> dict[str, int] | str:
    try:
        model = from_config(json.loads(json.dumps(data)))
    except KvplanError as error:
        return f"refused: {error}"
    return {"parameters": parameters_total(model), "buffers": model.buffer_elements}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", type=Path, help="write configs and counts as JSON lines")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    source = f"transformers {transformers.__version__}, built on the meta device"
    rows: list[str] = []
    bad = 0
    for name in arguments.cases or CASES:
        rng = random.Random(f"{arguments.seed} {name}")  # noqa: S311 - reproducible, not secret
        equal = 0
        seen: set[str] = set()
        said = 0
        for _ in range(arguments.trials):
            data = draw(CASES[name], rng)
            expected = truth(data)
            counted = ours(data)
            line = json.dumps({"config": data, "expected": expected, "source": source}, separators=(",", ":"))
            if counted == expected:
                equal += 1
                if line not in seen:
                    rows.append(line)
                seen.add(line)
            else:
                bad += 1
                said += 1
                if said > 2:
                    continue
                print(f"    {name}: kvplan {counted}, transformers {expected}: {json.dumps(data)}")  # noqa: T201
        print(f"{name:24} {equal} of {arguments.trials} equal", flush=True)  # noqa: T201
    if arguments.record:
        keep(arguments.record, rows)
    print(f"{bad} not equal")  # noqa: T201
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
