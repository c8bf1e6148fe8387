import pytest

from kvplan.calibration.device_names import device_id, device_ids
from kvplan.calibration.logs import parse_log, read_log
from kvplan.errors import SpecError, UsageError
from kvplan.specs import registry

FIGURES = {
    "vllm_0.19": (
        "vllm",
        {
            "weights_gib": 14.99,
            "activation_gib": 1.89,
            "runtime_gib": 0.25,
            "kv_pool_gib": 58.11,
            "kv_pool_tokens": 476016,
            "max_concurrency": 58.11,
            "graph_gib": 0.91,
            "budget_gib": 75.23,
            "total_gpu_gib": 79.19,
            "free_at_start_gib": 78.68,
        },
    ),
    "vllm_0.6": (
        "vllm",
        {
            "weights_gib": 14.9888,
            "activation_gib": 17.06 - 14.9888,
            "runtime_gib": 0.35,
            "kv_pool_gib": 3.81,
            "kv_blocks": 1952,
            "max_concurrency": 1.56,
            "total_gpu_gib": 23.58,
        },
    ),
    "sglang": ("sglang", {"kv_pool_gib": 16.46, "kv_pool_tokens": 367404, "block_tokens": 1}),
    "tensorrt_llm": (
        "tensorrt-llm",
        {
            "kv_pool_gib": 16.05,
            "kv_pool_tokens": 263008,
            "kv_blocks": 8219,
            "block_tokens": 32,
            "total_gpu_gib": 31.84,
            "available_gib": 17.83,
        },
    ),
    "llama_cpp": (
        "llama.cpp",
        {
            "weights_gib": 4403.49 / 1024,
            "kv_pool_gib": 1.0,
            "activation_gib": 258.5 / 1024,
            "file_gib": 4.58,
            "gpu_layers": 33,
        },
    ),
    "vllm_refused": ("vllm", {"kv_pool_gib": 5.59, "kv_needed_gib": 10.12, "longest_context": 122080}),
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_of_each_engine(data, name):
    engine, figures = FIGURES[name]
    log = read_log(data / "logs" / f"{name}.log")
    assert log.engine == engine
    assert {key: figure.value for key, figure in log.figures.items()} == pytest.approx(figures)


def test_settings_of_vllm(data):
    facts = read_log(data / "logs" / "vllm_0.19.log").facts
    assert facts["version"] == "0.19.0"
    assert facts["model"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert (facts["max_model_len"], facts["max_num_seqs"], facts["max_num_batched_tokens"]) == ("8192", "1024", "8192")
    assert (facts["gpu_memory_utilization"], facts["tp"], facts["enforce_eager"]) == ("0.95", "1", "False")


def test_settings_of_a_namespace_and_a_command_line():
    log = parse_log(
        "INFO api_server.py] args: Namespace(host=None, model='org/M-7B', tensor_parallel_size=4, max_num_seqs=64)\n"
        "$ vllm serve org/M-7B --max-model-len 4096 --gpu-memory-utilization=0.85 --kv-cache-dtype fp8\n"
        "INFO Available KV cache memory: 1.00 GiB\n"
    )
    assert (log.facts["tp"], log.facts["max_num_seqs"], log.facts["model"]) == ("4", "64", "org/M-7B")
    assert (log.facts["max_model_len"], log.facts["gpu_memory_utilization"], log.facts["kv_dtype"]) == (
        "4096",
        "0.85",
        "fp8",
    )


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("Loading model weights took 67.7229 GB", "weights_gib", 67.7229),
        ("model weights take 2.88GiB; non_torch_memory takes 0.05GiB; PyTorch activation", "weights_gib", 2.88),
        ("PyTorch activation peak memory takes 1.40GiB; the rest", "activation_gib", 1.40),
        ("the rest of the memory reserved for KV Cache is 15.52GiB.", "kv_pool_gib", 15.52),
        ("# CUDA blocks: 36332, # CPU blocks: 9362", "kv_blocks", 36332),
        ("can use total_gpu_memory (22.06GiB) x gpu_memory_utilization (0.90) = 19.85GiB", "budget_gib", 19.85),
        ("Actual usage is 39.98 GiB for consumed memory (weights + non-torch), 4.04 GiB for", "consumed_gib", 39.98),
        ("Setting attention block size to 640 tokens to ensure that attention page", "block_tokens", 640),
        ("Estimated CUDA graph memory: 6.24 GiB total", "graph_estimate_gib", 6.24),
        ("9.5 GiB KV cache is needed, max seq len (131072), 9.5 GiB KV cache is needed", "kv_needed_gib", 9.5),
        ("max_num_seqs exceeds available Mamba cache blocks (161)", "state_blocks", 161),
        (
            "Load weight end. elapsed=7.5 s, type=X, quant=fp8, avail mem=29.01 GB, mem usage=82.97 GB.",
            "weights_gib",
            82.97,
        ),
        (
            "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 159552, K size: 1.83 GB, V size: 1.83 GB",
            "kv_pool_gib",
            3.66,
        ),
        ("KV Cache is allocated. #tokens: 975424, KV size: 43.67 GB", "kv_pool_gib", 43.67),
        ("Capture cuda graph end. Time elapsed: 5.86 s. mem usage=0.42 GB. avail mem=9.1 GB.", "graph_gib", 0.42),
        ("conv_state size: 0.09GB, ssm_state size: 6.46GB", "ssm_state_gib", 6.46),
        ("[TensorRT-LLM][INFO] Allocate 69524783104 bytes for k/v cache.", "kv_pool_gib", 64.75),
        (
            "Memory used after loading model weights (inside torch) in memory usage profiling: 63.52 GiB",
            "weights_gib",
            63.52,
        ),
        ("Memory dynamically allocated during inference (inside torch) in memory: 0.85 GiB", "activation_gib", 0.85),
        ("llama_memory_recurrent:      CUDA0 RS buffer size =   512.00 MiB", "state_gib", 0.5),
        ("llm_load_tensors:      CUDA0 buffer size = 13989.53 MiB", "weights_gib", 13.6617),
    ],
)
def test_wordings_by_version(line, name, value):
    assert parse_log(line).figures[name].value == pytest.approx(value, rel=1e-4)


