import json

import pytest

from kvplan.calibration.record import length_factor
from kvplan.calibration.records import read_records, records_from_rows
from kvplan.calibration.validate import validate
from kvplan.errors import SpecError, UsageError


def written(tmp_path, text, name="records.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_measured_rows_of_the_contract(data):
    records = read_records(data / "measurements.csv").records
    first = records[0]
    assert (first.id, first.model, first.gpu, first.engine_name) == (
        "memory-h100",
        "llama-3.1-8b",
        "h100-sxm",
        "vllm@0.19.0",
    )
    assert first.measured == {
        "weights_gib": 14.99,
        "activation_gib": 1.89,
        "kv_pool_gib": 58.11,
        "kv_pool_tokens": 476016.0,
        "max_concurrency": 58.11,
    }
    assert first.scenario()[0]["context"] == 8192
    assert first.scenario()[0]["gpu_memory_gib"] == 79.19


def test_empty_cells_take_the_defaults(tmp_path):
    record = read_records(written(tmp_path, "model,gpu,tp,engine\nm,g,,\n")).records[0]
    assert (record.tp, record.engine, record.concurrency, record.input_tokens, record.output_tokens) == (
        1,
        "vllm",
        1,
        1024,
        256,
    )
    assert record.id == "row-2"


def test_unknown_columns_and_prec_are_ignored(tmp_path):
    record = read_records(written(tmp_path, "model,gpu,prec,shoe_size\nm,g,fp4,46\n")).records[0]
    assert record.dtype is None


def test_unknown_columns_that_stand_for_missing_ones_are_told(tmp_path):
    """Names as benchmarks write them, beside a remark that is nobody's business."""
    text = "model,gpu,input,output,ttft,tpot,tokens_per_second,remark\nm,g,1,2,3,4,5,x\n"
    (note,) = read_records(written(tmp_path, text)).notes
    assert note == (
        "columns that are not read: input (is it input_tokens?), output (is it output_tokens?), "
        "tokens_per_second (is it output_tokens_per_second?), tpot (is it tpot_ms?), ttft (is it ttft_ms?)"
    )
    assert read_records(written(tmp_path, "model,gpu,ttft,ttft_ms,remark\nm,g,3,30,x\n")).notes == ()
    assert read_records(written(tmp_path, "model,gpu,ttft\nm,g,\n")).notes == ()


def test_times_in_seconds_are_doubted(tmp_path):
    text = "model,gpu,ttft_ms,tpot_ms\nm,g,0.045,0.009\nm,g,45,9\n"
    assert read_records(written(tmp_path, text)).notes == (
        "ttft_ms is below 1 ms in 1 of 2 rows: is it in seconds?",
        "tpot_ms is below 0.05 ms in 1 of 2 rows: is it in seconds?",
    )


@pytest.mark.parametrize("sign", [";", "\t", "|"])
def test_a_table_that_commas_do_not_divide_says_so(sign, tmp_path):
    text = "model,gpu,ttft_ms\nm,g,30\n".replace(",", sign)
    with pytest.raises(SpecError, match=r"columns are divided by .*: a comma is needed"):
        read_records(written(tmp_path, text))


def test_jsonl_says_the_same_as_csv(tmp_path):
    line = json.dumps(
        {"id": "a", "model": "m", "gpu": "g", "tp": 2, "enforce_eager": True, "ttft_ms": 12.5, "dp": None}
    )
    record = read_records(written(tmp_path, f"{line}\n{line}\n", "r.jsonl")).records[1]
    table = read_records(written(tmp_path, "id,model,gpu,tp,enforce_eager,ttft_ms,dp\na,m,g,2,true,12.5,\n"))
    assert record.line == 2
    assert (record.tp, record.enforce_eager, record.measured) == (
        table.records[0].tp,
        table.records[0].enforce_eager,
        table.records[0].measured,
    )


def test_a_json_list_is_a_table_too(tmp_path):
    rows = [{"model": "m", "gpu": "g", "tpot_ms": 1}, {"model": "n", "gpu": "g"}]
    records = read_records(written(tmp_path, json.dumps(rows, indent=1), "r.json")).records
    assert [record.model for record in records] == ["m", "n"]


def test_whole_numbers_written_by_data_frames(tmp_path):
    assert read_records(written(tmp_path, "model,gpu,tp\nm,g,4.0\n")).records[0].tp == 4
    rows = [{"model": "m", "gpu": "g", "tp": 4.0, "ttft_ms": float("nan")}]
    record = records_from_rows(rows).records[0]
    assert (record.tp, record.measured) == (4, {})


def test_every_problem_is_told_in_one_run(tmp_path):
    path = written(tmp_path, "model,gpu,tp,ttft_ms\nm,g,0,1\n,g,1,-2\nm,g,1,nan\nm,g\n")
    with pytest.raises(SpecError) as caught:
        read_records(path)
    assert str(caught.value).splitlines() == [
        f"{path}:2: tp: must be a whole number from 1 to 10^12, not '0'",
        f"{path}:3: ttft_ms: must be a number from 1e-12 to 1e15, not '-2'",
        f"{path}:3: model: is missing; give the column or the option of that name",
        f"{path}:4: ttft_ms: must be a number from 1e-12 to 1e15, not 'nan'",
        f"{path}:5: 2 cells under a header of 4",
    ] or sorted(str(caught.value).splitlines()) == sorted(
        [
            f"{path}:5: 2 cells under a header of 4",
            f"{path}:2: tp: must be a whole number from 1 to 10^12, not '0'",
            f"{path}:3: ttft_ms: must be a number from 1e-12 to 1e15, not '-2'",
            f"{path}:3: model: is missing; give the column or the option of that name",
            f"{path}:4: ttft_ms: must be a number from 1e-12 to 1e15, not 'nan'",
        ]
    )


def test_many_problems_are_counted_not_listed(tmp_path):
    path = written(tmp_path, "model,gpu,tp\n" + "m,g,x\n" * 500)
    with pytest.raises(SpecError) as caught:
        read_records(path)
    lines = str(caught.value).splitlines()
    assert len(lines) == 51
    assert lines[-1] == "… and 450 more"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "no rows"),
        ("model,gpu\n", "no rows"),
        ("model,model\nm,m\n", "column given twice"),
        ('model,gpu\n"m,g\n', "not CSV"),
        (b"model,gpu\n\xff\xfe,g\n", "not UTF-8"),
        ("[1, 2]", "not a JSON object"),
        ('{"model": ', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ('{"model": "m", "gpu": "g", "tp": ' + "9" * 5000 + "}", "not JSON"),
        ('{"model": ["m"], "gpu": "g"}', "must be one plain value"),
        ("model,gpu\nm,\0\n", "NUL"),
        (",".join(f"c{n}" for n in range(600)) + "\n", "more than 512 columns"),
    ],
)
def test_broken_files_name_the_rule(tmp_path, text, rule):
    with pytest.raises(SpecError, match=rule):
        read_records(written(tmp_path, text, "broken"))


