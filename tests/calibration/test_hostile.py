"""Readers meet any bytes with an answer or a KvplanError, and soon."""

import contextlib
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvplan.calibration.logs import read_log
from kvplan.calibration.records import read_records
from kvplan.errors import KvplanError

#: A second of the process's own time, whatever else the machine does.
FAST_S = 1.0
COMMON = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
PIECES = st.sampled_from(
    [
        b"model,gpu,tp,ttft_ms\n",
        b"llama-3-8b,l4,1,10\n",
        b'{"model":"m","gpu":"g"}\n',
        b'{"completed":3,"total_input_tokens":9,"mean_ttft_ms":1,"model_id":"m"}\n',
        b'{"total_time_ms":5,"prompt_tokens":1,"completion_tokens":2,"time_to_first_token_ms":1}',
        b'{"time_to_first_token":{"avg":1e999}}',
        b"total_time_ms,prompt_tokens,completion_tokens,timestamp\n9,9,9,1e300\n",
        b"Available KV cache memory: 9 GiB\n",
        b"Maximum concurrency for 8,192 tokens per request: 9x\n",
        b"with config: model='",
        b"Load weight end.",
        b"CUDA0 KV buffer size = 1 MiB\n",
        b"\x1b[31m",
        b"\x1b]0;",
        b'"',
        b",",
        b"\n",
        b"[",
        b"{",
        b"NaN",
        b"\x00",
        b"\xff",
        b"9" * 400,
        "模型×".encode(),
    ]
)
BYTES = st.one_of(st.binary(max_size=400), st.lists(PIECES | st.binary(max_size=6), max_size=24).map(b"".join))


def answers(read, path, content):
    path.write_bytes(content)
    start = time.process_time()
    with contextlib.suppress(KvplanError):
        read(path)
    assert time.process_time() - start < FAST_S


@COMMON
@given(content=BYTES)
def test_records_from_any_bytes(tmp_path, content):
    answers(lambda path: read_records(path, defaults={"gpu": "l4"}), tmp_path / "r", content)


@COMMON
@given(content=BYTES)
def test_logs_from_any_bytes(tmp_path, content):
    answers(read_log, tmp_path / "l", content)


@COMMON
@given(cut=st.integers(0, 2500), at=st.integers(0, 2500), put=st.binary(max_size=4))
def test_good_files_cut_and_changed(tmp_path, data, cut, at, put):
    for name, read in (
        ("measurements.csv", read_records),
        ("logs/vllm_0.19.log", read_log),
        ("logs/llama_cpp.log", read_log),
    ):
        good = (data / name).read_bytes()
        answers(read, tmp_path / "x", good[:at] + put + good[at + len(put) : len(good) - cut])


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 1_000_000,
        b'{"a":' * 200_000,
        b"[[]," * 500_000,
        b"," * 2_000_000,
        b'"' * 1_000_001,
        b"\n" * 2_000_000,
        b"model,gpu\n" + b"m,g\n" * 20_000,
        b"\x1b[" * 500_000,
        b"NVIDIA " * 200_000,
        b"Graph capturing finished in " * 50_000,
    ],
    ids=lambda content: repr(content[:12]),
)
def test_large_and_repetitive_files(tmp_path, content):
    answers(read_records, tmp_path / "r", content)
    answers(read_log, tmp_path / "l", content)