def test_ranks_count_by_the_fullest_and_the_smallest_pool():
    log = parse_log(
        "(Worker_TP0) Model loading took 10.5 GiB\n(Worker_TP1) Model loading took 10.9 GiB\n"
        "(Worker_TP0) Available KV cache memory: 60.2 GiB\n(Worker_TP1) Available KV cache memory: 60.0 GiB\n"
    )
    assert (log.figures["weights_gib"].value, log.figures["kv_pool_gib"].value) == (10.9, 60.0)


def test_buffers_of_several_cards_and_caches():
    log = parse_log(
        "llama_kv_cache:  CUDA0 KV buffer size =  1536.00 MiB\nllama_kv_cache:  CUDA1 KV buffer size =  3584.00 MiB\n"
        "llama_kv_cache:  CUDA1 KV buffer size =  512.00 MiB\nllama_kv_cache:  CUDA_Host KV buffer size = 9999.00 MiB\n"
    )
    assert log.figures["kv_pool_gib"].value == 4.0
    assert log.facts["gpu_devices"] == "2"


def test_only_the_last_start_counts():
    first = "INFO vLLM API server version 0.11.0\nAvailable KV cache memory: 1.00 GiB\nCUDA out of memory\n"
    log = parse_log(first + "INFO vLLM API server version 0.11.0\nAvailable KV cache memory: 2.00 GiB\n")
    assert (log.starts, log.figures["kv_pool_gib"].value, log.troubles) == (2, 2.0, [])


def test_escape_sequences_do_not_hide_or_act():
    log = parse_log("\x1b[34mINFO\x1b[0m Available KV \x1b[1mcache\x1b[0m memory: 3.00 GiB \x1b]0;title\x07\n")
    figure = log.figures["kv_pool_gib"]
    assert figure.value == 3.0
    assert "\x1b" not in figure.text


def test_a_file_without_figures(tmp_path):
    path = tmp_path / "x.log"
    path.write_text("hello\nworld\n")
    with pytest.raises(SpecError, match=r"no start-up figures .* in 3 lines"):
        read_log(path)
    with pytest.raises(UsageError):
        read_log(tmp_path)


def test_lines_and_work_are_bounded():
    log = parse_log("x" * 10**6 + "Available KV cache memory: 3.00 GiB\n" + "Load weight end." * 10**6)
    assert log.figures == {}
    assert parse_log(("NVIDIA " * 1000 + "\n") * 3000).cut


@pytest.mark.parametrize(
    ("text", "gpu"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-80g-sxm"),
        ("NVIDIA_H100_80GB_HBM3", "h100-80g-sxm"),
        ("NVIDIA A100-SXM4-80GB", "a100-80g-sxm"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA GeForce RTX 3090", "rtx-3090"),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("NVIDIA GeForce RTX 4080 SUPER", None),
        ("NVIDIA GB10", "dgx-spark"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA A100", None),
        ("NVIDIA", None),
    ],
)
def test_device_names(text, gpu):
    assert device_id(text) == gpu


def test_every_device_name_means_a_bundled_card():
    assert device_ids() <= set(registry.ids("gpu"))


TYPED = """vLLM API server version 0.42.1
Initializing a V1 LLM engine (v0.42.1) with config: model='Qwen/Qwen3-8B', max_seq_len=32768
Model loading  took 15.27GiB memory and 3.1 seconds
Available KV  cache memory : 53.1 GiB
GPU KV cache size:386,000 tokens
Maximum\tconcurrency for 32,768 tokens per request:11.78x
"""


def test_blanks_may_be_missing_or_more_in_what_somebody_typed():
    """Four lines as people type them from memory, of a version that does not exist yet."""
    log = parse_log(TYPED)
    assert (log.engine, log.facts["version"], log.facts["max_model_len"]) == ("vllm", "0.42.1", "32768")
    assert {name: figure.value for name, figure in log.figures.items()} == {
        "weights_gib": 15.27,
        "kv_pool_gib": 53.1,
        "kv_pool_tokens": 386_000,
        "max_concurrency": 11.78,
    }


@pytest.mark.parametrize("name", ["llama_cpp", "sglang", "tensorrt_llm", "vllm_0.19", "vllm_0.6", "vllm_refused"])
def test_blanks_change_no_figure_of_a_real_log(name, data):
    text = (data / "logs" / f"{name}.log").read_text()
    wider = text.replace(" ", "  ")
    figures = {name: figure.value for name, figure in parse_log(text).figures.items()}
    if name != "llama_cpp":  # whose tables of buffers are aligned with blanks
        assert {name: figure.value for name, figure in parse_log(wider).figures.items()} == figures
    tighter = text.replace(" GiB", "GiB").replace(": ", ":")
    read = {name: figure.value for name, figure in parse_log(tighter).figures.items()}
    assert {name: read.get(name) for name in ("kv_pool_tokens", "kv_pool_gib")} == {
        name: figures.get(name) for name in ("kv_pool_tokens", "kv_pool_gib")
    }


def test_a_log_that_an_engine_wrote_without_figures_names_it(tmp_path):
    path = tmp_path / "server.log"
    path.write_text("INFO vLLM API server version 0.19.0\n")
    with pytest.raises(SpecError, match=r"no start-up figures of vllm in 2 lines"):
        read_log(path)