def test_a_file_that_is_not_there():
    with pytest.raises(UsageError, match="cannot read"):
        read_records("no-such-file.csv")


@pytest.mark.parametrize("model", ["/etc/passwd", "../secret.json", "a/../../b.json", "~/config.json", "C:\\x.json"])
def test_a_table_reads_nothing_outside_its_folder(tmp_path, model):
    with pytest.raises(SpecError, match="inside the folder"):
        read_records(written(tmp_path, f"model,gpu\n{model},g\n"))


def test_a_path_is_relative_to_the_file(tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "m.json").write_text("{}")
    record = read_records(written(tmp_path, "model,gpu\nconfigs/m.json,g\n")).records[0]
    assert record.files == {"model": tmp_path / "configs" / "m.json"}


def test_lengths_by_distribution_and_the_burst_of_a_closed_loop(tmp_path):
    path = written(
        tmp_path,
        "model,gpu,input_tokens,output_tokens,concurrency,length_distribution,tpot_ms\n"
        "m,g,1000,500,8,uniform 0.8-1.0 of nominal,9\n",
    )
    arguments, assumptions = read_records(path).records[0].scenario()
    assert (arguments["input_tokens"], arguments["output_tokens"]) == (900, 450)
    assert arguments["context"] == 1500  # the nominal lengths are what the engine was started for
    assert arguments["benchmark_requests"] == 80
    assert len(assumptions) == 2


