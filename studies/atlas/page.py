"""Write the atlas: `docs/atlas.md` (one screen), `docs/atlas-claims.md` (the details), its leaderboard and figures.

    python studies/atlas/page.py                        all of it, from the committed tables
    python studies/atlas/page.py --sheets RUNS_FOLDER   also the proof sheets of the runs in a folder
    python studies/atlas/page.py --tables DIR --docs DIR          from other tables, to somewhere else

Every number on the page comes from `tables/` by a function of this folder; what is not in a table is "not run yet".
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import figures
import leaderboard
import pandas as pd
from claims import (
    DOES_NOT,
    GRID,
    HOLDS,
    MIXED,
    NOT_RUN,
    UNDECIDED,
    UNTESTABLE,
    AxisResult,
    all_claims,
    in_short,
    judge,
    part_verdict,
    verdict,
    with_more,
)
from reading import HEADLINES, TABLES, Tables, load
from spread import Split
from whole import whole

from heatproof.report.canvas import Sheet
from heatproof.results.names import TITLES
from heatproof.text import number, with_interval

PAPERS = {
    "FASS": "FASS",
    "Soft stability": "Soft stability",
    "Invariance": "Explanation invariance and equivariance",
}
PAPERS |= {
    "ROAD": "ROAD",
    "SRG": "Symmetric relevance gain (SRG)",
    "LATEC": "LATEC",
    "": "Sanity checks",
}
FIGURES = {
    "verdicts": "A square for every claim, by paper and verdict",
    "strip": "Claims with a published number beside what was found",
    "matrix": "Headline scores of methods on networks, axis by axis",
    "frontier": "Methods by stability and faithfulness, on small pictures",
    "photographs": "Methods by stability and faithfulness, on photographs",
    "spread": "Shares of the variance of FASS with their intervals",
    "severity": "Predictions kept and scores against the strength of five perturbations",
}
DATED = "18 November 2026"
"""When the committed tables were made. A verdict follows from them, with the statistics of that day."""
RETESTED = "20 November 2026"
"""When `tables/ahead.csv` was made."""
ARITHMETIC = "page"
"""The command of claims that need no run."""
ASKED = {
    "fass": "stability",
    "soft-s": "smoothing",
    "soft-a": "smoothing",
    "soft": "certificate",
    "inv": "symmetry",
}
ASKED |= {"road": "faithfulness", "srg": "faithfulness", "sanity": "dependence"}
"""The axis whose runs a claim rests on, by how its key begins."""
PLANNED = {"": 1000, "photographs": 500, "ecg": 400, "graphs": 400, "points": 400, "text": 400}
"""Samples of every network that were planned, by its data."""
LARGEST = 1_000_000
"""All figures together, in bytes."""
LARGE = 60_000
"""Bytes of an SVG from which on it is a PNG."""


def grid(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """A table in markdown."""
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in [[*head], ["---"] * len(head), *cells]]


def claim_rows(t: Tables, judged: Sequence[AxisResult]) -> list[str]:
    """Claim and section, published, found with its interval, and the verdict; in small what the number rests on."""
    rows = []
    for j in judged:
        place = j.claim.place if j.claim.paper in PAPERS else f"{j.claim.paper}, {j.claim.place}"
        command = f"[{j.found.command}](#commands)" if j.found.command and j.found.parts else ""
        seen = f"would have been seen: {j.power}" if j.power else ""
        rests = "; ".join(filter(None, (samples_of(t, j), seen, command)))
        found = f"{j.shown}<br><small>{rests}</small>" if rests else j.shown
        rows.append(
            (
                f"{j.claim.text} <small>({place})</small>",
                j.claim.published,
                found,
                f"**{j.verdict}**",
            )
        )
    return grid(("claim", "published", "found", "verdict"), rows)


def samples_of(t: Tables, j: AxisResult) -> str:
    """How many samples of each network the parts of a claim rest on, where they are of networks of the grid."""
    if not j.found.parts or t.runs.empty:
        return ""
    if j.found.samples:
        return _counted(pd.Series(j.found.samples))
    axis = _axis_of(j)
    asked = t.asked[t.asked["axis"] == axis] if axis else t.asked
    known = t.measured(j.claim.key)
    named = {part.label.split(",")[0] for part in j.found.parts}
    own = [
        *known["n"].astype(int),
        *asked.loc[asked["network"].isin(named - set(known["part"])), "samples"],
    ]
    if not own and j.found.command != GRID:
        return ""
    return _counted(pd.Series(own or asked["samples"]))


def _axis_of(j: AxisResult) -> str:
    """The axis that a claim is about; empty where it is about several."""
    return next((axis for key, axis in ASKED.items() if j.claim.key.startswith(key)), "")


def more_lines(t: Tables, judged: Sequence[AxisResult]) -> list[str]:
    """What the samples that were planned would decide, if every value stayed as it is."""
    planned = (
        t.networks.set_index("network")["data"]
        .map(lambda data: PLANNED.get(data, PLANNED[""]))
        .to_dict()
    )
    before, after, changed = 0, 0, []
    for j in judged:
        asked = t.kept.rename(columns={"attempted": "samples"}) if j.found.samples else t.asked
        own = (
            asked[asked["axis"] == _axis_of(j)]
            .groupby("network", observed=True)["samples"]
            .max()
            .to_dict()
        )
        each = (
            t.select(axis=_axis_of(j))
            .groupby(["network", "explainer"], observed=True)["attempted"]
            .max()
        )
        own |= {
            f"{network}, {explainer}": count
            for (network, explainer), count in each.dropna().items()
        }
        grown = with_more(j.found, own, planned)
        before += sum(part_verdict(p, j.found) == UNDECIDED for p in j.found.parts)
        after += sum(part_verdict(p, grown) == UNDECIDED for p in grown.parts)
        if j.found.parts and verdict(grown) != j.verdict:
            changed.append(f"{j.claim.text} ({j.verdict}, then {verdict(grown)})")
    counted = (
        f"{len(changed)} verdicts" if len(changed) > 1 else "1 verdict" if changed else "no verdict"
    )
    said = f"With {PLANNED['']:,} test pictures and {PLANNED['photographs']} photographs of every network, and all "
    said += f"values as they are, {before - after} of {before} undecided parts of claims would be decided, and "
    said += f"{counted} would be another"
    return [said + (": " + "; ".join(changed) if changed else "") + "."]


def _counted(counts: pd.Series) -> str:
    low, high = counts.min(), counts.max()
    return (
        f"n = {low} samples a network" if low == high else f"n = {low} to {high} samples a network"
    )


def short(judged: Sequence[AxisResult]) -> list[str]:
    """How many claims of each paper came out how; what has no verdict is in one column."""
    shown = (HOLDS, DOES_NOT, MIXED, UNDECIDED)

    def row(title: str, own: Sequence[AxisResult]) -> tuple[object, ...]:
        counts = Counter(j.verdict for j in own)
        return (
            title,
            len(own),
            *(counts[v] or "" for v in shown),
            len(own) - sum(counts[v] for v in shown) or "",
        )

    rows = [row(title, [j for j in judged if _of(j, paper)]) for paper, title in PAPERS.items()]
    return grid(("paper", "claims", *shown, "no verdict"), [*rows, row("all", judged)])


def outcomes(judged: Sequence[AxisResult]) -> list[str]:
    """The claims by their verdict, folded."""
    lines = []
    for name in (DOES_NOT, HOLDS, MIXED, UNDECIDED):
        texts = [
            f"{j.claim.text} ({j.claim.paper}, {j.claim.place})"
            for j in judged
            if j.verdict == name
        ]
        if texts:
            lines += [
                f'??? note "{name.capitalize()}: {len(texts)}"',
                *(f"    - {text}" for text in texts),
                "",
            ]
    return lines


def _of(j: AxisResult, paper: str) -> bool:
    return j.claim.paper == paper or (paper == "" and j.claim.paper not in PAPERS)


def spread_lines(found: Split | None) -> list[str]:
    """The split of the variance as a table, and what can be said of it."""
    if found is None:
        return [
            f"{NOT_RUN.capitalize()}: this needs three networks and three methods that all of them have."
        ]
    rows = [(r.factor, with_interval(r.value, r.low, r.high)) for r in found.table().itertuples()]
    method, low, high = (
        found.contrast("method", "architecture")
        if "architecture" in found.names
        else (0.0, -1.0, 1.0)
    )
    told = (
        "The method matters more than the architecture"
        if low > 0
        else "The architecture matters more than the method"
    )
    told = (
        told
        if low > 0 or high < 0
        else "Whether the method or the architecture matters more is undecided"
    )
    said = f"{told}: {with_interval(method, low, high)} of the variance is the difference, over {found.cells:,} cells."
    table = [f"    {line}" for line in grid(("part", "share of the variance of FASS"), rows)]
    return [said, "", '??? note "The shares in numbers"', "", *table]


def recommendations(t: Tables) -> list[str]:
    """Per axis the methods that no other beats on any network of images, where they beat one on every network."""
    tested = t.pairs.merge(
        t.networks.loc[t.networks["modality"] == "image", ["network"]], on="network"
    )
    if tested.empty:
        return [f"{NOT_RUN.capitalize()}: there are no paired tests in the tables."]
    blind = t.select(axis="dependence", measure="dependence", condition="weights")
    unseeing = set(blind.loc[blind["high"].astype(float) < 0.1, "base"])
    counts, rows = figures.unbeaten(t), []
    for axis in figures.PURPOSES:
        networks = tested.loc[tested["axis"] == axis, "network"].nunique()
        part = counts[(counts["axis"] == axis) & ~counts["explainer"].isin(unseeing)]
        if not networks or part.empty:
            continue
        ahead = part[(part["lost"] == 0) & (part["won"] == networks)]["explainer"]
        level = part[(part["lost"] == 0) & (part["won"] < networks)]
        open_ = (
            ", ".join(f"{_title(r.explainer)} ({r.won} of {r.asked})" for r in level.itertuples())
            or "–"
        )
        said = ", ".join(map(_title, ahead)) or "none"
        rows.append((figures.BY_NAME[axis].question, networks, said, open_))
    head = (
        "purpose",
        "networks",
        "ahead on every network, beaten on none",
        "beaten on none (ahead on, of those asked)",
    )
    return grid(head, rows) if rows else ["No two methods are told apart on any network."]


def _title(method: str) -> str:
    return TITLES.get(method, method)


def networks_lines(t: Tables) -> list[str]:
    """What was trained or taken, with accuracy and cost."""
    if t.networks.empty:
        return [f"{NOT_RUN.capitalize()}: there are no networks in the tables."]
    rows = []
    place = (
        t.networks["data"]
        .map({name: i for i, name in enumerate(figures.DATA)})
        .fillna(len(figures.DATA))
    )
    for r in t.networks.assign(place=place).sort_values(["place", "network"]).itertuples():
        right = (
            with_interval(100 * r.accuracy, 100 * r.accuracy_low, 100 * r.accuracy_high)
            if r.accuracy > 0
            else "–"
        )
        epochs = re.search(r"--epochs (\d+)", str(r.command))
        about = (
            r.variant,
            _count(r.parameters),
            right,
            number(r.ece, 3),
            epochs[1] if epochs else "–",
        )
        rows.append((f"`{r.network}`", *about, number(r.seconds_to_train, 0)))
    how = "The command of each is in `studies/atlas/tables/networks.csv`."
    head = (
        "network",
        "variant",
        "parameters",
        "% right on test pictures",
        "calibration error",
        "epochs",
        "seconds",
    )
    return [how, "", *grid(head, rows)]


def _count(value: float) -> str:
    return f"{value:,.0f}" if pd.notna(value) else "–"


def cost_lines(t: Tables) -> list[str]:
    """Minutes of trainings and of runs."""
    if t.networks.empty:
        return [f"{NOT_RUN.capitalize()}: there are neither networks nor runs in the tables."]
    taught = t.networks["seconds_to_train"].dropna()
    minutes = number(taught.sum() / 60, 1)
    said = (
        f"Training: {len(taught)} networks, {minutes} minutes by their own clocks, several at once."
    )
    if t.runs.empty:
        return [said, "", f"Runs: {NOT_RUN}."]
    headlines = {name for names in HEADLINES.values() for name in names}
    undefined = t.cells.loc[t.cells["measure"].isin(headlines), "undefined"].sum()
    images = t.runs["network"].isin(t.networks.loc[t.networks["modality"] == "image", "network"])
    fast = (
        ~t.runs["device"].eq("cpu") & images
    )  # rows older than the column say nothing; images were on the device
    seconds = [t.runs.loc[fast == own, "device_seconds"] for own in (True, False)]
    device, core = (f"{len(part)} runs, {number(part.sum() / 60, 1)} minutes" for part in seconds)
    told = f"On the device: {device}; on a core of a processor that others used too: {core}. "
    told += f"{undefined:,.0f} headline scores are undefined, and count as such in the tables."
    by = t.runs.groupby("axes", sort=False)
    took = {axes: number(part["device_seconds"].sum() / 60, 1) for axes, part in by}
    rows = [(axes, len(part), _count(part["samples"].sum()), took[axes]) for axes, part in by]
    return [said, "", told, "", *grid(("axes", "runs", "samples", "minutes"), rows)]


def in_one_sentence(t: Tables, judged: Sequence[AxisResult]) -> list[str]:
    """Return what came of all claims, in one sentence."""
    counts = Counter(j.verdict for j in judged)
    unjudged = len(judged) - sum(counts[v] for v in (HOLDS, DOES_NOT, MIXED, UNDECIDED))
    text = (
        f"**Of {len(judged)} published claims that we tested on {len(t.networks)} small networks, "
    )
    text += f"{counts[HOLDS]} hold and {counts[DOES_NOT]} do not**; {counts[MIXED]} are mixed, "
    text += f"{counts[UNDECIDED]} are undecided, and {unjudged} could not be judged."
    return [text]


def main_claims(judged: Sequence[AxisResult]) -> list[str]:
    """Return the table of the claims that have plain words: the papers' main results."""
    rows = []
    for j in judged:
        if j.claim.plain:
            outcome = "does\u00a0not\u00a0hold" if j.verdict == DOES_NOT else j.verdict
            claim = f"{j.claim.plain} ({j.claim.paper})"
            rows.append((claim, j.claim.published, in_short(j), f"**{outcome}**"))
    return grid(("claim (paper)", "published", "we measured", "verdict"), rows)


