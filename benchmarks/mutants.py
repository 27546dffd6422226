"""Small mistakes put into the package one at a time: which of them do the tests notice?

    python benchmarks/mutants.py map --jobs 15 --out map.json                 # which test enters which function
    python benchmarks/mutants.py run --map map.json --seed 7 --count 300 --jobs 15 --out mutants.jsonl
    python benchmarks/mutants.py show mutants.jsonl                           # counts by room, and what survived

Mutant i is drawn from the seed alone, so the work can be cut into chunks with --start and --count, on several machines;
a file that is there already is gone on with, and --again tries those that survived once more, with a larger --budget. A
mutant is met by the tests that enter its function, its file's own examples and those of the folder named as its own
first, the quickest of them first, up to --budget seconds, in a process forked from one that has imported the large
packages. A test that fails counts if it passes by itself without the mistake. One that all of them pass survived;
`untested` means that no test enters the function in its own process, `elsewhere` that besides its tests need a GPU
(--gpu, for `map` and `run`, lets those of the kernels have it) or the libraries of `make test-ecosystem`. Left out from
the start: annotations, decorators, words (errors, f-strings), numbers of layout, swapped arguments of what is symmetric
in them, and arguments without a say in any result (`strict` of zip, `non_blocking`).

One line of JSON per mutant: number, status (killed, survived, timeout, untested, elsewhere), room, file, line, what was
done, the diff, by which test, seconds. A timeout is counted in seconds of the processor, so that other work beside it
does not make one, and three times as many of the clock, for what waits for ever; it counts if the same tests end in
time without the mistake.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "heatproof"
NEEDED = (
    "src",
    "tests",
    "docs",
    "studies",
    "benchmarks",
    "conftest.py",
    "pyproject.toml",
    "README.md",
    "CHANGELOG.md",
)
NEEDED += (
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CITATION.cff",
    "LICENSE",
    "Makefile",
    "mkdocs.yml",
    ".ci",
    ".github",
)
NEEDED += (".gitignore", "constraints.txt", "constraints-ecosystem.txt")
HEAVY = (
    "torch",
    "numpy",
    "scipy.stats",
    "pandas",
    "pyarrow.parquet",
    "pydantic",
    "PIL.Image",
    "pytest",
    "yaml",
)
QUIET = (
    "-p",
    "no:cacheprovider",
    "-p",
    "no:benchmark",
)  # the latter warns where tests run in parallel
COMPARED = {
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="), ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"), ast.In: ("in", "not in"), ast.NotIn: (r"not\s+in", "in"), ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
}  # fmt: skip
COMPUTED = {
    ast.Add: (r"\+", "-"), ast.Sub: ("-", "+"), ast.Mult: (r"\*", "/"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "/"),
    ast.Mod: ("%", "//"), ast.Pow: (r"\*\*", "*"), ast.BitAnd: ("&", "|"), ast.BitOr: (r"\|", "&"),
}  # fmt: skip
EITHER_WAY = {"fmin", "fmax", "minimum", "maximum", "min", "max", "equal", "allclose", "isclose"}
"""Functions whose first two arguments can be swapped without a mistake."""
NO_RESULT = {"strict", "non_blocking"}
"""Arguments without a say in any result: whether `zip` checks lengths, whether a copy is waited for."""
LAYOUT = re.compile(r"src/heatproof/(drawing/|report/|axes/.*page\.py)")
"""Files whose numbers are mostly pixels, which no test should hold."""
ONLY_ON_A_GPU = "src/heatproof/kernels/"
ONLY_WITH_LIBRARIES = re.compile(
    "src/heatproof/(explainers/adapters/|data/hub|models/loaders/(hubs|onnx)|runs/export/trackers|runs/executors/cluster"
    "|runs/quantus|cli/export)"
)
"""Files with functions that only tests of the second environment enter: Ray, MLflow, ONNX, hubs, other explainers."""
GPU = "HEATPROOF_MUTANTS_GPU"
MEMORY = 24 * 2**30
"""What a mutant may ask for; some ask for everything."""


# --- mutants ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class Mutant:
    """Some characters of a file and what stands there instead."""

    file: str
    line: int
    begin: int
    end: int
    new: str
    what: str
    function: str
    """`name:first line` of the function that it is in, as code objects say; empty outside of all."""

    def applied(self, text: str) -> str:
        """The file with the mistake."""
        return text[: self.begin] + self.new + text[self.end :]

    def diff(self, text: str) -> str:
        """The mistake as a person reads it."""
        lines = difflib.unified_diff(
            text.splitlines(), self.applied(text).splitlines(), self.file, self.file, "", "", 1
        )
        return "\n".join(list(lines)[2:])


class Sites(ast.NodeVisitor):
    """Every place of a file where a mistake can be put: no annotation, decorator, text or error message."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.text, self.found = file, text, list[Mutant]()
        self.function = ""
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._lines = text.splitlines(keepends=True)

    def at(self, line: int, column: int) -> int:
        """A place in the text; columns are told in bytes."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())

    def span(self, node: ast.AST) -> tuple[int, int]:
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def add(self, node: ast.AST, begin: int, end: int, new: str, what: str) -> None:
        line = self.text.count("\n", 0, begin) + 1
        self.found.append(Mutant(self.file, line, begin, end, new, what, self.function))

    def between(self, left: ast.AST, right: ast.AST, old: str, new: str) -> None:
        """An operator, which stands between what it joins."""
        begin, end = self.span(left)[1], self.span(right)[0]
        gap = re.sub(r"#[^\n]*", lambda comment: " " * len(comment[0]), self.text[begin:end])
        if (found := re.search(old, gap)) is not None:
            self.add(left, begin + found.start(), begin + found.end(), new, f"{found[0]} to {new}")

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        outer = self.function
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        self.function = f"{node.name}:{first}"
        for default in [
            *node.args.defaults,
            *(value for value in node.args.kw_defaults if value is not None),
        ]:
            self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self.function = outer

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if not any(
            isinstance(target, ast.Name) and target.id == "__all__" for target in node.targets
        ):
            self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        """Words for users."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Its columns are other ones before Python 3.12."""

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return
        begin, end = self.span(node.test)
        self.add(node, begin, end, f"not ({self.text[begin:end]})", "condition negated")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        (a, b), (c, d) = self.span(node.body), self.span(node.orelse)
        (e, f), words = self.span(node.test), self.text
        self.add(
            node,
            a,
            d,
            f"{words[c:d]}{words[b:e]}{words[e:f]}{words[f:c]}{words[a:b]}",
            "branches swapped",
        )
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        sides = [node.left, *node.comparators]
        for left, right, operator in zip(sides, sides[1:], node.ops, strict=False):
            self.between(left, right, *COMPARED[type(operator)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self.between(left, right, rf"\b{old}\b", new)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        begin, end = self.span(node)[0], self.span(node.operand)[0]
        if isinstance(node.op, ast.Not):
            self.add(node, begin, end, "(" * self.text[begin:end].count("("), "not dropped")
        elif isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
            self.add(node, begin, end, "+" + "(" * self.text[begin:end].count("("), "sign dropped")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        words = [isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str))
                 for side in (node.left, node.right)]  # fmt: skip
        if type(node.op) in COMPUTED and not any(words):
            self.between(node.left, node.right, *COMPUTED[type(node.op)])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        begin, end = self.span(node)
        if isinstance(node.value, bool):
            self.add(node, begin, end, str(not node.value), f"{node.value} to {not node.value}")
        elif LAYOUT.match(self.file):
            return
        elif isinstance(node.value, int):
            new = {1: 0}.get(node.value, node.value + 1)
            self.add(node, begin, end, str(new), f"{node.value} to {new}")
        elif isinstance(node.value, float):
            new_float = 2 * node.value or 1.0
            self.add(node, begin, end, repr(new_float), f"{node.value} to {new_float}")

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            self.add(node, *self.span(node), "pass", "call dropped")
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg not in NO_RESULT:
            self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> None:
        plain = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if (
            name not in EITHER_WAY
            and len(plain) == len(node.args) >= 2
            and ast.dump(plain[0]) != ast.dump(plain[1])
        ):
            (a, b), (c, d) = self.span(plain[0]), self.span(plain[1])
            self.add(
                node, a, d, self.text[c:d] + self.text[b:c] + self.text[a:b], "arguments swapped"
            )
        self.generic_visit(node)


