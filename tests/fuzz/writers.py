"""What kvplan writes: files where they were asked for and nowhere else, and text that its readers read as it was meant."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import warnings
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import yaml

import kvplan
from kvplan.writing import is_there
from tests.fuzz.guard import broken, check_shown
from tests.fuzz.read_words import run_line
from tests.fuzz.reader import SHARE, shown

_SCENARIO = ["--model", "llama-3-8b", "--gpu", "a100-80g"]
#: Commands that write, by the option that says where, and whether they make folders on the way.
_COMMANDS: tuple[tuple[list[str], bool], ...] = (
    (["estimate", *_SCENARIO, "-o"], False),
    (["estimate", *_SCENARIO, "--json", "--output"], False),
    (["estimate", *_SCENARIO, "--save-scenario"], False),
    (["estimate", *_SCENARIO, "--deploy"], True),
    (["gpus", "list", "h1", "-o"], False),
    (["models", "import", "config.json", "-o"], True),
    (["models", "import", "config.json", "--overwrite", "-o"], True),
)
_DEPLOYED = ("serve.sh", "compose.yaml", "kubernetes.yaml")
_THERE = ("nothing", "file", "folder", "link", "dangling", "loop", "folders above", "file above")
_CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
    "max_position_embeddings": 512, "torch_dtype": "bfloat16",
}  # fmt: skip


# --- where files go --------------------------------------------------------------------------------------------------


def outputs() -> list[bytes]:
    """Paths that mean something of their own, for each command that writes."""
    paths = (
        "x", "x.json", "x.csv", "x.md", "a/b/c.json", "../x.json", "./x", "-", "", ".", "..", "a/../x", "/dev/full",
        "/dev/null", "x" * 255, "y" * 300, "z/" * 200 + "z", "\x1b[31m", "a\nb", "k8s.yaml", "x.sh", "~", "-o", "模型", ".x",
    )  # fmt: skip
    return [
        json.dumps({"command": number % len(_COMMANDS), "path": path, "there": _THERE[number % len(_THERE)]}).encode()
        for number, path in enumerate(paths * 2)
    ]


def write_outputs(data: bytes, folder: Path) -> None:
    """A path where a file is to go: only that is written, whole, and nothing where the command fails."""
    try:
        recipe = json.loads(data)
        command, makes_folders = _COMMANDS[recipe["command"]]
        path = os.fsencode(recipe["path"].replace("\0", "")).decode("utf-8", "surrogateescape")
        there = recipe["there"]
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return  # no recipe, or a name that no argument can be
    sandbox = folder / "sandbox"
    here = sandbox / "here"
    target = here / path
    is_device = path in {"/dev/full", "/dev/null"}
    if not is_device and not os.path.normpath(target).startswith(f"{sandbox}{os.sep}"):
        return  # where the user really wants it; not on this machine
    shutil.rmtree(sandbox, ignore_errors=True)
    here.mkdir(parents=True)
    (here / "config.json").write_text(json.dumps(_CONFIG), encoding="utf-8")
    if not is_device:
        _put(there, target, here)
    before = _tree(sandbox)
    place = os.path.realpath(target)
    code, out, _ = run_line([*command, path], here, refused=frozenset({2, 4, 5}))
    after = _tree(sandbox)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    files = {name for name in changed if after.get(name, ("file",))[0] != "folder"}
    if code not in {0, 3}:
        allowed: set[str] = set()
    elif command[-1] == "--deploy" and not Path(path).suffix:
        allowed = {os.path.realpath(f"{place}/{name}") for name in _DEPLOYED}
    else:
        allowed = {place}
    if files - allowed or (changed - files and not makes_folders):
        broken("written where nothing was asked for", f"{sorted(files - allowed or changed)}"[:200])
    for name in files:
        text = after[name][1]
        if not text.endswith(b"\n") or ("--json" in command and not json.loads(text)):
            broken("a file that is not whole", repr(text[-40:]))
    if code == 0 and not is_device and path != "-" and not out and not files and not is_there(Path(place)):
        broken("nothing written, and no word about it", path)


def _put(there: object, target: Path, here: Path) -> None:
    """What is at the target beforehand, where that can be."""
    try:
        match there:
            case "file":
                target.write_bytes(b"old\n")
            case "folder":
                target.mkdir(parents=True)
            case "link":
                (here / "linked").write_bytes(b"old\n")
                target.symlink_to(here / "linked")
            case "dangling":
                target.symlink_to(here / "not there")
            case "loop":
                target.symlink_to(target)
            case "folders above":
                target.parent.mkdir(parents=True)
            case "file above":
                target.parent.parent.mkdir(parents=True, exist_ok=True)
                target.parent.write_bytes(b"old\n")
    except (OSError, ValueError):
        return


def _tree(folder: Path) -> dict[str, tuple[str, bytes]]:
    """Everything below a folder: what it is, and what is in it."""
    found: dict[str, tuple[str, bytes]] = {}
    for above, folders, files in os.walk(folder):
        for path in (Path(above, name) for name in (*folders, *files)):
            if path.is_symlink():
                found[str(path)] = ("link", os.fsencode(path.readlink()))
            else:
                found[str(path)] = ("folder", b"") if path.is_dir() else ("file", path.read_bytes())
    return found


# --- commands and manifests ------------------------------------------------------------------------------------------

_ENGINES = (("vllm", "h100-sxm"), ("sglang", "h100-sxm"), ("tensorrt-llm", "h100-sxm"), ("llama.cpp", "rtx-4090"), ("vllm", "mi300x"))  # fmt: skip
#: What a shell reads as itself outside of quotes.
_PLAIN_IN_SHELL = re.compile(r"[A-Za-z0-9@%+=:,./_\- \n\\]*\Z")


def deployments() -> list[bytes]:
    """Names that mean something to a shell, to Compose, to Kubernetes or to YAML."""
    names = (
        "meta-llama/Llama-3.1-8B", "./a b", "$(id)", "`id`", "${HF_TOKEN}", "$$(HF_TOKEN)", "a'b", 'a"b', "a;b", "a\nb", "a #b",
        "&a", "*a", "!!x", "- x", "a: b", "END", "|", ">", "%", "{}", "[]", "~", "null", "1e3", "\\", "$", "$$", "a\\\nb", "模型",
        "extra.yaml", "x" * 200 + " END", "\u2028- x", "\x85- x", "@a", "a\tb",
    )  # fmt: skip
    recipes = [
        {"engine": n, "model": name, "id": names[-n], "draft": names[n - 7], "guesses": n % 4, "cache": n % 2, "quantization": None}
        for n, name in enumerate(names)
    ]  # fmt: skip
    return [json.dumps(recipe).encode() for recipe in recipes]


@cache
def _answer(engine: int, cache_format: str | None) -> tuple[Any, str]:
    name, gpu = _ENGINES[engine]
    kv_dtype = None if name == "llama.cpp" else cache_format
    answer = kvplan.estimate("llama-3-8b", gpu, engine=name, kv_dtype=kv_dtype, context=2048, dtype="q4_k_m" if name == "llama.cpp" else None)  # fmt: skip
    return answer, kvplan.load_gpu(gpu).vendor.lower()


def write_deployment(data: bytes, folder: Path) -> None:
    """Names in a serve command, a Compose file and a manifest: each reads them back as they are, and nothing else."""
    from kvplan.report.manifests import files
    from kvplan.report.serve_command import arguments, extra, serve_lines
    from kvplan.report.service import Service

    try:
        recipe = json.loads(data)
        answer, vendor = _answer(recipe["engine"] % len(_ENGINES), "fp8" if recipe["cache"] else None)
        names = [str(recipe[key]) for key in ("model", "id")]
        draft = None if recipe["draft"] is None else str(recipe["draft"])
        guesses = min(max(0, int(recipe["guesses"])), 9)
    except (ValueError, RecursionError, LookupError, TypeError, OverflowError):
        return
    answer = replace(answer, scenario=replace(answer.scenario, model=names[1]))
    service = Service(
        estimate=answer, model=names[0], vendor=vendor, draft_model=draft, speculative_tokens=guesses,
        quantization=recipe.get("quantization") if isinstance(recipe.get("quantization"), str) else None,
    )  # fmt: skip
    words = arguments(service)
    made = files(service)
    plain = files(replace(service, model="m", draft_model=None if draft is None else "d", quantization=None))
    for text in (*made.values(), "\n".join(serve_lines(service))):
        check_shown(text)
    _shell_runs(made["serve.sh"], words, extra(service))
    in_image = ["/extra.yaml" if word == "extra.yaml" else word for word in words]
    if "compose.yaml" in made:
        [one], [reference] = ([_loaded(found["compose.yaml"])] for found in (made, plain))
        _ends_as(in_image, [_composed(word) for word in one["services"]["llm"].pop("command")])
        reference["services"]["llm"].pop("command")
        _options_are(one.pop("configs", None), extra(service), _composed)
        reference.pop("configs", None)
        _equal("another Compose file than for a plain name", one, reference)
    if "kubernetes.yaml" in made:
        many, references = (list(_all_loaded(found["kubernetes.yaml"])) for found in (made, plain))
        for one in many:
            if one["kind"] == "Deployment":
                container = one["spec"]["template"]["spec"]["containers"][0]
                _ends_as(in_image, [_expanded(word) for word in container.get("args") or container.get("command")])
        _equal("another manifest than for a plain name", *([_without_words(one) for one in found] for found in (many, references)))  # fmt: skip


def _loaded(text: str) -> Any:
    [one] = _all_loaded(text)
    return one


def _all_loaded(text: str) -> list[Any]:
    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def _without_words(document: dict[str, Any]) -> dict[str, Any]:
    if document["kind"] == "ConfigMap":
        return {**document, "data": sorted(document["data"])}
    if document["kind"] == "Deployment":
        container = document["spec"]["template"]["spec"]["containers"][0]
        container.pop("args", None)
        container.pop("command", None)
    return document


def _shell_runs(script: str, words: list[str], options: dict[str, Any]) -> None:
    """A shell that reads the script runs the one command, after it has written the file of options."""
    if options:
        head, _, rest = script.partition("cat >extra.yaml <<'END'\n")
        text, _, tail = rest.partition("\nEND\n")
        _equal("another file of options in the script", _loaded(text), options)
        script = head + tail
    lines = [line for line in script.splitlines() if not line.startswith("#")]
    _equal("another first line in the script", lines.pop(0), "set -eu")
    command = "\n".join(lines)
    _equal("other words in the script", shlex.split(command.replace("\\\n", " ")), words)
    outside = re.sub(r"'[^']*'|\"'\"", "", command)
    if not _PLAIN_IN_SHELL.match(outside) or re.search(r"(?<!\\)\n.", outside):
        broken("a sign that a shell acts on", outside[:200])


def _ends_as(words: list[str], found: list[str]) -> None:
    _equal("other words in a manifest", found, words[len(words) - len(found) :])
    if len(words) - len(found) > 2:
        broken("words are missing in a manifest", str(words))


def _options_are(configs: Any, options: dict[str, Any], read: Any) -> None:
    if options:
        _equal("another file of options", _loaded(read(configs["options"]["content"])), options)


def _equal(kind: str, found: object, wanted: object) -> None:
    if found != wanted:
        broken(kind, f"{found!r:.150} where {wanted!r:.150} was meant")


def _composed(text: str) -> str:
    """What Compose makes of a value: `$$` is a dollar sign, any other is a variable."""
    if re.search(r"(?<!\$)(?:\$\$)*\$(?!\$)", text):
        broken("Compose would put a variable in", text[:100])
    return text.replace("$$", "$")


def _expanded(text: str) -> str:
    """What Kubernetes makes of a word, as its `expansion.Expand` does: `$$` is `$`, `$(NAME)` a variable."""
    found, at = "", 0
    while at < len(text):
        following = text[at + 1 : at + 2]
        if text[at] == "$" and following == "(" and ")" in text[at + 1 :]:
            broken("Kubernetes would put a variable in", text[:100])
        found += text[at]
        at += 2 if text[at] == "$" and following == "$" else 1
    return found


# --- profiles and pictures -------------------------------------------------------------------------------------------


_ROWS = [
    {
        "id": str(users), "model": "llama-3-8b", "gpu": "l4", "engine": "vllm", "input_tokens": 512, "output_tokens": 128,
        "concurrency": users, "ttft_ms": 150.0 * users, "tpot_ms": 60.0 + users,
    }
    for users in (1, 2, 4)
]  # fmt: skip


def profiles() -> list[bytes]:
    """Measurements that a profile can be fitted to, and a name for the comment in it."""
    return [
        json.dumps({"rows": _ROWS, "comment": text}).encode() for text in ("x.csv", "a\nb: c", "\x1b", "\x85- x", "#")
    ]


@lru_cache(maxsize=64)
def _fitted(rows: str, folder: Path) -> Any:
    from kvplan import api

    source = folder / "rows.json"
    source.write_text(rows, encoding="utf-8")
    return api.calibrate(source)


def write_profile(data: bytes, folder: Path) -> None:
    """Measurements → fit → profile: what is written is read back as the engine that was fitted."""
    from kvplan import api
    from kvplan.report.calibration import CalibrationReport
    from kvplan.report.text import neutral

    try:
        recipe = json.loads(data)
        rows, comment = json.dumps(recipe["rows"]), str(recipe["comment"])
    except (ValueError, RecursionError, LookupError, TypeError):
        return
    if sum(data) % SHARE and rows != json.dumps(_ROWS):
        return  # a fit takes ten to a hundred times as long as what other readers do
    found = _fitted(rows, folder)
    shown(CalibrationReport(calibration=found, profile=comment))
    written = folder / "fitted.yaml"
    written.write_text(api.profile_text(found.engine, comment=f"Calibrated on {neutral(comment)}."), encoding="utf-8")
    again = kvplan.load_engine(written)
    for family, efficiency in found.engine.efficiencies.items():
        for name, value in _numbers(efficiency).items():
            other = _numbers(again.efficiencies[family])[name]
            if abs(value - other) > 1e-5 * abs(value):
                broken("a profile that reads back as another", f"{family}.{name}: {value} and {other}")


def _numbers(efficiency: Any) -> dict[str, float]:
    names = efficiency.__dataclass_fields__
    values = {name: getattr(efficiency, name) for name in names}
    return {name: value for name, value in values.items() if isinstance(value, float)}


def pictures() -> list[bytes]:
    """Names that mean something to who draws letters."""
    draw(b'"warm"', Path())  # the list of fonts is made once
    names = (
        r"$\frac{$",
        "$x^2$",
        "$",
        "$$",
        r"\$",
        r"\\$x$",
        "_hidden",
        "a\nb",
        "\x1b[31m",
        "模型",
        "{}",
        "%s",
        "^_",
        "\ud800",
        "",
    )
    return [json.dumps(name).encode() for name in names]


def draw(data: bytes, folder: Path) -> None:
    """A name in the title, at an axis and in the legend of a picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from kvplan.report.figures import lettered

    try:
        name = json.loads(data)
    except (ValueError, RecursionError):
        name = data.decode("utf-8", "surrogateescape")
    if not isinstance(name, str):
        return
    letters = lettered(name[:400])
    check_shown(letters)
    drawn = Figure(figsize=(2, 1), dpi=20)
    drawn.suptitle(letters)
    drawn.text(0.5, 0.5, letters)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the font lacks a letter: a box is drawn
        FigureCanvasAgg(drawn).draw()
    for text in drawn.texts:
        _equal(
            "letters that are drawn as something else",
            text._preprocess_math(letters),
            (letters.replace(r"\$", "$"), False),
        )
