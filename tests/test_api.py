"""What the Python face promises: names of the contract, and arguments that reach the memory as well as the clock."""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import kvplan
from kvplan import api, errors
from kvplan.cli.main import app
from kvplan.planning.fields import ScenarioFields
from kvplan.planning.scenarios import FIELDS

ROOT = Path(__file__).parents[1]
LOG = ROOT / "examples" / "vllm_0.19.log"
LOAD = {"rate": 1, "input_tokens": 100, "output_tokens": 10, "max_gpus": 1}
MODELS = ["llama-3-8b", "deepseek-v3", "gemma-3-27b-it", "whisper-large-v3", "bge-m3", "recurrentgemma-9b"]


def test_what_type_checkers_see_is_what_there_is():
    """The imports for type checkers and the homes that are looked up at run time name the same functions."""
    seen = {
        (name.name, node.module.removeprefix("kvplan."))
        for node in ast.walk(ast.parse(inspect.getsource(api)))
        if isinstance(node, ast.ImportFrom) and node.module.startswith("kvplan.")
        for name in node.names
    }
    assert seen == set(api._HOME_OF.items())
    assert all(getattr(api, name) is not None for name in dir(api))
    assert all(getattr(kvplan, name) is getattr(api, name, getattr(errors, name, None)) for name in kvplan.__all__)


def test_other_questions_take_the_keywords_of_an_estimate():
    """One list of keywords: its signature. Fields of scenarios are the same, and `needs` asks for some of them."""
    asked = inspect.signature(kvplan.estimate).parameters
    assert set(ScenarioFields.__annotations__) == set(asked)
    assert {*FIELDS, "overrides"} == set(asked)
    for name, parameter in inspect.signature(kvplan.needs).parameters.items():
        if name != "context":  # a length of its own: an estimate plans for input + output
            assert (parameter.default, parameter.kind) == (asked[name].default, asked[name].kind), name


@pytest.mark.parametrize("name", MODELS)
def test_summary_is_what_models_show_prints(name):
    shown = CliRunner().invoke(app, ["models", "show", name, "--json"]).stdout
    assert json.loads(shown) == json.loads(json.dumps(kvplan.load_model(name).summary()))


def test_llama_cpp_reads_mxfp4_checkpoints_as_its_own_file_type():
    """llama-bench prints 11.27 and 59.02 GiB for the files of gpt-oss (benches/dgx-spark.md of llama.cpp)."""
    for model, size in (("gpt-oss-20b", 11.27), ("gpt-oss-120b", 59.02)):
        found = kvplan.estimate(model, "dgx-spark", engine="llama.cpp")
        assert found.scenario.dtype == "mxfp4_moe"
        assert round(found.memory.weights_bytes / 2**30, 2) == size
        assert kvplan.estimate(model, "dgx-spark", engine="vllm").scenario.dtype == "mxfp4"


def test_llama_cpp_keeps_both_parts_of_a_recurrent_state_in_32_bits():
    """Logs of hybrids with 48 gated delta nets print RS buffers of 448.88 and 748.12 MiB: three and five of these."""
    found = kvplan.estimate("qwen3.5-27b", "rtx-5090", engine="llama.cpp", dtype="q4_k_m")
    assert found.memory.state_bytes_per_sequence == 149.625 * 2**20


def test_engines_narrow_fp32_checkpoints_unless_fp32_is_asked_for():
    """OLMo-2-32B is published in fp32: vLLM loads it in bf16, SGLang in fp16, TensorRT-LLM and the floor as it is."""
    for engine, dtype in (
        ("vllm", "bf16"),
        ("vllm@0.8", "fp16"),
        ("sglang", "fp16"),
        ("tensorrt-llm", "fp32"),
        ("ideal", "fp32"),
    ):
        found = kvplan.estimate("olmo-2-0325-32b", "h200", engine=engine)
        assert (found.scenario.dtype, found.scenario.kv_dtype) == (dtype, dtype)
        assert found.memory.weights_bytes == pytest.approx(32_234_279_936 * (4 if dtype == "fp32" else 2), rel=1e-3)
        assert any("loads fp32 checkpoints" in line for line in found.assumptions) == (dtype != "fp32")
    assert kvplan.estimate("olmo-2-0325-32b", "h200", engine="llama.cpp").scenario.dtype == "fp16"
    asked = kvplan.estimate("olmo-2-0325-32b", "h200", dtype="fp32")
    assert (asked.scenario.dtype, asked.scenario.kv_dtype) == ("fp32", "fp32")


