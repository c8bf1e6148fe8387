import json

import pytest

from kvplan.calibration.records import read_records
from kvplan.errors import SpecError

HEAD = (
    "model,prompt_tokens,completion_tokens,queue_time_ms,time_to_first_token_ms,total_time_ms,tokens_per_second,"
    "finish_reason,http_status,timestamp\n"
)


def test_requests_are_gathered_and_failures_counted_apart(tmp_path):
    path = tmp_path / "requests.csv"
    path.write_text(
        HEAD
        + "m,1000,101,5,100,1100,100,stop,200,2026-11-29T10:00:00Z\n"
        + "m,2000,201,15,200,3200,67,length,200,2026-11-29T10:00:01Z\n"
        + "m,2000,0,,,10,,error,500,2026-11-29T10:00:02Z\n"
        + "m,2000,,,,,,,429,2026-11-29T10:00:02Z\n"
    )
    found = read_records(path, defaults={"gpu": "l4"})
    assert (found.requests, found.failed_requests) == (2, 2)
    record = found.records[0]
    assert (record.input_tokens, record.output_tokens) == (1500, 151)
    assert record.measured["ttft_ms"] == pytest.approx(150)
    assert record.measured["tpot_ms"] == pytest.approx((1000 / 100 + 3000 / 200) / 2)
    assert record.measured["e2e_ms"] == pytest.approx(2150)
    # 4.3 s of requests within the 4.2 s from the first start to the last end
    assert record.concurrency == 1
    assert record.measured["output_tokens_per_second"] == pytest.approx(302 / 4.2)


def test_one_record_per_model(tmp_path):
    row = {"prompt_tokens": 10, "completion_tokens": 5, "time_to_first_token_ms": 20, "total_time_ms": 60}
    lines = [json.dumps({"model": model, **row}) for model in ("a", "b", "a")]
    path = tmp_path / "requests.jsonl"
    path.write_text("\n".join(lines))
    found = read_records(path, defaults={"gpu": "l4", "concurrency": 3})
    assert [record.model for record in found.records] == ["a", "b"]
    assert found.records[0].concurrency == 3


def test_only_failures_leave_nothing_to_predict(tmp_path):
    path = tmp_path / "requests.csv"
    path.write_text(HEAD + "m,10,0,,,10,,error,500,\n")
    with pytest.raises(SpecError, match="1 requests failed"):
        read_records(path, defaults={"gpu": "l4"})


def test_times_must_be_numbers(tmp_path):
    path = tmp_path / "requests.csv"
    path.write_text(HEAD + "m,10,5,,soon,10,,stop,200,\n")
    with pytest.raises(SpecError, match="time_to_first_token_ms: must be a finite number"):
        read_records(path, defaults={"gpu": "l4"})
