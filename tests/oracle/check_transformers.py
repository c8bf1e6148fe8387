"""Compare kvplan's counts with models that the real `transformers` library builds, on random configs of each family.

Needs torch and transformers beside kvplan. Models are built on the meta device (no memory); the cache is read off a
forward pass there. A trial is written twice: as `transformers` saves the config (every field), and with only the
fields that the trial sets, so that kvplan must know the family's defaults or refuse.

    python tests/oracle/check_transformers.py --trials 20 -o tests/oracle/check_transformers.txt
    python tests/oracle/check_transformers.py deepseek_v3 --trials 200 --seed 7
    python tests/oracle/check_transformers.py jamba zamba2 --trials 2 --record tests/oracle/small_models.jsonl
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import random
import sys
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[2]))

import torch
import transformers
from families import FAMILIES as CASES
from families import GENERIC
from transformers import CONFIG_MAPPING, AutoModel, PreTrainedConfig
from transformers.models.auto import modeling_auto

from kvplan.core import cache, parameters
from kvplan.errors import KvplanError
from kvplan.specs.huggingface import from_config
from kvplan.specs.huggingface.registry import FAMILIES

LENGTHS = (5, 9)
#: Caches that grow in steps longer than the lengths here (DeepSeek-V4's compressed entries).
UNREAD_CACHES = {"deepseek_v4"}
COMMON = set(PreTrainedConfig().to_dict()) - {"tie_word_embeddings"}


def build(config: Any) -> Any:
    """The model with its head, on the meta device, under the first auto class that knows the config."""
    name = config.model_type
    mappings = ["MODEL_FOR_CAUSAL_LM", "MODEL_FOR_IMAGE_TEXT_TO_TEXT", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM"]
    if hasattr(config, "text_config"):
        mappings[:2] = reversed(mappings[:2])
    if config.is_encoder_decoder:
        mappings.reverse()
    if FAMILIES[name][0] == "encoder":
        mappings = ["MODEL_FOR_MASKED_LM"]
    for mapping in mappings:
        found = getattr(modeling_auto, f"{mapping}_MAPPING_NAMES").get(name)
        if found is not None:
            names = found if isinstance(found, tuple | list) else (found,)
            cls = getattr(transformers, names[0])
            with torch.device("meta"):
                return cls._from_config(config)
    with torch.device("meta"):
        return AutoModel.from_config(config)


def has_head(family: str) -> bool:
    """False for the bare decoders of multimodal families, which no class builds with a head."""
    mappings = ("MODEL_FOR_CAUSAL_LM", "MODEL_FOR_IMAGE_TEXT_TO_TEXT", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM")
    known = any(family in getattr(modeling_auto, f"{mapping}_MAPPING_NAMES") for mapping in mappings)
    return known or not family.endswith(("_text", "_text_model"))


def draw(family: str, rng: random.Random) -> dict[str, Any]:
    """Fields of one random trial; those of a multimodal family go into its text config."""
    known = CONFIG_MAPPING[family]().to_dict()
    nested = isinstance(known.get("text_config"), dict)
    if nested:
        known = known["text_config"]
    text_type = known.get("model_type", family)
    case = CASES.get(family) or CASES.get(text_type, {})
    fields: dict[str, Any] = {}
    for bundle in GENERIC:
        choice = rng.choice(bundle)
        if all(name in known and not isinstance(known[name], str) for name in choice):
            fields |= choice
    for name in case.get("skip", ()):
        fields.pop(name, None)
    fields |= case.get("base", {})
    for bundle in case.get("bundles", ()):
        fields |= rng.choice(bundle)
    if known.get("num_key_value_heads") is not None and "kv_lora_rank" in known:
        fields["num_key_value_heads"] = fields.get("num_attention_heads", known["num_attention_heads"])
    if (known.get("pad_token_id") or 0) >= fields.get("vocab_size", known.get("vocab_size") or 0):
        fields["pad_token_id"] = 0
    if not nested:
        return fields
    tied = {"tie_word_embeddings": fields.pop("tie_word_embeddings")} if "tie_word_embeddings" in fields else {}
    return {**tied, "text_config": {"model_type": text_type, **fields}}


def persistent_buffers(model: Any) -> int:
    """Elements of the buffers that are saved with the weights."""
    total = 0
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                total += buffer.numel()
    return total


def truth(config: Any) -> dict[str, Any]:
    """Counts of the real model."""
    model = build(config)
    embedding = model.get_input_embeddings()
    config.architectures = [type(model).__name__]
    facts: dict[str, Any] = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "embedding": sum(p.numel() for p in embedding.parameters()) if embedding is not None else 0,
        "buffers": persistent_buffers(model),
    }
    if config.model_type not in UNREAD_CACHES:
        with contextlib.suppress(Exception):
            facts |= cache_facts(model)
    return facts


def cache_facts(model: Any) -> dict[str, Any]:
    """Growth of the cache per token and fixed state (convolutions with one column less, as engines keep them)."""
    for module in model.modules():
        if (
            type(module).__name__.endswith(("Experts", "SparseMoeBlock", "MoE"))
            and "Layer" not in type(module).__name__
        ):
            module.forward = lambda hidden_states, *_args, **_kwargs: hidden_states
    sizes = []
    state = 0
    for length in LENGTHS:
        ids = torch.zeros((1, length), dtype=torch.long, device=model.device)
        with torch.no_grad():
            output = model(input_ids=ids, use_cache=True)
        held = output.get("past_key_values", output.get("cache"))
        tokens, state = 0, sum(part.numel() for part in getattr(held, "linear_cache", ()) if len(part))
        for layer in held.layers:
            tokens += growing_elements(layer)
            state += fixed_elements(layer)
        sizes.append(tokens)
    return {"kv": (sizes[1] - sizes[0]) / (LENGTHS[1] - LENGTHS[0]), "state": state}


def growing_elements(layer: Any) -> int:
    """Elements of tensors with one row per token."""
    total = 0
    for name in ("keys", "values", "index_keys", "indexer_keys", "idx_keys"):
        value = getattr(layer, name, None)
        if isinstance(value, torch.Tensor):
            total += value.numel()
    return total


def fixed_elements(layer: Any) -> int:
    """Elements of recurrent and convolution state."""
    total = 0
    for name, value in vars(layer).items():
        tensors = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else (value,)
        for tensor in tensors:
            if not isinstance(tensor, torch.Tensor):
                continue
            if "conv" in name:
                total += tensor.numel() // tensor.shape[-1] * (tensor.shape[-1] - 1)
            elif "recurrent" in name or "ssm" in name:
                total += tensor.numel()
    return total


def ours(data: dict[str, Any]) -> dict[str, Any]:
    """The same counts by kvplan."""
    model = from_config(data)
    return {
        "parameters": parameters.parameters_total(model),
        "embedding": parameters.parameters_embedding(model),
        "buffers": model.buffer_elements,
        "kv": cache.kv_elements_per_token(model),
        "state": cache.state_elements_per_sequence(model),
    }


def compare(data: dict[str, Any], facts: dict[str, Any]) -> tuple[str, str]:
    """`equal`, `refused` or `wrong`, with what there is to say."""
    try:
        counted = ours(data)
    except KvplanError as error:
        return "refused", str(error)
    except Exception as error:  # noqa: BLE001 - a crash is a finding
        return "crashed", "".join(traceback.format_exception_only(error)).strip()
    off = {name: (counted[name], value) for name, value in facts.items() if counted[name] != value}
    return ("wrong", f"{off} (kvplan, transformers) for {json.dumps(data)[:1500]}") if off else ("equal", "")


def record(fields: dict[str, Any], family: str, facts: dict[str, Any]) -> str:
    """One line of the file that the test suite compares with where torch is not at hand."""
    row = {
        "config": {"model_type": family, **fields},
        "expected": facts,
        "source": f"transformers {transformers.__version__}, built on the meta device",
    }
    return json.dumps(row, separators=(",", ":"))


def check(
    family: str, *, trials: int, rng: random.Random, rows: list[str] | None = None
) -> tuple[Counter[str], list[str]]:
    """Run the trials of one family."""
    counts: Counter[str] = Counter()
    said: list[str] = []
    for _ in range(trials):
        fields = draw(family, rng)
        try:
            config = CONFIG_MAPPING[family](**json.loads(json.dumps(fields)))
            facts = truth(config)
            full = json.loads(config.to_json_string(use_diff=False))
        except Exception as error:  # noqa: BLE001 - some random configs are invalid for transformers itself
            counts["unbuilt"] += 1
            said.append(f"unbuilt: {str(error)[:200]}")
            continue
        counts["cache read"] += "kv" in facts
        if rows is not None:
            rows.append(record(fields, family, facts))
        for name, data in (
            ("full", full),
            ("sparse", {"model_type": family, "architectures": full["architectures"], **fields}),
        ):
            verdict, text = compare(data, facts)
            counts[f"{name} {verdict}"] += 1
            if text:
                said.append(f"{name} {verdict}: {text}")
    return counts, said


def keep(path: Path, rows: list[str]) -> None:
    """Put rows into a file in place of those that it has of the same families; all others stay."""
    families = {json.loads(row)["config"]["model_type"] for row in rows}
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    others = [
        line for line in lines if line.startswith("#") or json.loads(line)["config"]["model_type"] not in families
    ]
    path.write_text("".join(f"{line}\n" for line in (*others, *rows)), encoding="utf-8")


def main() -> int:
    """Check the families named on the command line, or all that both libraries know."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--record", type=Path)
    parser.add_argument("-v", "--verbose", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    wanted = arguments.families or [name for name in sorted(FAMILIES) if name in CONFIG_MAPPING and has_head(name)]
    lines = [
        f"transformers {transformers.__version__}, torch {torch.__version__}",
        f"{arguments.trials} trials per family, seed {arguments.seed}",
        "full: the config as transformers saves it; sparse: only the varied fields; cache: trials with a cache read",
    ]
    bad = 0
    rows: list[str] = []
    for family in wanted:
        rng = random.Random(f"{arguments.seed} {family}")  # noqa: S311 - nothing secret
        counts, said = check(family, trials=arguments.trials, rng=rng, rows=rows)
        wrong = sum(n for name, n in counts.items() if name.endswith(("wrong", "crashed")))
        bad += wrong
        line = f"{family:24} " + ", ".join(f"{name} {n}" for name, n in sorted(counts.items()))
        lines.append(line)
        print(line, flush=True)  # noqa: T201 - a script that prints
        shown = said if arguments.verbose else list(dict.fromkeys(text[:400] for text in said))[:3]
        for text in shown:
            print("    " + text, flush=True)  # noqa: T201
            lines.append("    " + text[:300])
    lines.append(f"{bad} wrong")
    if arguments.record:
        keep(arguments.record, rows)
    if arguments.output:
        arguments.output.write_text("\n".join(lines) + "\n")
    print(lines[-1])  # noqa: T201
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