def test_source_tokens_are_cached_as_long_as_the_answer_runs():
    """T5-large: 24 layers × 2 × 1024 elements × 2 bytes = 98,304 bytes for each token of the source."""
    short, long = (
        kvplan.estimate("t5-large", "l4", source_tokens=n, input_tokens=16, output_tokens=16) for n in (160, 1600)
    )
    assert long.memory.state_bytes_per_sequence - short.memory.state_bytes_per_sequence == 98_304 * 1440
    assert short.memory.sequence_bytes == 98_304 * (32 + 160)
    assert long.memory.sequence_bytes == 98_304 * (32 + 1600)


def test_the_source_is_the_models_most_unless_told():
    whisper = kvplan.estimate("whisper-large-v3", "l4", input_tokens=4, output_tokens=100)
    assert whisper.memory.state_bytes_per_sequence == 32 * 2 * 1280 * 2 * 1500
    t5 = kvplan.estimate("t5-large", "l4", input_tokens=16, output_tokens=16)
    assert t5.memory.state_bytes_per_sequence == 98_304 * 512
    assert any("n_positions" in line and "512" in line for line in t5.assumptions)


def test_a_grid_over_sources_is_the_same_estimates():
    pytest.importorskip("numpy")
    sources = [100, 1000]
    grid = kvplan.sweep("t5-large", "l4", source_tokens=sources, concurrency=[1, 4], input_tokens=4, output_tokens=50)
    for row, source in enumerate(sources):
        one = kvplan.estimate("t5-large", "l4", source_tokens=source, concurrency=4, input_tokens=4, output_tokens=50)
        assert grid["max_concurrency"][row][1] == one.capacity.max_concurrency


def test_the_engines_own_cache_format_comes_before_the_models():
    """llama.cpp caches in f16 whatever the checkpoint's dtype, vLLM in the compute dtype."""
    for engine, dtype in (("llama.cpp", "fp16"), ("vllm", "bf16")):
        found = kvplan.estimate("llama-3.1-8b", "rtx-4090", engine=engine)
        assert found.scenario.kv_dtype == dtype
    assert kvplan.estimate("llama-3.1-8b", "rtx-4090", engine="llama.cpp", kv_dtype="q8_0").scenario.kv_dtype == "q8_0"


def test_engines_keep_recurrent_states_in_their_own_format():
    """Qwen3-Next's config names none: 36 layers × 524,288 elements in bf16 under vLLM, fp32 under SGLang."""
    kept = {
        engine: kvplan.estimate("qwen3-next-80b-a3b", "h200", tp=2, engine=engine).model.state_bytes_per_sequence_model
        for engine in ("vllm", "sglang")
    }
    assert kept["sglang"] - kept["vllm"] == 36 * 524_288 * 2
    named = kvplan.estimate("qwen3.5-27b", "h200", engine="sglang")  # its config says float32
    assert not any("recurrent state in" in line for line in named.assumptions)


def test_gemma_4_takes_a_video_whole():
    """vLLM 0.25.1 on an L40S held 9.81 sequences of 32,768 tokens in 12.75 GiB, as 2496 batched tokens give."""
    found = kvplan.estimate("google/gemma-4-26B-A4B", "l40s", engine="vllm@0.25.1", dtype="fp8", context=32_768)
    pool = found.memory.kv_pool_bytes / 2**30
    assert found.capacity.max_concurrency * 12.75 / pool == pytest.approx(9.81, rel=0.001)
    assert any("2496" in line for line in found.assumptions)
    small = kvplan.estimate("gemma-4-31b-it", "h100-sxm", tp=2, max_num_batched_tokens=2048)
    assert any("--max-num-batched-tokens 2496" in line for line in small.warnings)


def test_a_draft_model_brings_weights_and_cache():
    """Llama-3.2-1B beside Llama-3.1-8B: 16 layers × 2 × 8 × 64 × 2 bytes more for each token."""
    plain = kvplan.estimate("llama-3.1-8b", "h100-sxm")
    drafted = kvplan.estimate("llama-3.1-8b", "h100-sxm", draft_model="llama-3.2-1b", speculative_tokens=4)
    assert (
        drafted.memory.weights_bytes - plain.memory.weights_bytes
        == kvplan.load_model("llama-3.2-1b").summary()["weights_bytes"]
    )
    assert drafted.memory.kv_bytes_per_token - plain.memory.kv_bytes_per_token == 16 * 2 * 8 * 64 * 2
    assert drafted.latency == plain.latency  # how many guesses are right is not known
    assert any("memory only" in line for line in drafted.assumptions)


