"""Figures and tables for papers: their numbers, their bold, their text, and that the same run gives the same bytes."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner

import heatproof
from heatproof.cli.export import figures
from heatproof.errors import UserError
from heatproof.report.figures import _unused_stem, write
from heatproof.report.latex import Cell, Tabular, escape, render
from heatproof.results.names import looks
from heatproof.runs import tables
from heatproof.runs.directory import write_part
from heatproof.runs.manifest import write_manifest
from heatproof.runs.run import Run
from support import row_statistics, synthetic
from support.latex import assert_compiles

pytest.importorskip("matplotlib", reason="figures need matplotlib")

NASTY = r"we_ird {50%} & $x$ #1 ~^ \input"
METHODS = ("grad_cam", NASTY, "lime", "random")
N = 10


def _axes(model: str, seed: int) -> pd.DataFrame:
    """Certificates, smoothing, symmetry, removal and retraining of one model, the methods in order of their quality."""
    generator = np.random.default_rng(seed)
    quality = {e: 0.8 - 0.25 * i for i, e in enumerate(METHODS)}
    invariance = 1.0 - 0.1 * seed
    rows: dict[str, list[synthetic.Entry]] = {
        k: [] for k in ("certificate", "smoothing", "symmetry", "faithfulness")
    }
    again: list[synthetic.Entry] = []

    def noisy(mean: float) -> np.ndarray:
        return np.clip(mean + generator.normal(0, 0.03, N), 0, 1)

    for e, q in quality.items():
        for r in (1, 5):
            rate = noisy(q)
            rows["certificate"] += [
                (e, "rate", "radius", r, rate),
                (e, "certified", "radius", r, rate - 0.05),
            ]
            rows["certificate"] += [(e, "rate", "fraction=0.5", r, noisy(q))]
        for keep in (0.5, 1.0):
            where = f"λ={keep:g}"
            rows["smoothing"] += [(e, "hard_radius", where, 0, np.arange(N) % 2)]
            rows["smoothing"] += [(e, "correct", where, 0, np.arange(N) % 3 > 0)]
            rows["smoothing"] += [(e, m, where, 1, noisy(q)) for m in ("rate", "certified")]
        moved = noisy(invariance * q)
        rows["symmetry"] += [
            (e, "equivariance", "dihedral", 8, moved),
            (e, "symmetrised", "symmetrised", 8, noisy(1)),
        ]
        rows["symmetry"] += [(e, "model_invariance", "dihedral", 8, np.full(N, invariance))]
        for imputer in ("noisy_linear", "zero"):
            rows["faithfulness"].append((e, "road", imputer, 0, noisy(q)))
            for f in (0.3, 0.7):
                for order, sign in (("morf", -1), ("lerf", 1)):
                    point = (e, "accuracy", f"{imputer} {order}", f)
                    rows["faithfulness"].append((*point, noisy(0.5 + sign * 0.4 * q)))
                    again.append((*point, noisy(0.5 + sign * 0.3 * q)))
    blocks = [synthetic.rows_of(entries, name, model) for name, entries in rows.items()]
    return pd.concat([*blocks, synthetic.rows_of(again, "retraining", model)])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Two models, every axis, a method whose name is full of what LaTeX takes for commands."""
    root = tmp_path_factory.mktemp("figures") / "run"
    quality = {"grad_cam": 0.6, NASTY: 0.595, "lime": 0.1, "random": 0.0}
    parts = []
    for seed, model in enumerate(("net", "net_2")):
        parts.append(
            synthetic.table(quality, samples=N, flip=0.0, undefined=0.0, seed=seed, model=model)
        )
        parts.append(_axes(model, seed))
    frame = synthetic.stored(pd.concat(parts, ignore_index=True))
    known = pd.concat([synthetic.samples(N, 0, model=model) for model in ("net", "net_2")])
    known = known.reindex(columns=tables.SAMPLES.names)
    for folder, rows, schema in (
        ("parts", frame, tables.SCORES),
        ("samples", known, tables.SAMPLES),
    ):
        content = pa.Table.from_pandas(rows, schema=schema, preserve_index=False)
        write_part(root / folder / "all.parquet", content)
    evaluations = {"symmetry": {"name": "symmetry", "group": {"name": "dihedral", "n": 4}}}
    write_manifest(root, synthetic.manifest(evaluations=evaluations))
    return heatproof.read(root)


