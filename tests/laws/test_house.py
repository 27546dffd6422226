"""The plan of the house: who may import whom, and where the names of axes and measures may stand."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

import pytest

import heatproof
from heatproof.axes import AXES

PACKAGE = Path(heatproof.__file__).parent
TIERS = (
    {"errors", "lazy", "kinds", "rand", "rules", "types", "evaluation", "axis"},
    {"statistics", "maps", "features", "removal", "kernels", "boolean"},
    {"data"},
    {"models"},
    {"batching"},
    {"subject"},
    {"explainers", "text"},
    {"results"},
    {"axes"},
    {"metrics"},
    {"runs"},
    {"report"},
    {"testing"},
    {"truth"},
    {"reproduce"},
    {"cli"},
)
TIER = {room: number for number, rooms in enumerate(TIERS) for room in rooms}
BELOW_THE_AXES = {"report.components"}
"""Modules that the axes import though their room is above: they say what a report consists of, and draw nothing."""
AXIS_ROOMS = sorted(path.parent.name for path in (PACKAGE / "axes").glob("*/__init__.py"))
BY_ROOM = {"statistics", "maps", "features", "removal", "kernels"}
"""Rooms of one tier that may import each other, as long as there is no circle."""


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def for_types_only(module: ast.Module) -> set[ast.AST]:
    """Everything under `if TYPE_CHECKING`."""
    guards = [
        node
        for node in ast.walk(module)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    ]
    return {
        inside for guard in guards for statement in guard.body for inside in ast.walk(statement)
    }


def imported(path: Path, besides: Collection[ast.AST] = ()) -> Iterator[str]:
    """The modules of the package that a module imports when it runs, at its top or inside a function."""
    module = tree(path)
    skipped = for_types_only(module) | set(besides)
    for node in ast.walk(module):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (
                alias.name.removeprefix("heatproof.")
                for alias in node.names
                if "heatproof." in alias.name
            )
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "heatproof":
            home = (node.module or "").removeprefix("heatproof").lstrip(".")
            for alias in node.names:
                dotted = f"{home}.{alias.name}".lstrip(".")
                is_module = (PACKAGE / dotted.replace(".", "/")).is_dir() or (
                    PACKAGE / f"{dotted.replace('.', '/')}.py"
                ).is_file()
                yield dotted if is_module else home


EDGES = [(name_of(path), target) for path in modules() for target in imported(path) if target]


def test_imports_go_downwards_only():
    wrong = []
    for source, target in EDGES:
        a, b = source.split(".")[0], target.split(".")[0]
        if not source or source == "__main__" or a == b:
            continue
        assert {a, b} <= set(TIER), f"{source} imports {target}: neither may be outside the rooms"
        if a == "axes" and target in BELOW_THE_AXES:
            continue
        same_tier = TIER[a] == TIER[b] and a in BY_ROOM and b in BY_ROOM
        if not (TIER[b] < TIER[a] or same_tier or b in TIERS[0]):
            wrong.append(f"{source} imports {target}")
    assert not wrong, "\n".join(sorted(set(wrong)))


def test_what_lies_below_the_axes_imports_nothing_above_them():
    above = [
        f"{source} imports {target}"
        for source, target in EDGES
        if source in BELOW_THE_AXES and TIER[target.split(".")[0]] >= TIER["axes"]
    ]
    assert not above, above


def test_no_axis_imports_another():
    wrong = [
        f"{a} imports {b}"
        for a, b in EDGES
        if a.startswith("axes.")
        and b.startswith("axes.")
        and a.split(".")[1] in AXIS_ROOMS
        and b.split(".")[1] in AXIS_ROOMS
        and a.split(".")[1] != b.split(".")[1]
    ]
    assert not wrong, wrong


def test_there_is_no_circle_of_imports():
    """At the top of modules; a room and what is inside it count as one where the room's `__init__` gathers names."""
    graph: dict[str, set[str]] = {}
    for path in modules():
        source = name_of(path)
        for target in at_the_top(path):
            if source and source != target and path.name != "__init__.py":
                graph.setdefault(source, set()).add(target)
    done: set[str] = set()

    def visit(node: str, way: tuple[str, ...]) -> None:
        assert node not in way, " -> ".join([*way[way.index(node) :], node])
        if node not in done:
            for other in sorted(graph.get(node, ())):
                visit(other, (*way, node))
            done.add(node)

    for node in sorted(graph):
        visit(node, ())


def at_the_top(path: Path) -> Iterator[str]:
    """The modules that a module imports when it is itself imported."""
    inside = {
        n
        for f in ast.walk(tree(path))
        if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef)
        for n in ast.walk(f)
    }
    yield from imported(path, inside)