def test_prediction_layers_are_counted_when_asked_for():
    plain, guessing = (kvplan.estimate("deepseek-v3", "h200", tp=8, speculative_tokens=n) for n in (0, 1))
    assert guessing.memory.kv_bytes_per_token - plain.memory.kv_bytes_per_token == 576 * 2
    assert guessing.memory.weights_bytes > plain.memory.weights_bytes
    with pytest.raises(kvplan.UsageError, match=r"llama-3\.1-8b declares no"):
        kvplan.estimate("llama-3.1-8b", "h100-sxm", speculative_tokens=1)


def test_lora_slots_take_room_at_start():
    plain, slots = (kvplan.estimate("llama-3.1-8b", "h100-sxm", max_loras=n, max_lora_rank=64) for n in (0, 4))
    assert slots.memory.weights_bytes - plain.memory.weights_bytes == 4 * 64 * 32 * 2 * (
        2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336)
    )


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["--speculative-tokens", "1", "-m", "deepseek-v3", "-g", "h200", "--tp", "8"], '"method": "mtp"'),
        (["--draft-model", "llama-3.2-1b", "-m", "llama-3.1-8b", "-g", "h100"], '"model": "meta-llama/Llama-3.2-1B"'),
        (["--max-loras", "4", "-m", "llama-3.1-8b", "-g", "h100"], "--enable-lora"),
        (["--enforce-eager", "-m", "llama-3.1-8b", "-g", "h100"], "--enforce-eager"),
        (["--dtype", "fp32", "-m", "llama-3.1-8b", "-g", "h100"], "--dtype float32"),
        (["--dtype", "fp32", "-m", "olmo-2-1124-7b", "-g", "h100", "-e", "sglang"], "--dtype float32"),
        (["--n-gpu-layers", "16", "-e", "llama.cpp", "-m", "llama-3.1-8b", "-g", "rtx-4090"], "--n-gpu-layers 16"),
    ],
)
def test_the_serve_command_says_what_was_planned(asked, words):
    shown = CliRunner().invoke(app, ["estimate", *asked, "--serve-command"]).stdout
    assert words in shown


def test_an_encoder_says_that_it_generates_nothing():
    found = kvplan.estimate("bert-base-uncased", "l4", input_tokens=511, output_tokens=1)
    assert any("generates nothing" in line for line in found.warnings)
    shown = CliRunner().invoke(app, ["estimate", "-m", "bert-base-uncased", "-g", "l4", "--input-tokens", "128"])
    assert "nothing is cached, 256 sequences of 384 tokens run at once" in shown.stdout
    for name in ("llama-3-8b", "t5-large", "mamba-2.8b-hf"):
        decoder = kvplan.estimate(name, "h100-sxm", input_tokens=128, output_tokens=128)
        assert not any("generates nothing" in line for line in decoder.warnings)


def test_lengths_above_the_limit_are_answered_with_some_that_fit():
    with pytest.raises(kvplan.UsageError) as caught:
        kvplan.estimate("bert-base-uncased", "l4")
    assert "--input-tokens 256 --output-tokens 256" in caught.value.hint
    kvplan.estimate("bert-base-uncased", "l4", input_tokens=256, output_tokens=256)


def test_a_slice_says_what_the_fraction_is_of():
    asked = ["estimate", "-m", "llama-3.1-8b", "-g", "a100-80g", "--gpu-memory-gib", "39.5", "--serve-command"]
    shown = CliRunner().invoke(app, asked).stdout
    assert "--gpu-memory-utilization 0.92" in shown
    assert "it is 0.459 of its 79.25 GiB" in shown


def test_context_parallelism_divides_what_tensor_parallelism_copies():
    """GLM-5.2 with fp8 rows and its MTP layer on four ranks: a log has 1.686 GiB for 132,096 tokens at dcp 4."""
    copied, divided = (kvplan.estimate("deepseek-v3", "h200", tp=8, dcp=n) for n in (1, 8))
    assert copied.memory.kv_bytes_per_token == 8 * divided.memory.kv_bytes_per_token
    assert divided.capacity.max_concurrency == pytest.approx(8 * copied.capacity.max_concurrency, rel=0.001)
    glm = kvplan.load_model("nvidia/GLM-5.2-NVFP4")
    found = kvplan.estimate(
        glm, "h200", tp=4, dcp=4, kv_dtype="fp8", speculative_tokens=1 if glm.mtp_layers else 0, context=131_072
    )
    assert found.memory.kv_bytes_per_token == pytest.approx(1.686 * 2**30 / 132_096, rel=0.02)
    with pytest.raises(kvplan.UsageError, match="dcp: 2 does not divide 1, the copies"):
        kvplan.estimate("llama-3.1-8b", "h100-sxm", tp=2, dcp=2)