@pytest.mark.parametrize("text", ["zipf", "uniform 1.0-0.5 of nominal", "uniform 0-5 of nominal"])
def test_a_distribution_that_is_not_understood_is_told(text):
    factor, told = length_factor(text)
    assert factor is None
    assert told


def test_fixed_lengths_are_no_assumption():
    assert length_factor("fixed") == (None, ())
    assert length_factor(None) == (None, ())


def test_one_expert_parallel_rank_means_none(tmp_path):
    arguments, _ = read_records(written(tmp_path, "model,gpu,tp,ep\nm,g,4,1\n")).records[0].scenario()
    assert arguments["ep"] is None


def test_options_fill_only_what_is_empty(tmp_path):
    path = written(tmp_path, "model,gpu,tp\nm,,2\nn,l4,\n")
    first, second = read_records(path, defaults={"gpu": "h100-sxm", "tp": 8}).records
    assert (first.gpu, first.tp, second.gpu, second.tp) == ("h100-sxm", 2, "l4", 8)


def test_a_prompt_timed_alone_needs_no_room_for_an_answer(tmp_path):
    text = "model,gpu,input_tokens,output_tokens,concurrency,ttft_ms,tpot_ms\nm,g,4096,4096,1,9,\nm,g,4096,4096,2,9,\n"
    alone, busy = read_records(written(tmp_path, text)).records
    assert (alone.scenario()[0]["output_tokens"], alone.context) == (1, 4097)
    assert (busy.scenario()[0]["output_tokens"], busy.context) == (4096, 8192)


@pytest.mark.parametrize(
    ("words", "tokens", "in_step"),
    [
        ("", (1024, 100), True), ("", (8000, 1), True), ("", (282, 352), False), ("", (256, 348), False),
        ("fixed", (282, 352), True), ("mixed", (1024, 128), False), ("lognormal", (1024, 128), False),
    ],
)  # fmt: skip
def test_means_of_mixed_lengths_are_not_prompts_that_come_together(tmp_path, words, tokens, in_step):
    """Benchmarks of made-up prompts have round lengths; 282 and 352 are means, whose requests keep no step."""
    text = "model,gpu,input_tokens,output_tokens,concurrency,length_distribution,tpot_ms\n"
    [record] = read_records(written(tmp_path, f"{text}m,g,{tokens[0]},{tokens[1]},8,{words},20\n")).records
    arguments, assumed = record.scenario()
    assert arguments["equal_lengths"] is in_step
    assert any("come together" in one for one in assumed) is in_step
    assert any("mixed lengths" in one for one in assumed) is not in_step


def test_a_tpot_alone_of_several_at_once_is_a_decode_step_under_llama_cpp(tmp_path, planner):
    """llama-batched-bench takes all prompts first: 4 × 8,192 tokens before 32 steps would be most of a closed loop."""
    text = "model,gpu,engine,input_tokens,output_tokens,concurrency,ttft_ms,tpot_ms\n"
    rows = ("llama.cpp,8192,32,4,,9", "llama.cpp,8192,32,1,,9", "llama.cpp,8192,32,4,5,9", "vllm,8192,32,4,,9")
    path = written(tmp_path, text + "".join(f"llama-3.1-8b,rtx-6000-ada,{row}\n" for row in rows))
    assert [one.is_decode_alone for one in read_records(path).records] == [True, False, False, False]
    batch, _, loop, _ = validate(path, planner=planner).rows
    assert loop.predicted["tpot_ms"] > 3 * batch.predicted["tpot_ms"]
