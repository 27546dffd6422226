"""What the page must have on it, read as a browser without a network would."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

import heatproof
from border import nets
from border.entry import command, write_study
from border.kinds import EVALUATIONS, KINDS

COUNT = 8
LOADING = ("src", "srcset", "data", "poster", "background", "action")
"""Attributes of which a browser loads the value, without a click."""
CLAIM = re.compile(r"\b(best|winner|wins|significant|significantly|outperforms|superior)\b", re.I)
DENIAL = re.compile(r"\b(no|not|none|nothing|cannot|neither|nor|never|undecided|without)\b", re.I)


class Page(HTMLParser):
    """The visible text, the rows of tables and what would be loaded."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self.rows: list[str] = []
        self.loads: list[str] = []
        self.scripts: list[str] = []
        self.styles = ""
        self.tag = ""
        self.in_row = False
        self.feed(path.read_text("utf-8"))
        self.text = " ".join(" ".join(self.pieces).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.tag = tag
        self.loads += [named[name] for name in LOADING if name in named]
        if tag in ("link", "image", "use"):
            self.loads += [named[name] for name in ("href", "xlink:href") if name in named]
        self.styles += named.get("style", "")
        if tag == "script":
            self.scripts.append("")
        if tag == "tr":
            self.in_row = True
            self.rows.append("")
        self.pieces += [named[name] for name in ("title", "alt", "aria-label") if name in named]

    def handle_endtag(self, tag: str) -> None:
        self.tag = ""
        if tag == "tr":
            self.in_row = False

    def handle_data(self, data: str) -> None:
        if self.tag == "script":
            self.scripts[-1] += data
        elif self.tag == "style":
            self.styles += data
        else:
            self.pieces.append(data)
            if self.in_row:
                self.rows[-1] += f" {data}"


def assert_offline(page: Page) -> None:
    """Nothing on the page is fetched: every resource is in the file itself."""
    for address in page.loads:
        assert address == "" or address.startswith(("data:", "#")), address
    for address in re.findall(r"url\(\s*['\"]?([^'\")]+)", page.styles):
        assert address.startswith(("data:", "#")), address
    assert "@import" not in page.styles
    for called in ("fetch(", "XMLHttpRequest", "importScripts", "WebSocket", "EventSource"):
        assert not any(called in script for script in page.scripts)
    for script in page.scripts:
        assert not re.search(r"\bimport\s*\(|\bfrom\s+['\"]https?:", script)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose methods have names that stand nowhere else on the page."""
    folder = tmp_path_factory.mktemp("page")
    named = ["{saliency: {}, as: alpha-map}", "{input_x_gradient: {}, as: beta-map}"]
    named += ["{random: {}, as: noise-map}", "{sobel: {}, as: edge-map}"]
    tests = [EVALUATIONS["image"][0], "localisation", "dependence: {draws: 1}"]
    study = write_study(folder, "image", f"[{', '.join(named)}]", tests)
    done = command("run", study, "--allow-code", "--out", folder / "run")
    assert done.code == 0, done.err
    return folder / "run"


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_of_every_kind_of_data_names_its_methods_and_tests(kind, studied):
    text = Page(studied(kind) / "report.html").text.lower()
    assert "saliency" in text and "random" in text
    for line in EVALUATIONS[kind]:
        stem = {"smoothing": "smooth"}.get(name := line.split(":")[0], name)
        assert stem in text, name


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_of_every_kind_of_data_works_offline(kind, studied):
    assert_offline(Page(studied(kind) / "report.html"))


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_says_how_many_samples_there_were(kind, studied):
    text = Page(studied(kind) / "report.html").text
    assert re.search(rf"\b{COUNT}\b [a-z]+", text)


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_shows_samples_by_their_ids_and_no_others(kind, studied):
    shown = set(re.findall(r"case-\d+", Page(studied(kind) / "report.html").text))
    assert shown and shown <= set(nets.NAMES)


def test_methods_have_the_names_that_the_study_gives_them(labelled):
    page = Page(labelled / "report.html")
    for name in ("alpha-map", "beta-map", "noise-map", "edge-map"):
        assert name in page.text
        assert any(name in row for row in page.rows), name


def test_controls_are_marked_and_methods_are_not(labelled):
    page = Page(labelled / "report.html")
    for name, is_control in {
        "alpha-map": False,
        "beta-map": False,
        "noise-map": True,
        "edge-map": True,
    }.items():
        marked = [row for row in page.rows if name in row and "control" in row.lower()]
        assert bool(marked) == is_control, name


def test_scores_on_the_page_are_those_of_the_ranking(labelled):
    run = heatproof.read(labelled)
    page = Page(labelled / "report.html")
    for row in run.ranking("stability").itertuples():
        rounded = f"{row.score:.2f}".replace("-", "−")
        assert any(row.explainer in line and rounded in line for line in page.rows), row.explainer


def test_controls_have_no_rank(labelled):
    ranking = heatproof.read(labelled).ranking("stability").set_index("explainer")["rank"]
    assert ranking[["noise-map", "edge-map"]].isna().all()
    assert ranking[["alpha-map", "beta-map"]].notna().all()


def test_the_page_is_drawn_again_byte_by_byte(studied, tmp_path):
    drawn = (studied("set") / "report.html").read_bytes()
    assert command("report", studied("set"), "--out", tmp_path / "again.html").code == 0
    assert (tmp_path / "again.html").read_bytes() == drawn


def test_a_name_is_shown_as_text_and_never_as_markup(tmp_path):
    data = nets.series_data()
    hostile = ("<script>alert(1)</script>", *data.ids[1:])
    data = heatproof.Batch(hostile, data.x)
    run = heatproof.evaluate(nets.series_model(), data, ["saliency"], "stability", tmp_path / "run")
    page = Page(run.report())
    assert "alert(1)" not in [script.strip() for script in page.scripts]
    assert "<script>alert(1)</script>" in page.text


# Runs that allow no conclusion.


def flat_too(model, batch, target, seed):
    return nets.constant_map(model, batch, target, seed)


flat_too.stochastic = False
POOR: dict[str, tuple[Callable[[], heatproof.Batch], object]] = {
    "everything undefined": (nets.series_data, {"alpha": nets.constant_map, "beta": flat_too}),
    "one sample": (
        lambda: nets.series_data()[:1],
        {"alpha": "saliency", "beta": "input_x_gradient", "noise": "random"},
    ),
    "one method": (nets.series_data, {"alpha": "saliency"}),
    "only controls": (nets.series_data, {"noise": "random", "weights": "weight_noise"}),
}


@pytest.fixture(scope="module")
def poor(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], heatproof.Run]:
    made: dict[str, heatproof.Run] = {}
    tests = ["stability", heatproof.Certificate(radii=(1,)), heatproof.Dependence(draws=1)]
    tests.append(heatproof.Faithfulness(fractions=(0.5,), metrics=("road",)))
    tests.append(heatproof.Symmetry(group="cyclic", elements=3))

    def run(what: str) -> heatproof.Run:
        if what not in made:
            data, explainers = POOR[what]
            out = tmp_path_factory.mktemp("poor") / "run"
            made[what] = heatproof.evaluate(nets.series_model(), data(), explainers, tests, out)
            made[what].report()
        return made[what]

    return run


every_poor_run = pytest.mark.parametrize("what", POOR)


@every_poor_run
def test_a_run_that_allows_no_conclusion_has_a_page_all_the_same(what, poor):
    run = poor(what)
    page = Page(run.path / "report.html")
    assert_offline(page)
    for name in POOR[what][1]:
        assert name in page.text
    assert set(re.findall(r"case-\d+", page.text)) <= set(run.samples()["sample"])


@every_poor_run
def test_a_run_that_allows_no_conclusion_says_so_in_text(what, poor):
    text = poor(what).text()
    for name in POOR[what][1]:
        assert name in text


@every_poor_run
def test_a_run_that_allows_no_conclusion_claims_no_best_method(what, poor):
    page = Page(poor(what).path / "report.html")
    for sentence in re.split(r"(?<=[.:;!?])\s", page.text):
        if CLAIM.search(sentence) and any(name in sentence for name in POOR[what][1]):
            assert DENIAL.search(sentence), sentence


@pytest.mark.parametrize("what", sorted(POOR))
def test_a_run_that_allows_no_conclusion_has_no_significant_difference(what, poor):
    found = poor(what).tests()
    assert not (found["significant"]).any()


def test_where_everything_is_undefined_there_is_no_score_and_no_rank(poor):
    run = poor("everything undefined")
    assert run.ranking()[["score", "rank"]].isna().all(axis=None)


def test_one_sample_has_no_interval(poor):
    assert poor("one sample").ranking()[["low", "high"]].isna().all(axis=None)


def test_controls_alone_have_no_rank(poor):
    assert poor("only controls").ranking()["rank"].isna().all()