def test_an_unknown_type_is_told_how_it_may_be_read(tmp_path):
    config = {"model_type": "brandnew", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 512}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    refused = CliRunner().invoke(app, ["models", "show", str(path)])
    assert refused.exit_code == 4
    assert "--assume-plain" in refused.stderr
    shown = CliRunner().invoke(app, ["models", "show", str(path), "--assume-plain", "--json"])
    assert "read as a plain decoder" in json.loads(shown.stdout)["warnings"][0]


@pytest.mark.parametrize(
    ("ask", "words", "hint"),
    [
        (lambda: kvplan.estimate("llama-3-8b", "l40s", max_model_len=8192), "no argument 'max_model_len'", "context"),
        (lambda: kvplan.estimate("llama-3-8b", "l40s", concurency=8), "no argument 'concurency'", "concurrency"),
        (lambda: kvplan.needs("llama-3-8b", "l40s", tensor_parallel_size=2), "needs: no argument", "did you mean tp?"),
        (lambda: kvplan.plan("llama-3-8b", gpu="l40s", rate=1), "plan: no argument 'gpu'", "gpus"),
        (lambda: kvplan.compare(model="llama-3-8b", gpu="l40s", tpp=2, vary={"tp": [1, 2]}), "no argument 'tpp'", "tp"),
        (lambda: kvplan.compare("llama-3-8b"), "'llama-3-8b' is not name:key=value", "--scenario small:"),
        (lambda: kvplan.needs("llama-3-8b", "l40s", context="32K"), "context: '32K' is not a whole number", None),
        (lambda: kvplan.estimate("llama-3-8b", "l40s", tp="2"), "tp: '2' is not a whole number", None),
        (lambda: kvplan.estimate("llama-3-8b", "l40s", concurrency=[1, 2]), "[1, 2]' is not a whole number", "sweep"),
        (lambda: kvplan.estimate("llama-3-8b", "l40s", max_num_seqs=8.5), "max_num_seqs: '8.5' is not a whole", None),
        (lambda: kvplan.estimate("llama-3-8b", "l40s", tp=True), "tp: 'True' is not a whole number", None),
        (lambda: kvplan.plan("llama-3-8b", "l40s", max_gpus="8"), "max_gpus: '8' is not a whole number", None),
        (lambda: kvplan.sweep("llama-3-8b", "l40s", concurrency=["a", 2]), "concurrency: 'a' is not a whole", None),
        (lambda: kvplan.sweep("llama-3-8b", "l40s", tp=["2"]), "tp: '2' is not a whole number", None),
        (lambda: kvplan.estimate("llama-3-8b", "l40s", dtype=8), "dtype: '8' is not text", None),
        (lambda: kvplan.estimate("llama-3-8b", "l40s", kv_dtype=""), "kv_dtype: '' is not text", None),
        (lambda: kvplan.estimate("llama-3-8b", "l40s", enforce_eager="no"), "enforce_eager: 'no' is not true", None),
        (lambda: kvplan.sweep("llama-3-8b", "l40s", tp=[1], axes=5), "axes: '5' is not names with values", None),
        (lambda: kvplan.plan("llama-3-8b", "l40s", dtypes=[], **LOAD), "dtypes: no values", None),
        (lambda: kvplan.plan("llama-3-8b", "l40s", kv_dtypes="x", **LOAD), "unknown cache format 'x'", "known: "),
        (lambda: kvplan.plan("llama-3-8b", "l40s", slo_at="p1", **LOAD), "slo_at: 'p1'", None),
        (lambda: kvplan.explain_log(LOG, tensor_parallel_size=2), "explain_log: no argument", "did you mean"),
        (lambda: kvplan.estimate("", "l40s"), "model: must be a name, a path or fields, not ''", None),
        (lambda: kvplan.validate(5), "source: '5' is not a path, or rows", None),
    ],
)
def test_arguments_that_are_not_understood_are_told_by_name(ask, words, hint):
    with pytest.raises(kvplan.UsageError) as caught:
        ask()
    assert words in str(caught.value)
    assert (hint or "") in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("Estimate", "estimate"),
        ("Needs", "needs"),
        ("Comparison", "compare"),
        ("Sweep", "sweep"),
        ("Plan", "plan"),
        ("Validation", "validate"),
        ("Calibration", "calibrate"),
        ("LogExplanation", "explain-log"),
    ],
)
def test_every_answer_is_plain_data_under_its_schema(name, schema):
    kind = getattr(kvplan, name)
    assert kind.schema == f"kvplan.{schema}/1"
    assert callable(kind.model_dump)
    assert callable(kind.model_dump_json)