def mutants(seed: int) -> list[Mutant]:
    """All of the package in the order of a seed."""
    found: list[Mutant] = []
    for path in sorted(PACKAGE.glob("**/*.py")):
        text = path.read_text(encoding="utf-8")
        sites = Sites(path.relative_to(ROOT).as_posix(), text)
        sites.visit(ast.parse(text))
        found += sites.found
    found.sort()
    random.Random(seed).shuffle(found)
    return found


def room(file: str) -> str:
    """The part of the package that a file is in; each axis is one of its own."""
    parts = Path(file).with_suffix("").parts[2:]
    return "/".join(parts[: 2 if parts[0] == "axes" and len(parts) > 2 else 1])


# --- which test enters which function -----------------------------------------------------------------------------


class Entered:
    """As a plugin of pytest: a line of JSON per test with what it enters of the package, and its seconds.

    What a fixture enters is told apart, since it is there for every test of the file.
    """

    def __init__(self, folder: Path) -> None:
        self.sink = (folder / f"{os.getpid()}.jsonl").open("w")
        self.seen: set[str] = set()
        self.kept: dict[str, dict[str, Any]] = {}
        self.prefix = f"{PACKAGE}{os.sep}"
        if sys.version_info >= (3, 12):
            watch, self.never_again = sys.monitoring, sys.monitoring.DISABLE
            watch.use_tool_id(watch.COVERAGE_ID, "mutants")
            watch.register_callback(watch.COVERAGE_ID, watch.events.PY_START, self._started)
            watch.set_events(watch.COVERAGE_ID, watch.events.PY_START)
        else:
            threading.setprofile(self._called)  # of threads that start from now on

    def pytest_runtest_setup(self) -> None:
        if sys.version_info < (
            3,
            12,
        ):  # anew for every test, since some libraries put their own in its place
            sys.setprofile(self._called)

    def _called(self, frame: Any, event: str, _: Any) -> None:
        if event == "call":
            self._note(frame.f_code)

    def _started(self, code: Any, _: int) -> Any:
        self._note(code)
        return self.never_again

    def _note(self, code: Any) -> None:
        if code.co_filename.startswith(self.prefix):
            self.seen.add(
                f"{code.co_filename[len(str(ROOT)) + 1 :]}::{code.co_name}:{code.co_firstlineno}"
            )

    def pytest_runtest_logreport(self, report: Any) -> None:
        if hasattr(report, "node"):
            return  # one of another process, told again
        entry = self.kept.setdefault(
            report.nodeid, {"test": report.nodeid, "seconds": 0.0, "passed": True}
        )
        entry["seconds"] += report.duration
        entry["passed"] &= report.passed
        entry[report.when] = sorted(self.seen)
        self.seen.clear()
        if sys.version_info >= (3, 12):
            sys.monitoring.restart_events()
        if report.when == "teardown":
            print(json.dumps(self.kept.pop(report.nodeid)), file=self.sink, flush=True)