def scope_lines(t: Tables, judged: Sequence[AxisResult]) -> list[str]:
    """How much has been run: what a verdict rests on."""
    claims, printed = len(judged), sum(j.found.command == ARITHMETIC for j in judged)
    if t.runs.empty:
        return [f"{claims} claims; nothing has been run yet."]
    asked, samples = t.runs["network"].str.split("; ").explode().nunique(), t.runs["samples"]
    said = f"**{claims} claims; {len(t.runs)} runs on {asked} of {len(t.networks)} networks, "
    said += f"{samples.min()} to {samples.max()} samples each.** "
    against = sum(j.found.command == ARITHMETIC for j in judged if j.verdict == DOES_NOT)
    said += f"{printed} of the claims, and {against} of those that do not hold, are arithmetic on what a paper prints. "
    said += (
        "The networks are small, and a verdict is about them: what holds on larger ones is open."
    )
    return [said]


def differs_lines(judged: Sequence[AxisResult]) -> list[str]:
    """What differs from the set-up of a paper, each once."""
    tested = [j for j in judged if j.claim.differs and j.verdict not in (NOT_RUN, UNTESTABLE)]
    found = dict.fromkeys(
        j.claim.differs for j in tested if not re.search("printed|^nothing", j.claim.differs)
    )
    return ["What differs from the paper's set-up: " + "; ".join(found) + ".", ""] if found else []