def _asks():
    """Each public function with a question that it answers, and the keywords that it takes."""
    deployed = {"model": "llama-3-8b", "gpu": "l40s"}
    rows = [{**deployed, "tpot_ms": 20.0}]
    fields = inspect.signature(kvplan.estimate).parameters
    for ask, question, more in (
        (kvplan.estimate, deployed, ()),
        (kvplan.needs, deployed, ()),
        (kvplan.compare, {**deployed, "vary": {"max_loras": [0, 1]}}, fields),
        (kvplan.sweep, {**deployed, "axes": {"max_loras": [0, 1]}}, fields),
        (kvplan.plan, {"model": "llama-3-8b", "gpus": "l40s", **LOAD}, ()),
        (kvplan.validate, {"source": rows}, ()),
        (kvplan.calibrate, {"source": []}, ()),
        (kvplan.explain_log, {"source": LOG, "gpu": "h100-sxm"}, fields),
        (kvplan.load_model, {"model": "llama-3-8b"}, ()),
        (kvplan.load_gpu, {"gpu": "l40s"}, ()),
        (kvplan.load_engine, {"engine": "vllm"}, ()),
        (kvplan.load_scenario, {"path": ROOT / "examples" / "chat.yaml"}, ()),
    ):
        for name in dict.fromkeys([*inspect.signature(ask).parameters, *more]):
            if name not in {"fields", "base", "options"}:
                yield pytest.param(ask, question, name, id=f"{ask.__name__}-{name}")


@pytest.mark.parametrize(("ask", "question", "name"), [*_asks()])
def test_whatever_an_argument_is_it_is_answered_or_told(ask, question, name):
    """A value of any kind is taken or refused with kvplan's own error, never with one from within."""
    pytest.importorskip("numpy")
    for value in (None, object(), b"x", "x", "", 5, 0, [], [object()], ["x"], {1: 2}, (1.5,), Path("x")):
        with contextlib.suppress(kvplan.KvplanError):
            ask(**{**question, name: value})


def test_equal_numbers_are_one_question():
    """Whole floats and NumPy's numbers are answered, and written, as plain ones."""
    numpy = pytest.importorskip("numpy")
    plain = kvplan.estimate("llama-3-8b", "l40s", tp=2, concurrency=8, gpu_memory_utilization=0.9)
    for two, eight in ((2.0, 8.0), (numpy.int64(2), numpy.float32(8))):
        found = kvplan.estimate(
            "llama-3-8b", "l40s", tp=two, concurrency=eight, gpu_memory_utilization=numpy.float64(0.9)
        )
        assert found.model_dump_json() == plain.model_dump_json()


def test_none_is_the_default_of_every_argument():
    asked = {name: None for name in inspect.signature(kvplan.estimate).parameters if name not in {"model", "gpu"}}
    assert kvplan.estimate("llama-3-8b", "l40s", **asked) == kvplan.estimate("llama-3-8b", "l40s")


def test_versions_beyond_those_that_are_known_are_said():
    """Between two known versions the rules of the older hold, which its name says; outside them it is a guess."""

    def said(engine):
        warnings = kvplan.estimate("llama-3-8b", "l40s", engine=engine).warnings
        return [line for line in warnings if "rules are known" in line]

    oldest, *_, newest = api.engine_versions("vllm")
    for asked, used in (("0.2", oldest), ("9.42", newest)):
        words = f"vllm@{asked} lies outside the versions whose rules are known: those of {used}, the nearest, are used"
        for engine in (f"vllm@{asked}", kvplan.load_engine(f"vllm {asked}")):
            assert said(engine) == [words]
    for engine in ("vllm", "vllm@0.19.1", f"vllm@{newest}.3", "llama.cpp@7000", "ideal"):
        assert not said(engine)


def test_a_scenario_file_is_an_estimates_keywords(tmp_path):
    path = tmp_path / "chat.yaml"
    path.write_text("model: llama-3.1-8b\ngpu: l40s\nkv-dtype: fp8\ncontext: 8k\n", encoding="utf-8")
    assert kvplan.load_scenario(path) == {"model": "llama-3.1-8b", "gpu": "l40s", "kv_dtype": "fp8", "context": 8000}
    assert kvplan.estimate(**kvplan.load_scenario(path)).scenario.context == 8000