def pytest_configure(config: Any) -> None:
    """This file is a plugin too."""
    if "HEATPROOF_MAP" in os.environ:
        config.pluginmanager.register(Entered(Path(os.environ["HEATPROOF_MAP"])))


def python_path(*first: Path) -> str:
    """These folders, and after them what is on the path besides the package."""
    rest = [
        part
        for part in os.environ.get("PYTHONPATH", "").split(os.pathsep)
        if part != str(ROOT / "src")
    ]
    return os.pathsep.join(filter(None, [*map(str, first), *rest]))


def draw_map(given: argparse.Namespace) -> None:
    """Run the tests once, and keep which function each of them enters."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        places = {
            "HEATPROOF_MAP": folder,
            "PYTHONPATH": python_path(ROOT / "src", ROOT / "benchmarks"),
        }
        command = [sys.executable, "-m", "pytest", "-p", "mutants", *QUIET, "--maxfail=1000"]
        command += [
            *(["--numprocesses", str(given.jobs), "--dist", given.dist] if given.jobs > 1 else []),
            *given.tests,
        ]
        with suppress(subprocess.TimeoutExpired):  # what was told until then is there
            settings = {
                **os.environ,
                **({} if given.gpu else {"CUDA_VISIBLE_DEVICES": ""}),
                **places,
            }
            subprocess.run(command, cwd=ROOT, env=settings, check=False, timeout=given.seconds)
        told = [path.read_text().rpartition("\n")[0] for path in Path(folder).glob("*.jsonl")]
        lines = [json.loads(line) for text in told for line in text.splitlines()]
    by_file: dict[str, set[str]] = defaultdict(set)
    for entry in lines:
        by_file[entry["test"].partition("::")[0]].update(entry.get("setup", ()))
    tests = {entry["test"]: round(entry["seconds"], 3) for entry in lines if entry["passed"]}
    entered: dict[str, list[str]] = defaultdict(list)
    for entry in lines:
        if entry["passed"]:
            for function in {*entry.get("call", ()), *by_file[entry["test"].partition("::")[0]]}:
                entered[function].append(entry["test"])
    order = sorted(tests)
    number = {test: i for i, test in enumerate(order)}
    content = {"tests": [[test, tests[test]] for test in order]}
    content["entered"] = {
        function: sorted(map(number.__getitem__, them)) for function, them in entered.items()
    }  # type: ignore[assignment]
    Path(given.out).write_text(json.dumps(content))
    print(f"{len(order)} tests of {len(lines)} pass; they enter {len(entered)} functions")


def chosen(mutant: Mutant, drawn: dict[str, Any], budget: float) -> tuple[list[str], float]:
    """The tests that meet a mutant, those of its own folder first, the quickest first, and their seconds."""
    key = f"{mutant.file}::{mutant.function}"
    numbers = set(drawn["entered"].get(key, ()))
    if not mutant.function:  # run when the file is imported: whoever enters anything of the file
        entered = drawn["entered"].items()
        numbers = {i for name, them in entered if name.startswith(f"{mutant.file}::") for i in them}
    own = (f"{mutant.file}::", f"tests/{room(mutant.file)}/")
    quickest = sorted(
        (drawn["tests"][i] for i in numbers),
        key=lambda test: (not test[0].startswith(own), test[1]),
    )
    taken, seconds = [], 0.0
    for name, needs in quickest:
        if seconds + needs > budget and taken:
            continue
        taken.append(name)
        seconds += needs
    return taken, seconds


# --- running ------------------------------------------------------------------------------------------------------

COPIES: dict[str, Path] = {}
CLOCK = [0]


def copy_of_the_repository() -> Path:
    """The one of this process, made when it is first asked for; the large packages are imported once."""
    if "here" not in COPIES:
        COPIES["here"] = Path(tempfile.mkdtemp(dir=os.environ["HEATPROOF_MUTANTS"]))
        for name in NEEDED:
            source, target = ROOT / name, COPIES["here"] / name
            if source.is_dir():
                shutil.copytree(
                    source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
                )
            elif source.exists():
                shutil.copy(source, target)
        sys.path[:] = [
            path for path in sys.path if path not in (str(ROOT / "src"), str(ROOT / "benchmarks"))
        ]
        os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": python_path(COPIES["here"] / "src")}
        for name in HEAVY:
            __import__(name)
    return COPIES["here"]


def attempt(given: tuple[int, Mutant, list[str], float]) -> dict[str, Any]:
    """One mutant against its tests."""
    number, mutant, tests, seconds = given
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    told = {
        "number": number,
        "status": "untested",
        "room": room(mutant.file),
        "file": mutant.file,
        "line": mutant.line,
    }
    told |= {
        "what": mutant.what,
        "diff": mutant.diff(text),
        "tests": len(tests),
        "by": "",
        "seconds": 0.0,
    }
    if not tests:
        elsewhere = mutant.file.startswith(ONLY_ON_A_GPU) or ONLY_WITH_LIBRARIES.match(mutant.file)
        return told | ({"status": "elsewhere"} if elsewhere else {})
    here = copy_of_the_repository()
    target = here / mutant.file
    limit, gpu = 2 * seconds + 20, mutant.file.startswith(ONLY_ON_A_GPU)
    begun = time.perf_counter()
    while tests:
        change(target, mutant.applied(text))
        told["status"], told["by"] = outcome(here, tests, limit, gpu)
        change(target, text)
        if told["status"] == "timeout" and outcome(here, tests, limit, gpu)[0] == "timeout":
            told["status"] = (
                "survived"  # they are as slow without the mistake, so that says nothing
            )
        asked = (
            told["by"] if told["by"] in tests else tests[0]
        )  # or the package cannot be imported any more
        if told["status"] != "killed" or passes(here, asked, gpu):
            break
        told["status"], tests = "untested", [test for test in tests if test != asked]
    told["seconds"] = round(time.perf_counter() - begun, 1)
    return told


def change(target: Path, text: str) -> None:
    """Write a file with a time of its own, or Python takes the bytecode of another text of the same length."""
    target.write_text(text, encoding="utf-8")
    CLOCK[0] += 2
    os.utime(target, (CLOCK[0] + 10**9,) * 2)


def passes(here: Path, test: str, gpu: bool) -> bool:
    """Whether a test passes by itself in a copy without a mistake; asked once for all processes."""
    known = here.parent / hashlib.sha256(test.encode()).hexdigest()
    if not known.exists():
        known.write_text(outcome(here, [test], 120, gpu)[0])
    return known.read_text() == "survived"


def outcome(here: Path, tests: list[str], limit: float, gpu: bool) -> tuple[str, str]:
    """How some tests end in a process of their own, and the first that fails; `limit` in seconds of the processor."""
    begun = time.perf_counter()
    child = os.fork()
    if child == 0:
        run_tests(here, tests, limit, gpu)
    while time.perf_counter() - begun < 3 * limit:
        if (ended := os.waitpid(child, os.WNOHANG))[0]:
            if os.waitstatus_to_exitcode(ended[1]) == 0:
                return "survived", ""
            if os.waitstatus_to_exitcode(ended[1]) == -signal.SIGXCPU:
                break
            said = (here / "said.txt").read_text(errors="replace")
            found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", said, re.MULTILINE)
            return "killed", found[1] if found else said[-300:]
        time.sleep(0.02)
    with suppress(ProcessLookupError, ChildProcessError):
        os.killpg(
            child, signal.SIGKILL
        )  # the group that the child made, with whatever its tests started
        os.waitpid(child, 0)
    return "timeout", ""


def run_tests(here: Path, tests: list[str], limit: float, gpu: bool) -> None:
    """In a process of its own, which does not come back."""
    os.setsid()
    os.chdir(here)
    spent = resource.getrusage(resource.RUSAGE_SELF)
    most = int(spent.ru_utime + spent.ru_stime + limit) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
    if gpu and GPU in os.environ:  # its driver reserves more addresses than there is memory
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ[GPU]
    else:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with open("said.txt", "wb") as sink:
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    sys.path[:0] = [str(here / "src")]
    import pytest

    code = pytest.main(["-x", *QUIET, "--tb=no", "-rfE", *tests])
    sys.stdout.flush()
    os._exit(int(code))


def run(given: argparse.Namespace) -> None:
    """The mutants of a seed that are not in the file yet."""
    drawn = json.loads(Path(given.map).read_text())
    out = Path(given.out)
    kept = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    kept = [
        told for told in kept if not given.again or told["status"] not in ("survived", "untested")
    ]
    out.write_text("".join(f"{json.dumps(told)}\n" for told in kept))
    done = {told["number"] for told in kept}
    everything = mutants(given.seed)
    numbers = [i for i in range(given.start, given.start + given.count) if i not in done]
    numbers = [i for i in numbers if given.only in everything[i].file]
    work = [(i, everything[i], *chosen(everything[i], drawn, given.budget)) for i in numbers]
    begun = time.perf_counter()
    print(
        f"{len(work)} of {len(everything)} places; {sum(item[3] for item in work):.0f} s of tests at most",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder, out.open("a") as sink:
        os.environ |= {
            "HEATPROOF_MUTANTS": folder,
            **({GPU: "0"} if given.gpu else {}),
            "CUDA_VISIBLE_DEVICES": "",
        }
        for told in attempts(work, given.jobs):
            print(json.dumps(told), file=sink, flush=True)
            print(
                f"{told['number']:>5} {told['status']:<9} {told['file']}:{told['line']} {told['what']}",
                flush=True,
            )
            if time.perf_counter() - begun > given.seconds:
                break
    show(argparse.Namespace(files=[given.out]))


def attempts(work: list[Any], jobs: int) -> Iterator[dict[str, Any]]:
    """As they come in."""
    if jobs == 1:
        yield from map(attempt, work)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(attempt, work)


def show(given: argparse.Namespace) -> None:
    """Counts by room, and the diff of whatever was not killed."""
    told = [
        json.loads(line) for file in given.files for line in Path(file).read_text().splitlines()
    ]
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for entry in told:
        counts[entry["room"]][entry["status"]] += 1
        counts["all"][entry["status"]] += 1
    for entry in told:
        if entry["status"] in ("survived", "untested"):
            print(
                f"\n{entry['number']} {entry['status']}, {entry['tests']} tests: {entry['what']}\n{entry['diff']}"
            )
    columns = ("killed", "timeout", "survived", "untested", "elsewhere")
    print("\n" + f"{'room':<24}" + "".join(f"{column:>10}" for column in columns))
    for name in [*sorted(set(counts) - {"all"}), "all"]:
        print(f"{name:<24}" + "".join(f"{counts[name][column]:>10}" for column in columns))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("map")
    one.add_argument("tests", nargs="*", help="by default all")
    one.add_argument("--out", required=True)
    one.add_argument("--jobs", type=int, default=1)
    one.add_argument("--dist", default="loadfile", help="how pytest-xdist shares the tests")
    one.add_argument(
        "--seconds", type=float, help="stop after so long, with the tests that have ended"
    )
    one.add_argument("--gpu", action="store_true", help="do not hide the GPU from the tests")
    two = commands.add_parser("run")
    two.add_argument("--map", required=True)
    two.add_argument("--out", required=True)
    two.add_argument("--seed", type=int, required=True)
    two.add_argument("--start", type=int, default=0)
    two.add_argument("--count", type=int, default=300)
    two.add_argument("--jobs", type=int, default=1)
    two.add_argument(
        "--gpu", action="store_true", help="do not hide the GPU from the tests of kernels"
    )
    two.add_argument(
        "--again", action="store_true", help="also those of the file that survived or met no test"
    )
    two.add_argument(
        "--only", default="", help="of these, the ones in files whose names contain this"
    )
    two.add_argument("--budget", type=float, default=40, help="seconds of tests for one mutant")
    two.add_argument("--seconds", type=float, default=1e9, help="stop after about so long")
    three = commands.add_parser("show")
    three.add_argument("files", nargs="+")
    given = parser.parse_args()
    {"map": draw_map, "run": run, "show": show}[given.command](given)


if __name__ == "__main__":
    main()
