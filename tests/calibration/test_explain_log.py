import json

import pytest

import kvplan
from kvplan.calibration.explain_log import explain, explain_log
from kvplan.calibration.logs import parse_log
from kvplan.errors import UnknownNameError
from kvplan.planning.fields import ScenarioFields

#: Logs whose settings are all known: figures agree within what the memory rules reach.
TOLERANCE = 0.02


def asked(data, name, planner, known_model, **options):
    return explain_log(data / "logs" / f"{name}.log", planner=planner, known_model=known_model, options=options)


def test_a_log_with_all_its_settings_agrees(data, planner, known_model):
    found = asked(data, "vllm_0.19", planner, known_model, gpu="h100-sxm")
    ratios = {figure.name: figure.ratio for figure in found.figures if figure.ratio is not None}
    for name in ("weights_gib", "activation_gib", "kv_pool_gib", "kv_pool_tokens", "max_concurrency", "budget_gib"):
        assert ratios[name] == pytest.approx(1, abs=TOLERANCE), name
    assert found.scenario.model == "llama-3.1-8b"
    assert found.settings["gpu"] == {"value": "h100-sxm", "source": "option"}
    assert found.settings["context"] == {"value": "8192", "source": "log"}
    assert not found.missing


def test_the_oddities_are_told(data, planner, known_model):
    found = asked(data, "vllm_0.6", planner, known_model, gpu="rtx-3090")
    notes = {figure.name: " ".join(figure.notes) for figure in found.figures}
    assert "GB, counted in GiB" in notes["weights_gib"]
    assert "blocks × 16 tokens" in notes["kv_blocks"]
    old = asked(data, "vllm_0.19", planner, known_model, gpu="h100-sxm")
    assert any("outside the memory fraction" in note for figure in old.figures for note in figure.notes)


def test_the_peak_holds_the_graphs_where_they_are_budgeted(planner, known_model):
    """vLLM 0.31, Llama-3.1-8B on A100-80G: 72.91 − 15.26 − 1.44 = 56.21 GiB of pool; the 1.44 holds the graphs' estimate."""
    text = (
        "(APIServer pid=1) INFO 10-06 17:00:00 [utils.py:297] vLLM API server version {version}\n"
        "(APIServer pid=1) INFO 10-06 17:00:00 [utils.py:233] non-default args: {{'model': 'meta-llama/Llama-3.1-8B'}}\n"
        "(EngineCore pid=326) INFO 10-06 17:00:41 [gpu_worker.py:955] Free memory on device (78.84/79.25 GiB) on startup. "
        "Desired GPU memory utilization is (0.92, 72.91 GiB). Actual usage is 15.26 GiB for consumed memory "
        "(weights + non-torch), 1.44 GiB for peak activation, and 0.23 GiB for CUDAGraph memory.\n"
    )
    peaks = {}
    for version in ("0.19.0", "0.31.0"):
        log = parse_log(text.format(version=version))
        found = explain(log, planner=planner, known_model=known_model, options={"gpu": "a100-80g"})
        peaks[version] = next(figure.predicted for figure in found.figures if figure.name == "activation_gib")
    assert peaks["0.31.0"] == pytest.approx(1.44, rel=0.15)
    assert peaks["0.19.0"] < 0.6


def test_llama_cpp_names_its_own_card_and_format(data, planner, known_model):
    found = asked(data, "llama_cpp", planner, known_model)
    assert (found.scenario.gpu, found.scenario.dtype, found.scenario.pp) == ("rtx-3090", "q4_k_m", 1)
    ratios = {figure.name: figure.ratio for figure in found.figures}
    assert ratios["kv_pool_gib"] == pytest.approx(1)
    assert ratios["weights_gib"] == pytest.approx(1, abs=TOLERANCE)


def test_sglang_over_four_cards(data, planner, known_model):
    found = asked(data, "sglang", planner, known_model, gpu="h100-sxm")
    ratios = {figure.name: figure.ratio for figure in found.figures}
    assert ratios["kv_pool_gib"] == pytest.approx(1, abs=TOLERANCE)
    assert found.scenario.tp == 4


def test_what_the_log_does_not_say_is_asked_for(data, planner, known_model):
    found = asked(data, "vllm_refused", planner, known_model)
    assert found.missing == ("--model", "--gpu")
    assert found.scenario is None
    assert [figure.predicted for figure in found.figures] == [None] * 3
    assert "needs more than the pool" in found.troubles[0].meaning


def test_options_win_over_the_log(data, planner, known_model):
    found = asked(data, "vllm_0.19", planner, known_model, gpu="h200-sxm", model="llama-3-8b", context=4096)
    assert (found.scenario.model, found.scenario.context) == ("llama-3-8b", 4096)
    with pytest.raises(UnknownNameError):
        asked(data, "vllm_0.19", planner, known_model, gpu="h300")