@pytest.fixture(scope="module")
def written(run: Run) -> list[Path]:
    return write(run, formats=("svg",))


def _cells(path: Path) -> dict[str, list[str]]:
    """The body of a table by its first column."""
    body = [
        line for line in path.read_text().splitlines() if line.endswith(r" \\") and " & " in line
    ]
    return {line.split(" & ")[0]: line.removesuffix(r" \\").split(" & ")[1:] for line in body}


def test_everything_is_written_from_a_run_that_has_all_rows(run: Run, written: list[Path]) -> None:
    index = json.loads(written[-1].read_text())
    items = {entry["item"] for entry in index["written"]}
    of_removal = {"curves", "retrained", "orders", "retraining", "scores"}
    assert items >= {f"removal-{name}" for name in of_removal}
    of_symmetry = {"boxes", "guidelines", "symmetrised", "relaxed", "scores"}
    assert items >= {f"symmetry-{name}" for name in of_symmetry}
    assert "proof-sheet" in items
    rooms = {item.split("-")[0] for item in items}
    assert rooms >= {"stability", "certificate", "symmetry", "removal"}
    assert {entry["file"] for entry in index["written"]} == {path.name for path in written[:-1]}
    assert all(
        path.parent == run.path / "figures" and path.stat().st_size > 500 for path in written
    )


def test_tables_balance_their_braces_and_fill_their_columns(written: list[Path]) -> None:
    tables = [path for path in written if path.suffix == ".tex"]
    assert len(tables) > 8
    for path in tables:
        text = path.read_text()
        head = text.splitlines()[0]
        assert head.startswith("%") and "heatproof run study.yaml --out runs/photos" in head
        assert_compiles(text)
    assert escape(NASTY) in _cells(next(p for p in tables if p.stem == "stability-components"))


def test_numbers_are_those_of_the_summary(run: Run, written: list[Path]) -> None:
    cells = _cells(next(path for path in written if path.stem == "certificate-scores-net"))
    summary, names = run.summary(), looks(METHODS)
    for explainer in METHODS:
        here = (
            (summary.explainer == explainer)
            & (summary.model == "net")
            & (summary.measure == "rate")
        )
        row = summary[here & (summary.level == 5)].iloc[0]
        of_explainer = cells[escape(names[explainer].name)]
        shown = [re.sub(r"\\textbf\{([\d.]+)\}", r"\1", cell) for cell in of_explainer]
        forms = []
        for digits in (2, 3):
            value, low, high = (f"{v:.{digits}f}" for v in (row["mean"], row.low, row.high))
            forms.append(rf"{value} {{\scriptsize [{low}, {high}]}}")
        assert set(shown) & set(forms), (shown, forms)


def test_bold_is_by_significance_and_never_for_a_control(run: Run, written: list[Path]) -> None:
    rows = run.table()
    tests = row_statistics.paired_tests(
        rows[(rows.model == "net") & (rows.evaluation == "stability")], "fass"
    )
    pair = {frozenset((r.a, r.b)): r.significant for r in tests.itertuples()}
    assert not pair[frozenset(("grad_cam", NASTY))] and pair[frozenset(("grad_cam", "lime"))]
    text = next(path for path in written if path.stem == "stability-components").read_text()
    block = text.split(r"\textit{net}")[1].split(r"\textit{net\_2}")[0]
    last = {
        line.split(" & ")[0]: line.split(" & ")[-1] for line in block.splitlines() if " & " in line
    }
    bold = {name for name, cell in last.items() if r"\textbf" in cell}
    assert bold == {"Grad-CAM", escape(NASTY)}


