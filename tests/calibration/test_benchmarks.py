"""Results written here with the keys that the tools' sources write; the figures are invented."""

import json

from kvplan.calibration.records import read_records

VLLM = {
    "date": "20260301-101500",
    "backend": "vllm",
    "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "num_prompts": 200,
    "request_rate": "inf",
    "max_concurrency": 16,
    "duration": 52.1,
    "completed": 200,
    "failed": 3,
    "total_input_tokens": 204800,
    "total_output_tokens": 25600,
    "output_throughput": 491.4,
    "mean_ttft_ms": 81.2,
    "median_ttft_ms": 74.9,
    "mean_tpot_ms": 11.9,
    "mean_e2el_ms": 1600.0,
}
SGLANG = {
    "backend": "sglang",
    "request_rate": 8.0,
    "max_concurrency": 64,
    "completed": 300,
    "total_input_tokens": 307200,
    "total_output_tokens": 76800,
    "output_throughput": 1920.0,
    "total_throughput": 9600.0,
    "mean_e2e_latency_ms": 3900.0,
    "median_ttft_ms": 120.0,
    "mean_tpot_ms": 14.6,
    "concurrency": 29.3,
}
GENAI_PERF = {
    "request_latency": {"unit": "ms", "avg": 900.1},
    "time_to_first_token": {"unit": "ms", "avg": 70.2, "p50": 68.0},
    "inter_token_latency": {"unit": "ms", "avg": 12.4},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 610.0},
    "output_sequence_length": {"unit": "tokens", "avg": 128.0},
    "input_sequence_length": {"unit": "tokens", "avg": 550.0},
    "input_config": {"model": ["m"], "concurrency": 8},
}


def read(tmp_path, *results, **defaults):
    path = tmp_path / "result.json"
    path.write_text("\n".join(json.dumps(result) for result in results))
    return read_records(path, defaults={"gpu": "h100-sxm", **defaults}).records


def test_vllm_bench_serve(tmp_path):
    (record,) = read(tmp_path, VLLM, tp=2)
    assert (record.engine, record.tp, record.input_tokens, record.output_tokens) == ("vllm", 2, 1024, 128)
    assert (record.concurrency, record.benchmark_requests) == (16, 200)
    assert record.measured == {"ttft_ms": 81.2, "tpot_ms": 11.9, "e2e_ms": 1600.0, "output_tokens_per_second": 491.4}
    assert any("3 requests" in note for note in record.notes)


def test_sglang_bench_serving_with_many_rates_in_one_file(tmp_path):
    first, second = read(tmp_path, SGLANG, {**SGLANG, "concurrency": 60.2}, model="m")
    assert (first.engine, first.concurrency, second.concurrency) == ("sglang", 29, 60)
    assert (first.input_tokens, first.output_tokens, first.measured["ttft_ms"]) == (1024, 256, 120.0)


def test_genai_perf(tmp_path):
    (record,) = read(tmp_path, GENAI_PERF, engine="tensorrt-llm")
    assert (record.model, record.engine, record.concurrency) == ("m", "tensorrt-llm", 8)
    assert record.measured["tpot_ms"] == 12.4


def test_an_endless_rate_as_a_bare_word(tmp_path):
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**SGLANG, "request_rate": float("inf"), "model_id": "m"}))
    (record,) = read_records(path, defaults={"gpu": "l4"}).records
    assert record.concurrency == 64