def first_screen(t: Tables, judged: Sequence[AxisResult], pictures: dict[str, str]) -> str:
    """Return `docs/atlas.md`: `first_screen.md` with its sentence, picture and table."""
    parts = {
        "sentence": in_one_sentence(t, judged),
        "dated": [DATED],
        "verdicts": [f"![{FIGURES['verdicts']}](figures/{pictures['verdicts']})"],
        "main": main_claims(judged),
    }
    return filled("first_screen.md", parts)


def filled(template: str, parts: Mapping[str, Sequence[str]]) -> str:
    """Return a template of this folder with the lines of each {{part}}."""
    text = Path(__file__).with_name(template).read_text(encoding="utf-8")
    for key, lines in parts.items():
        text = text.replace(f"{{{{{key}}}}}", "\n".join(lines).strip())
    return text


def markdown(
    t: Tables, judged: Sequence[AxisResult], pictures: dict[str, str], found: Split | None
) -> str:
    """Return `docs/atlas-claims.md`: `page.md` with everything in its place.

    `pictures` are file names below docs/figures by what they show.
    """
    counts = Counter(j.verdict for j in judged)
    known = sum(bool(j.power) for j in judged if j.verdict == DOES_NOT)
    sheets = []
    for kind, name in pictures.items():
        if kind.startswith("sheet "):
            sheets += [
                f'??? note "{kind[6:]}"',
                f"    ![Proof sheet of {kind[6:]}](figures/{name})",
                "",
            ]
    undrawn = [
        f"{NOT_RUN.capitalize()}: `python studies/atlas/page.py --sheets RUNS_FOLDER` draws them."
    ]
    papers = []
    for paper, title in PAPERS.items():
        own = [j for j in judged if _of(j, paper)]
        papers.append([f"### {title}", "", *differs_lines(own), *claim_rows(t, own), ""])
    parts: dict[str, Sequence[str]] = {
        "dated": [DATED],
        "retested": [RETESTED],
        "counts": scope_lines(t, judged),
        "outcomes": outcomes(judged),
        "short": short(judged),
        "shares": spread_lines(found),
        "purposes": recommendations(t),
        "claims": [line for paper in papers for line in paper],
        "power": [
            f"Of {counts[DOES_NOT]} verdicts *does not*, {known} have beside them what distance would have been seen;",
            "the others are arithmetic, which has no error.",
            "",
            *more_lines(t, judged),
        ],
        "networks": networks_lines(t),
        "cost": cost_lines(t),
        "sheets": sheets or undrawn,
    }
    for key, title in FIGURES.items():
        name = pictures.get(key)
        shown = f"![{title}](figures/{name})"
        shown = (
            f"[{shown}](figures/{name})" if key in ("matrix", "strip") else shown
        )  # for narrow screens
        parts[key] = [shown if name else f"{NOT_RUN.capitalize()}."]
    for key, data in (("small", figures.SMALL), ("large", figures.LARGE)):
        asked = figures.asked_both(t, data)
        parts[key] = [", ".join(asked) if 0 < len(asked) < 4 else f"{len(asked)} networks"]
    return filled("page.md", parts)