def test_wide_tables_go_under_each_other() -> None:
    content = Tabular(["Method", *"abcdefg"], [["x", *(Cell(i / 10) for i in range(7))]])
    text = render(content, "c", "tab:t", [], 6.75)
    assert text.count(r"\begin{tabular}") == 2 and text.count("x & ") == 2
    assert [f"{i / 10:.2f}" in text for i in range(7)] == [True] * 7
    assert render(content, "c", "tab:t", [], 3.25).count(r"\begin{tabular}") == 4


def test_the_same_run_gives_the_same_bytes_and_leaves_matplotlib_as_it_was(
    run: Run, tmp_path: Path
) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    with matplotlib.rc_context({"font.size": 30}):
        first, second = (
            write(run, tmp_path / name, ("pdf", "png", "svg"), ["symmetry-relaxed"])
            for name in "ab"
        )
    assert dict(matplotlib.rcParams) == before
    assert (
        "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()
    )
    assert [path.suffix for path in first] == [".pdf", ".png", ".svg", ".tex", ".json"]
    for a, b in zip(first, second, strict=True):
        assert a.name == b.name and a.read_bytes() == b.read_bytes(), a.name
    pdf = next(path for path in first if path.suffix == ".pdf").read_bytes()
    assert b"CIDFontType2" in pdf and b"/Type3" not in pdf and b"CreationDate" not in pdf


def test_figures_are_at_most_as_wide_as_asked_for_and_have_no_empty_side(
    run: Run, tmp_path: Path
) -> None:
    from PIL import Image

    for width, inches in (("column", 3.25), (6.0, 6.0)):
        paths = write(run, tmp_path / str(width), ("png",), ["symmetry-symmetrised"], width)
        paths = [path for path in paths if path.suffix == ".png"]
        assert paths
        for path in paths:
            with Image.open(path) as picture:
                assert picture.width <= round(300 * inches)
                inked = np.asarray(picture.convert("L")).min(0) < 250
                assert inked[-len(inked) // 5 :].any(), "nothing at the right"


def test_a_figure_that_a_run_lacks_is_refused(run: Run, tmp_path: Path) -> None:
    few = tmp_path / "run"
    rows = run.table()
    kept = rows[(rows.evaluation == "stability") & (rows.model == "net")][tables.SCORES.names]
    write_part(
        few / "parts" / "x.parquet",
        pa.Table.from_pandas(kept, schema=tables.SCORES, preserve_index=False),
    )
    write_manifest(few, synthetic.manifest())
    app = typer.Typer()
    app.command()(figures)
    said = CliRunner().invoke(
        app, [str(few), "--out", str(tmp_path / "cli"), "--only", "removal-curves"]
    )
    assert said.exit_code == 1 and "removal-curves" in str(said.exception)
    said = CliRunner().invoke(app, [str(few), "--only", "stability", "--format", "png"])
    assert said.exit_code == 0 and "stability-map" in said.output
    assert (few / "figures" / "stability-map.png").is_file()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"formats": ("jpg",)}, "'jpg'.*'png'"),
        ({"width": "wide"}, "width.*column.*text.*'wide'"),
        ({"formats": ()}, "format"),
        ({"only": "stability-map"}, "names.*'stability-map'"),
        ({"only": []}, "only.*names"),
    ],
)
def test_mistakes_are_named_before_anything_is_read(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        write("no-such-run", **change)  # type: ignore[arg-type]


def test_a_name_that_the_run_does_not_have_is_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'removal-curve'.*'removal-curves'"):
        write(run, tmp_path, only=["stability-map", "removal-curve"])


def test_figures_need_a_folder_and_names_of_their_own(run: Run, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(UserError, match="taken"):
        write(run, tmp_path / "taken", only=["removal-orders"])
    taken: set[str] = set()
    assert [_unused_stem("map", name, taken) for name in ("net a", "net/a", "net:a")] == [
        "map-net-a",
        "map-net-a-2",
        "map-net-a-3",
    ]


def test_without_matplotlib_tables_still_work(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=re.escape("heatproof[figures]")):
        write(run, tmp_path)
    assert [path.name for path in write(run, tmp_path, only=["removal-orders"])] == [
        "removal-orders.tex",
        "index.json",
    ]