def test_what_is_left_out_is_the_logs_and_no_default(data):
    """Every option of the command line that nobody gave is None: the engine stays the log's."""
    path, given = data / "logs" / "vllm_0.19.log", ScenarioFields.__annotations__.keys() - {"gpu"}
    found = kvplan.explain_log(path, gpu="h100-sxm", **dict.fromkeys(given))
    assert found == kvplan.explain_log(path, gpu="h100-sxm")
    assert found.scenario.engine == "vllm@0.19"


def test_a_logs_own_words_open_no_file(planner, known_model):
    text = "Initializing a V1 LLM engine (v0.11.0) with config: model='/etc/passwd', dtype=torch.bfloat16\n"
    log = parse_log(text + "Available KV cache memory: 1.00 GiB\n")
    found = explain(log, planner=planner, known_model=known_model, options={})
    assert "--model" in found.missing


def test_a_quantisation_that_only_the_engine_knows(planner, known_model):
    text = (
        "Initializing a V1 LLM engine (v0.19.0) with config: model='llama-3.1-8b', quantization=fp8\n"
        "Available KV cache memory: 60.00 GiB\n"
    )
    found = explain(parse_log(text), planner=planner, known_model=known_model, options={"gpu": "h100-sxm"})
    assert found.scenario.dtype == "fp8"


def test_keys_of_the_document(data, planner, known_model):
    document = json.loads(asked(data, "vllm_0.19", planner, known_model, gpu="h100-sxm").model_dump_json())
    assert document["schema"] == "kvplan.explain-log/1"
    assert {"engine", "engine_version", "settings", "missing", "scenario", "figures", "troubles"} <= set(document)
    keys = {"name", "unit", "logged", "predicted", "ratio", "line", "text", "meaning", "formula", "notes"}
    assert all(set(figure) == keys for figure in document["figures"])


#: What people paste: four lines of a server whose settings stand elsewhere.
PASTED = """\
INFO [gpu_model_runner.py:2653] Model loading took 14.99 GiB and 5.1 seconds
INFO [gpu_worker.py:298] Available KV cache memory: 45.2 GiB
INFO [kv_cache_utils.py:1087] GPU KV cache size: 370,000 tokens
INFO [kv_cache_utils.py:1091] Maximum concurrency for 131,072 tokens per request: 2.82x
"""


def pool_notes(planner, known_model, **options):
    log = parse_log(PASTED)
    found = explain(log, planner=planner, known_model=known_model, options={"model": "llama-3.1-8b", **options})
    return "; ".join(next(figure.notes for figure in found.figures if figure.name == "kv_pool_gib"))


def test_figures_say_something_without_a_prediction(planner, known_model):
    found = explain(parse_log(PASTED), planner=planner, known_model=known_model, options={})
    meanings = {figure.name: figure.meaning for figure in found.figures}
    assert "128 KiB of one GPU for each" in meanings["kv_pool_tokens"]
    assert "requests of 131,072 tokens each" in meanings["max_concurrency"]


def test_the_fraction_that_would_explain_the_pool(planner, known_model):
    notes = pool_notes(planner, known_model, gpu="a100-80g", engine="vllm@0.11")
    assert "at 0.78 instead of 0.90 the two would meet" in notes
    given = pool_notes(planner, known_model, gpu="a100-80g", engine="vllm@0.11", gpu_memory_utilization=0.78)
    assert "would meet" not in given
    assert "give --gpu-memory-utilization" not in given


def test_another_card_is_suspected(planner, known_model):
    assert "is it another card?" in pool_notes(planner, known_model, gpu="l40s", gpu_memory_utilization=0.8)


def test_the_cards_memory_in_a_log_is_held_against_the_card_that_was_named(data, planner, known_model):
    """The log of vLLM 0.6 says 23.58 GiB: an RTX 3090 or 4090, by torch's total of them, and no A100."""

    def warnings(**options):
        found = explain_log(
            data / "logs" / "vllm_0.6.log",
            planner=planner,
            known_model=known_model,
            known_gpus=lambda: ("rtx-3090", "l4", "rtx-4090", "a100-80g"),
            options=options,
        )
        return [one for one in found.warnings if one.startswith("the log's GPU")]

    assert warnings() == ["the log's GPU has 23.58 GiB, as have rtx-3090, rtx-4090: give --gpu"]
    assert warnings(gpu="rtx-3090") == []
    assert warnings(gpu="a100-80g") == [
        "the log's GPU has 23.58 GiB, a100-80g has 79.25 GiB: another card, or a slice of it?"
    ]