def drawn(sheet: Sheet, target: Path, title: str, write: bool = True) -> str:
    """Write a figure as SVG, or as PNG of few colours where that would be large; its name."""
    from PIL import Image

    svg = sheet.encoded("svg", title, 8.5)
    target = target.with_suffix(".svg" if len(svg) <= LARGE else ".png")
    if write and len(svg) <= LARGE:
        target.write_bytes(svg)
    elif write:
        picture = Image.open(io.BytesIO(sheet.encoded("png", title, 6.4))).convert("RGB")
        wide = round(1.6 * sheet.width)  # for fine screens
        picture = picture.resize((wide, picture.height * wide // picture.width))
        picture.quantize(48, kmeans=2).save(target, optimize=True)
    return target.name


def proof_sheets(folders: Sequence[Path], docs: Path) -> None:
    """The proof sheets of the runs in folders, one a network, in place of its own that is there.

    Of networks that differ in their seed alone the first is shown, in the study `paper` or `other`.
    """
    import heatproof

    ends = ("paper", "other")
    files = [
        file
        for folder in folders
        for end in ends
        for file in sorted(folder.glob(f"*.{end}/manifest.json"))
    ]
    paths = {file.parent.stem: file.parent for file in files}
    for name, path in paths.items():
        if not re.search(r"-s[1-9]", name):
            for old in (docs / "figures").glob(f"atlas-sheet-{name}.*"):
                old.unlink()
            with TemporaryDirectory(
                dir=path.parent
            ) as scratch:  # a sheet without samples: these are not redistributed
                bare = Path(scratch) / "bare" / path.name
                shutil.copytree(
                    path, bare, ignore=shutil.ignore_patterns("gallery*"), copy_function=os.link
                )
                sheet = heatproof.read(whole(bare, Path(scratch))).proof_sheet()
            drawn(sheet, docs / "figures" / f"atlas-sheet-{name}", f"Proof sheet of {name}")


def pictures_of(
    t: Tables, judged: Sequence[AxisResult], found: Split | None, docs: Path, write: bool = True
) -> dict[str, str]:
    """Draw what can be drawn into docs/figures; file names by what they show, proof sheets that are there among them."""
    made = {
        "verdicts": figures.board(judged, PAPERS),
        "strip": figures.strip(judged),
        "matrix": figures.matrix(t),
    }
    made |= {"frontier": figures.frontier(t), "photographs": figures.frontier(t, figures.LARGE)}
    made |= {"spread": figures.spread(found), "severity": figures.severity(t)}
    names = {}
    for key, sheet in made.items():
        for old in (docs / "figures").glob(f"atlas-{key}.*") if write else ():
            old.unlink()
        if sheet is not None:
            names[key] = drawn(sheet, docs / "figures" / f"atlas-{key}", FIGURES[key], write)
    for path in sorted((docs / "figures").glob("atlas-sheet-*")):
        names[f"sheet {path.stem.removeprefix('atlas-sheet-')}"] = path.name
    return names


def main() -> None:
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ask.add_argument("--tables", type=Path, default=TABLES)
    ask.add_argument("--docs", type=Path, default=figures.DOCS)
    ask.add_argument("--sheets", type=Path, nargs="+", metavar="RUNS_FOLDER")
    given = ask.parse_args()
    (given.docs / "figures").mkdir(parents=True, exist_ok=True)
    if given.sheets is not None:
        proof_sheets(given.sheets, given.docs)
    t = load(given.tables)
    judged, found = [judge(claim, t) for claim in all_claims()], t.split
    names = pictures_of(t, judged, found, given.docs)
    (given.docs / "atlas.md").write_text(first_screen(t, judged, names), encoding="utf-8")
    (given.docs / "atlas-claims.md").write_text(markdown(t, judged, names, found), encoding="utf-8")
    (given.docs / "atlas-leaderboard.md").write_text(leaderboard.page(t), encoding="utf-8")
    size = sum(path.stat().st_size for path in (given.docs / "figures").glob("atlas-*"))
    if size > LARGEST:
        raise SystemExit(
            f"the figures have {size / 1000:.0f} kB together, more than {LARGEST / 1000:.0f}"
        )
    print(f"{len(judged)} claims, {len(names)} figures of {size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
