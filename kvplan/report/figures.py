"""What all pictures share: colours for the colour-blind, markers and hatches for print, and writing a file whole."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Final

from kvplan.errors import UsageError
from kvplan.report.text import neutral
from kvplan.writing import is_folder, write_file

#: Okabe and Ito, Color Universal Design (2008); yellow is left out, it does not print.
COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
DASHES: Final = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
HATCHES: Final = ("", "//", "\\\\", "xx", "..", "++", "--")
SUFFIXES: Final = (".png", ".svg", ".pdf")
_DPI: Final = 144
_TWO_DECADES: Final = 100


def figure(*, width: float, height: float, path: Path) -> Any:  # noqa: ANN401 - matplotlib is untyped
    """An empty figure in inches, after a look at where it will go.

    Raises:
        UsageError: A kind of file that is not drawn, a folder that is not there, or matplotlib is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        message = f"--plot: {path.name} must end in {', '.join(SUFFIXES)}"
        raise UsageError(message)
    if not is_folder(path.parent):
        message = f"--plot: cannot write {path}: no such folder"
        raise UsageError(message)
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        message = "--plot needs matplotlib"
        raise UsageError(message, hint="pip install 'kvplan[plots]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def save(drawn: Any, path: Path) -> None:  # noqa: ANN401 - matplotlib is untyped
    """Write a figure, whole or not at all; the same figure makes the same file.

    Raises:
        UsageError: The file can't be written.
    """
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    kind = path.suffix.lower()
    content = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "kvplan"}):
        dated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
        drawn.savefig(content, format=kind[1:], dpi=_DPI, metadata=dated.get(kind))
    write_file(path, content.getvalue(), option="--plot")


def lettered(words: str) -> str:
    r"""Words that may hold a stranger's name, for a picture: nothing in them acts, and `$` is no mathematics.

    >>> lettered("a\x1b$x^{$")
    'a\\x1b\\$x^{\\$'
    """
    return neutral(words).replace("$", r"\$")


def tidy(axes: Any, *, title: str, x: str, y: str) -> None:  # noqa: ANN401 - matplotlib is untyped
    """Title, units on both axes, light grid behind, no box."""
    axes.set_title(title, fontsize=10, loc="left")
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(visible=True, color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def powers(axes: Any, values: Any) -> None:  # noqa: ANN401 - matplotlib is untyped
    """A logarithmic axis along the bottom with plain numbers at a few of the values."""
    known = sorted({float(value) for value in values})
    axes.set_xscale("log", base=2)
    axes.set_xticks(known[:: max(1, -(-len(known) // 7))])
    _plain_numbers(axes.xaxis)
    axes.minorticks_off()


def decades(axes: Any, values: Any, *, axis: str = "y") -> None:  # noqa: ANN401 - matplotlib is untyped
    """A logarithmic axis with plain numbers at 1, 10, 100, and between them where the values span little."""
    from matplotlib.ticker import LogLocator  # noqa: PLC0415 - an extra

    axes.set(**{f"{axis}scale": "log"})
    along = getattr(axes, f"{axis}axis")
    if max(values) / min(values) < _TWO_DECADES:
        along.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0)))
    _plain_numbers(along)


def _plain_numbers(along: Any) -> None:  # noqa: ANN401 - matplotlib is untyped
    from matplotlib.ticker import FuncFormatter, NullFormatter  # noqa: PLC0415 - an extra

    along.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    along.set_minor_formatter(NullFormatter())


def short(value: float) -> str:
    """A number for a tick.

    >>> short(512), short(131072), short(0.25), short(2.5e6)
    ('512', '131k', '0.25', '2.5M')
    """
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= unit:
            scale = 1e3 if name == "k" else unit
            return f"{value / scale:.3g}{name}"
    return f"{value:.4g}"
