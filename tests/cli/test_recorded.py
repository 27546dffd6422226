"""What every command prints of a whole run and of a study, word by word, and the defaults of its options."""

from __future__ import annotations

import inspect
import re
from xml.etree import ElementTree

import pytest

from heatproof import cli
from heatproof.cli.export import _say
from heatproof.report.figures import File, Written
from heatproof.runs.study.registry import catalogue
from support.paths import SMALL
from support.recorded import recorded
from support.whole import BASE, MOVED

STUDY = f"""\
model: python:{SMALL}:model
data: python:{SMALL}:dataset
explainers: [saliency, {{lime: {{samples: 20}}}}, random]
evaluations: [stability, certificate, {{symmetry: {{group: {{dihedral: {{n: 2}}}}}}}}, faithfulness, agreement]
limit: 7
seed: 3
keep_maps: true
"""
WISHES = [
    "stability.fass >= 0.4 @ 0.9",
    "stability.fass.noise_floor >= 0.2",
    "stability.fass.chance{explainer=lime*|random} <= 0.9",
    "stability.fass{condition=each, explainer=grad_cam} > 0.55",
    "stability.retention >= 0.5",
    "stability.spearman.aligned{rotation=15} >= 0.3 @ 0.8",
    "faithfulness.road{condition=zero} >= 0.05",
    "faithfulness.infidelity_scaled <= 0.9 @ 0.99",
]


def plain(text: str, *places: object) -> list[str]:
    for i, place in enumerate(places):
        text = text.replace(str(place), f"PLACE{i}")
    text = re.sub(r"/[^ \n]*heatproof-[^ \n,]*", "RUN", text)
    return re.sub(r"\d{4}-\d\d-\d\d(T[\d:.+]*)?", "DATE", text).splitlines()


def test_the_gate_in_every_form(main, tmp_path) -> None:
    junit = tmp_path / "junit.xml"
    wishes = [part for wish in WISHES for part in ("--require", wish)]
    for form in ("text", "json", "github"):
        code, out, error = main("check", MOVED, *wishes, "--format", form, "--junit", junit)
        assert (code, error) == (1, "")
        said = re.sub(r"[0-9a-f]{32}", "KEY", out).replace("KEY", "key")
        recorded(f"cli/check-{form}", plain(said, MOVED))
    assert junit.read_bytes().startswith(b"<?xml version='1.0' encoding='utf-8'?>\n<testsuites ")
    told = [
        [e.tag, *e.attrib.values(), (e.text or "").strip()] for e in ElementTree.parse(junit).iter()
    ]
    recorded(
        "cli/check-junit", [" | ".join(line).replace(str(MOVED), "PLACE") for line in told[::3]]
    )


def test_limits_and_strict_bounds_change_what_the_gate_says(main) -> None:
    few = main("check", MOVED, "--require", WISHES[0], "--min-samples", 20)[1]
    none = main(
        "check", MOVED, "--require", WISHES[6], "--max-undefined", 0.0, "--min-retention", 0.95
    )[1]
    strict = main("check", MOVED, "--require", WISHES[4], "--strict")[1]
    recorded("cli/check-limits", [plain(text) for text in (few, none, strict)])


def test_exports_say_what_they_wrote(main, tmp_path) -> None:
    for kind in ("csv", "arrow", "hf"):
        code, out, error = main("export", MOVED, "--to", kind, "--out", tmp_path / kind)
        assert (code, error) == (0, "")
        recorded(f"cli/export-{kind}", plain(out, tmp_path))
    tables = {
        path.name: path.read_text().splitlines()
        for path in sorted((tmp_path / "csv").glob("*.csv"))
    }
    recorded(
        "cli/csv",
        {name: [len(lines), *lines[:1], *lines[5::997][:9]] for name, lines in tables.items()},
    )
    recorded("cli/card", plain((tmp_path / "hf" / "README.md").read_text(), tmp_path))
    code, out, error = main("export", MOVED, "--to", "maps", "--out", tmp_path / "maps")
    recorded("cli/export-maps", [code, plain(out, tmp_path), plain(error, tmp_path)])


def test_verify_report_and_show(main, tmp_path) -> None:
    assert main("verify", BASE) == (0, f"63 files whole, 0 amiss in {BASE}\n", "")
    code, out, _ = main("report", MOVED, "--text")
    recorded("cli/report-text", [code, plain(out)])
    code, out, _ = main("show", MOVED, "--worst", 4, "--explainer", "grad*")
    recorded(
        "cli/show", [code, " ".join("\n".join(plain(out)).split()).partition("by heatproof")[2]]
    )  # before it is a path
    assert main("report", MOVED, "--text", "--out", "x.html")[2] == (
        "heatproof: --text prints and --out writes; give one of them\n"
    )


@pytest.mark.parametrize(
    "kind", ["explainers", "evaluations", "perturbations", "presets", "groups", "features"]
)
def test_listings_with_all_parameters_and_defaults(kind: str) -> None:
    recorded(f"cli/ls-{kind}", [f"{name}: {text}" for name, text in catalogue(kind)])


@pytest.mark.parametrize("kind", ["imputers", "measures"])
def test_listings_of_imputers_and_measures(kind: str) -> None:
    recorded(f"cli/ls-{kind}", [f"{name}: {text}" for name, text in catalogue(kind)])


def test_a_plan_in_words(main, tmp_path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    code, out, error = main("plan", path, "--allow-code", "--no-trial")
    recorded("cli/plan", [code, plain(out, tmp_path), plain(error, tmp_path)])


def test_commands_their_places_and_the_defaults_of_their_options() -> None:
    told = {}
    for panel, commands in cli.COMMANDS.items():
        for name, command in commands.items():
            options = inspect.signature(command).parameters.values()
            usual = {
                o.name: "needed" if o.default is inspect.Parameter.empty else o.default
                for o in options
            }
            told[name] = f"{panel}: {usual}"
    recorded("cli/options", told)


def test_figures_that_were_left_out_are_told_from_nothing_written(tmp_path, capsys) -> None:
    file = File(tmp_path / "curve.pdf", "curve", "paper", "net", "caption")
    skipped = [("frontier", "net", "one axis only")]
    _say(Written([file], skipped, tmp_path / "index.json"))
    some = capsys.readouterr().out
    _say(Written([], skipped, tmp_path / "index.json"))
    none = capsys.readouterr().out
    assert "left out\n" in some and "1 file in" in some and "index.json lists the files" in some
    assert (
        none.startswith("nothing was written\n")
        and "frontier  net: one axis only" in none
        and "lists" not in none
    )
