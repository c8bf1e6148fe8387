"""Pictures, measured by the renderer: no text lies on other text, axes carry units, marks differ without colour."""

from __future__ import annotations

import itertools

import pytest

import kvplan
from kvplan.errors import UsageError
from kvplan.report import plot_estimate, plots
from kvplan.report.figures import lettered

pytest.importorskip("matplotlib")
from matplotlib.backends.backend_agg import FigureCanvasAgg

LOAD = {"input_tokens": 2000, "output_tokens": 300}
NAMES = ["tp=1, dtype=bf16", "a scenario with quite a long name of its own", "c", "d", "e", "f"]


def estimate_picture(path):
    answer = kvplan.estimate("llama-3.1-70b", "h100-sxm", tp=4, concurrency=64, **LOAD)
    sweep = kvplan.sweep("llama-3.1-70b", "h100-sxm", tp=4, axes=["concurrency=1:512:log2"], ranges=True, **LOAD)
    gpu = kvplan.load_gpu("h100-sxm")
    plot_estimate.plot_estimate(
        answer, sweep, path, peaks=gpu.peak_flops_per_s, bandwidth_bytes_per_s=gpu.memory_bandwidth_bytes_per_s
    )


def comparison_picture(path):
    scenarios = [{"name": name, "concurrency": 2**index} for index, name in enumerate(NAMES)]
    plots.plot_comparison(kvplan.compare(scenarios, model="llama-3-8b", gpu="a100-80g"), path)


def sweep_picture(path):
    axes = ["concurrency=1:512:log2", "tp=2,4,8", "dtype=bf16,fp8"]
    sweep = kvplan.sweep("llama-3.1-70b", "h100-sxm", axes=axes, ranges=True, **LOAD)
    plots.plot_sweep(sweep, path, limits={"ttft_ms": 1000.0, "tpot_ms": 50.0})


def plan_picture(path):
    found = kvplan.plan("llama-3.1-70b", ["h100-sxm", "l40s"], rate=20, dtypes=[None, "fp8"], **LOAD)
    plots.plot_plan(found, path)


PICTURES = [estimate_picture, comparison_picture, sweep_picture, plan_picture]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Each picture once, as a figure that is laid out as in its file; no file is written."""
    folder, kept = tmp_path_factory.mktemp("pictures"), {}

    def draw(picture):
        if picture not in kept:
            with pytest.MonkeyPatch.context() as patch:
                for module in (plots, plot_estimate):
                    patch.setattr(module, "save", lambda figure, _: kept.update({picture: figure}))
                picture(folder / f"{picture.__name__}.svg")
            FigureCanvasAgg(kept[picture]).draw()
        return kept[picture]

    return draw


def texts(figure):
    """Every text that is seen, with the room it takes."""
    renderer = figure.canvas.get_renderer()
    found = [*figure.texts]
    for axes in figure.axes:
        found += [axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            low, high = sorted(limits)
            found += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return [(one.get_text(), one.get_window_extent(renderer)) for one in found if one.get_text() and one.get_visible()]


@pytest.mark.parametrize("picture", PICTURES, ids=lambda one: one.__name__)
def test_no_text_lies_on_another_or_outside(drawn, picture):
    figure = drawn(picture)
    width, height = figure.canvas.get_width_height()
    seen = texts(figure)
    assert len(seen) > 10
    for text, box in seen:
        assert box.x0 >= -1, text
        assert box.y0 >= -1, text
        assert box.x1 <= width + 1, text
        assert box.y1 <= height + 1, text
    for (one, a), (other, b) in itertools.combinations(seen, 2):
        across = min(a.x1, b.x1) - max(a.x0, b.x0)
        down = min(a.y1, b.y1) - max(a.y0, b.y0)
        assert not (across > 1 and down > 1), f"{one!r} and {other!r} overlap"


@pytest.mark.parametrize("picture", PICTURES, ids=lambda one: one.__name__)
def test_axes_say_what_they_count(drawn, picture):
    for axes in drawn(picture).axes:
        assert axes.get_xlabel()
        assert axes.get_title(loc="left")
        assert axes.get_ylabel() or picture is comparison_picture  # its names stand there


def test_lines_differ_without_colour(drawn):
    lines = drawn(sweep_picture).axes[1].get_lines()
    marks = [(line.get_marker(), line.get_linestyle()) for line in lines if line.get_marker() not in {"", "None"}]
    assert len(marks) == 6
    assert len(set(marks)) == 6


def test_the_same_picture_is_the_same_file(tmp_path):
    one, other = tmp_path / "a.svg", tmp_path / "b.svg"
    found = kvplan.compare(vary={"tp": [1, 2]}, model="llama-3-8b", gpu="a100-80g")
    plots.plot_comparison(found, one)
    plots.plot_comparison(found, other)
    assert one.read_bytes() == other.read_bytes()


def test_places_that_cannot_be_written(tmp_path):
    for path in (tmp_path / "x.bmp", tmp_path / "missing" / "x.png"):
        with pytest.raises(UsageError):
            comparison_picture(path)


def test_without_matplotlib_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(UsageError) as error:
        comparison_picture(tmp_path / "x.png")
    assert "kvplan[plots]" in error.value.hint


def test_names_are_letters_in_a_picture(tmp_path):
    """`$…$` would be mathematics, which strangers' names seldom are, and broken mathematics ends in a traceback."""
    names = [r"$\frac{$", "a$b", "\x1b]0;title\x07"]
    scenarios = [{"name": name, "concurrency": 2**index} for index, name in enumerate(names)]
    plots.plot_comparison(kvplan.compare(scenarios, model="llama-3-8b", gpu="l4"), tmp_path / "x.svg")
    plots.plot_sweep(kvplan.sweep("llama-3-8b", "l4", axes=["concurrency=1,2"]), tmp_path / "y.svg")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.svg", "y.svg"]
    assert [lettered(name) for name in names] == [r"\$\frac{\$", r"a\$b", r"\x1b]0;title\x07"]