@pytest.mark.parametrize(
    "axis", [axis for axis in AXES if axis.evaluation is not None], ids=lambda axis: axis.name
)
def test_what_computes_draws_nothing(axis):
    """An evaluation and what it calls in its own room import neither pandas nor matplotlib."""
    room = ".".join(axis.evaluation.__module__.split(".")[:3]).removeprefix("heatproof.")
    seen, todo = set(), [axis.evaluation.__module__.removeprefix("heatproof.")]
    while todo:
        module = todo.pop()
        if module in seen or not module.startswith(f"{room}."):
            continue
        seen.add(module)
        path = PACKAGE / f"{module.replace('.', '/')}.py"
        path = path if path.is_file() else path.with_suffix("") / "__init__.py"
        skipped = for_types_only(tree(path))
        names = {
            alias.name.split(".")[0]
            for node in ast.walk(tree(path))
            if isinstance(node, ast.Import | ast.ImportFrom) and node not in skipped
            for alias in (
                [ast.alias(node.module or "")] if isinstance(node, ast.ImportFrom) else node.names
            )
        }
        assert not names & {"pandas", "matplotlib"}, module
        todo += [target for source, target in EDGES if source == module]
    assert len(seen) > 0


PLAIN = {
    "accuracy",
    "correct",
    "logit",
    "margin",
    "passes",
    "pixels",
    "prior",
    "probability",
    "rate",
    "stable",
}
"""Measures whose names are plain words, which mean other things elsewhere: passes of a network, a stable sort."""
DECLARED = {axis.name for axis in AXES} | {
    measure.name for axis in AXES for measure in axis.measures
} - PLAIN
ELSEWHERE = [
    p
    for p in modules()
    # The public functions of arrays are called like the measures that they compute.
    # Reproductions name the measures of the tables that they make.
    if not name_of(p).startswith(("axes", "reproduce"))
    and name_of(p) not in ("runs.study.demo", "metrics")
]


def named_in(path: Path) -> Iterator[str]:
    """String literals and identifiers that equal the name of an axis or a measure; docstrings are prose."""
    for node in ast.walk(tree(path)):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and node.value in DECLARED
        ):
            yield f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.value!r}"
        elif isinstance(node, ast.Name) and node.id in DECLARED:
            yield f"{path.relative_to(PACKAGE)}:{node.lineno}: {node.id}"


EXEMPT = {
    "maps/similarity.py": {
        "ssim",
        "spearman",
        "jaccard",
    },  # what its own functions are called, whoever uses them
    "boolean.py": {"hard_radius"},  # a function of its own
    "runs/retrain.py": {"leakage"},  # a parameter of `heatproof.retrain`
    # the field of a measure and the column of a summary, which every test may have
    "evaluation.py": {"noise_floor"},
    "results/summary.py": {"noise_floor"},
}


def test_axes_and_measures_are_named_in_their_own_rooms_only():
    found = [
        place
        for path in ELSEWHERE
        for place in named_in(path)
        if not any(
            place.endswith((f" {name}", f" {name!r}"))
            for name in EXEMPT.get(place.split(":")[0], ())
        )
    ]
    assert not found, "\n".join(found)


def test_the_root_holds_rooms_and_little_else():
    entries = {path.name for path in PACKAGE.iterdir()} - {
        "__pycache__",
        "__init__.py",
        "__init__.pyi",
        "__main__.py",
    }
    assert {name.removesuffix(".py") for name in entries - {"py.typed", "rules.md"}} == set(TIER)


@pytest.mark.parametrize("axis", [axis for axis in AXES if axis.evaluation], ids=lambda a: a.name)
def test_importing_an_evaluation_loads_nothing_that_reports(axis):
    """Followed all the way, in a new process: tables, drawings and reports are loaded by name when they are needed."""
    reporting = ("pandas", "matplotlib", "jinja2", "heatproof.text", "heatproof.results")
    reporting += ("heatproof.report", "heatproof.runs")
    code = f"import sys, {axis.evaluation.__module__}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert not set(done.stdout.split()) & set(reporting)


RUN_TWO_EXPLAINERS_AND_ONE_TEST = """
import sys, torch, heatproof
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 4))
heatproof.evaluate(net, torch.rand(3, 3, 16, 16), ["saliency", "random"], [{"stability": {"perturbations": "jpeg"}}])
print(*sys.modules)
"""


def test_a_study_imports_the_explainers_and_axes_that_it_names_and_no_others():
    done = subprocess.run(
        [sys.executable, "-c", RUN_TWO_EXPLAINERS_AND_ONE_TEST],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    loaded = set(done.stdout.split())
    assert {"heatproof.axes.stability", "heatproof.explainers.controls"} <= loaded
    other_axes = {f"heatproof.axes.{room}" for room in AXIS_ROOMS} - {"heatproof.axes.stability"}
    others = {"sampling", "rules", "cam", "lrp", "masking", "attention", "adapters.named"}
    assert not loaded & other_axes
    assert not loaded & {f"heatproof.explainers.{module}" for module in others}


def test_names_of_axes_and_measures_are_unique():
    assert len({axis.name for axis in AXES}) == len(AXES)
    for axis in AXES:
        names = [measure.name for measure in axis.measures]
        assert len(set(names)) == len(names)
        assert all(measure.title and measure.text for measure in axis.measures)
