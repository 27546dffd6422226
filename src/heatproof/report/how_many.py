"""How the number of samples of a run was chosen, in a sentence, and what it leaves open; see `heatproof.runs.sampling`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from heatproof.results.axis_result import AxisResult
from heatproof.results.findings import Finding, finding_template
from heatproof.runs.manifest import LOOKS, Look, PairEntry, Sampling, WidthEntry
from heatproof.runs.sampling import TOLERANCE, has_a_say
from heatproof.text import listing, plural, some

LISTED = 3
NOT_REACHED = finding_template(
    "precision-not-reached",
    title="The requested precision was not reached",
    seen="{seen}",
    means="{means}",
    do="{do}",
)
WIDER = "Scores are less certain than the study asked for. Their intervals are right."
UNDECIDED = "These methods may differ by more than the margin, in either direction, or not at all."
RAISE_THE_CAP = "Run into a new directory with a larger at_most."
MORE_DATA = "Test more data, or ask for less."
SMALLER_WIDTH = (
    "The pilot missed some of the spread. Run into a new directory with a smaller half_width."
)


def number_of_samples(results: Sequence[AxisResult]) -> str:
    """Return how the number of samples was chosen, for which tests and methods; empty for a run of all samples."""
    sampling, looks = _decisions(results)
    if sampling is None:
        return ""
    first = results[0]
    images = first.words.samples
    entry = first.manifest.study.dataset(first.dataset)
    if not looks:
        return f"The number of {images} is not decided yet: the first {entry.pilot} are still being tested."
    last = looks[-1]
    counted = f"{last.samples:,} of {entry.samples:,} {images}, drawn at random"
    if last.samples == entry.samples:
        counted = f"All {entry.samples:,} {images}"
    if sampling.until:
        return f"{counted}: {_of_looks(sampling, looks, results)}"
    return f"{counted}: {_of_pilot(sampling, looks, results)}"


def precision_not_reached(results: Sequence[AxisResult]) -> Iterator[Finding]:
    """Yield that a run ended before it was as precise as the study asked for."""
    sampling, looks = _decisions(results)
    if sampling is None or not looks:
        return
    last = looks[-1]
    advice = {"missed": SMALLER_WIDTH, "at_most": RAISE_THE_CAP, "all samples": MORE_DATA}
    if last.outcome not in advice:
        return
    words = {"do": advice[last.outcome]}
    if sampling.until:
        open_pairs = _open(last, results)
        words["seen"] = (
            f"{last.samples:,} {results[0].words.samples} do not decide "
            f"{len(open_pairs)} of {_pairs_in_words(_here(last.pairs, results))}."
        )
        words["means"] = UNDECIDED
        items = tuple(_pair_in_words(pair, results) for pair in open_pairs)
        methods: dict[str, None] = {}
        for pair in open_pairs:
            methods |= {pair.a: None, pair.b: None}
    else:
        wide = _too_wide(sampling, last, results)
        words["seen"] = _widest(sampling, last, wide, results)
        words["means"] = WIDER
        items = tuple(_width_in_words(entry, results) for entry in wide)
        methods = dict.fromkeys(entry.explainer for entry in wide)
    if items:
        yield NOT_REACHED.filled(words, methods, items=items)


def _decisions(results: Sequence[AxisResult]) -> tuple[Sampling | None, list[Look]]:
    """Return how the study decides on its number of samples, and the looks at these data."""
    if not results:
        return None, []
    manifest = results[0].manifest
    return manifest.study.sampling, manifest.looks(results[0].dataset)


def _name(explainer: str, results: Sequence[AxisResult]) -> str:
    """Return the display name of a method."""
    return results[0].unmarked_looks[explainer].name


# ---- half_width ----------------------------------------------------------------------------------------------------


def _of_pilot(sampling: Sampling, looks: Sequence[Look], results: Sequence[AxisResult]) -> str:
    """Say what the pilot planned, and whether that was enough."""
    pilot, last = looks[0], looks[-1]
    fixed = _left_out_of_width(results)
    width = f"± {sampling.half_width:g}"
    goal = f"{width} on the overall score of {_what_has_a_say(results)}"
    if pilot.outcome == "no scores":
        return f"the pilot has no score, so there is nothing to plan {width} from."
    if not last.stops:
        return f"a pilot planned {pilot.next:,} for {goal}, which are still being tested."
    if pilot.stops and last.outcome == "reached":
        return f"the pilot was enough for {goal}.{fixed}"
    varying = _most_varying(pilot, results)
    if last.outcome == "reached":
        return f"by a pilot of {pilot.samples}, so many are needed for {goal}{varying}.{fixed}"
    needed = max(look.needed or 0 for look in (pilot, last))
    reasons = {
        "at_most": f"the most allowed (at_most); about {needed:,} are needed for {goal}{varying}",
        "all samples": f"about {needed:,} are needed for {goal}{varying}",
        "missed": f"a pilot of {pilot.samples} planned them for {goal}, but scores vary more than in the pilot",
    }
    return f"{reasons[last.outcome]}.{fixed}"


def _what_has_a_say(results: Sequence[AxisResult]) -> str:
    """Return the methods and tests for which the number was chosen, such as "4 methods (stability, faithfulness)"."""
    explainers: set[str] = set()
    controls: set[str] = set()
    tests = []
    for result in results:
        if has_a_say(result.axis):
            explainers |= set(result.explainers)
            controls |= set(result.controls)
            tests.append(result.label)
    methods = list(explainers - controls)
    return f"{len(methods)} {plural(methods, 'method', 'methods')} ({', '.join(tests)})"


def _most_varying(look: Look, results: Sequence[AxisResult]) -> str:
    """Say which score needs the most samples, if another one needs fewer."""
    planned = [entry for entry in look.widths if entry.needed is not None]
    if len(planned) < 2:
        return ""
    most = max(planned, key=lambda entry: entry.needed or 0)
    model = "" if most.model == results[0].model else f" on {most.model}"
    return f"; {most.evaluation} of {_name(most.explainer, results)}{model} varies most"


def _left_out_of_width(results: Sequence[AxisResult]) -> str:
    """Say what the half-width does not include, because more samples would not change it."""
    references: set[str] = set()
    has_random_networks = False
    for result in results:
        if has_a_say(result.axis):
            references |= set(result.arrays.references)
            has_random_networks |= any(measure.networks for measure in result.headlines)
    left_out = []
    if references:
        left_out.append(f"the {len(references)} reference {results[0].words.samples}")
    if has_random_networks:
        left_out.append("the random networks")
    if not left_out:
        return ""
    return f" The ± takes {listing(left_out)} as given; the printed intervals add their choice."


def _too_wide(sampling: Sampling, look: Look, results: Sequence[AxisResult]) -> list[WidthEntry]:
    """Return the scores of these results that are less certain than requested, the least certain first."""
    requested = float(sampling.half_width or 0) * TOLERANCE
    wide = []
    for entry in look.widths:
        if entry.model == results[0].model and (entry.width is None or entry.width > requested):
            wide.append(entry)
    return sorted(wide, key=lambda entry: -(entry.width or 1.0))


def _widest(
    sampling: Sampling, look: Look, wide: Sequence[WidthEntry], results: Sequence[AxisResult]
) -> str:
    """Say how far the scores are from the requested half-width, and how many samples it takes."""
    if not wide:
        return ""
    images = results[0].words.samples
    needed = "" if look.needed is None else f" It takes about {look.needed:,}."
    return f"{look.samples:,} {images} are too few for ± {sampling.half_width:g}: {_width_in_words(wide[0], results)}.{needed}"


def _width_in_words(entry: WidthEntry, results: Sequence[AxisResult]) -> str:
    where = f"{entry.evaluation} of {_name(entry.explainer, results)}"
    if entry.width is None:
        return f"{where} has too few scores for an interval"
    return f"{where} is known to ± {entry.width:.2g}"


# ---- until: decided ------------------------------------------------------------------------------------------------


def _of_looks(sampling: Sampling, looks: Sequence[Look], results: Sequence[AxisResult]) -> str:
    """Say at what there were looks, and why the last one was the last."""
    last = looks[-1]
    if last.outcome == "no scores":
        return "no two methods have a score, so there is nothing to decide."
    sizes = listing(f"{look.samples:,}" for look in looks)
    percent = 100 * (1 - sampling.level)
    rule = (
        f"looked at after {sizes} (at most {LOOKS} looks, each test at {percent:.0f} %, "
        f"all together at {percent * LOOKS:.0f} %)"
    )
    within = (
        "" if sampling.margin is None else f" or known to differ by less than {sampling.margin:g}"
    )
    settled = f"every pair of {_what_has_a_say(results)} was significantly different{within}"
    if not last.stops:
        return f"{rule}; goes on to {last.next:,}."
    if last.outcome == "reached":
        return f"{rule}, and stopped when {settled}."
    open_pairs = _open(last, results)
    if not open_pairs:
        return f"{rule}; pairs on other models are undecided."
    names = some((_pair_in_words(pair, results) for pair in open_pairs), LISTED)
    end = "all there are" if last.outcome == "all samples" else "the last look"
    return (
        f"{rule}. At {end}, {plural(open_pairs, 'a pair is', 'some pairs are')} undecided: {names}."
    )


def _here(pairs: Sequence[PairEntry], results: Sequence[AxisResult]) -> list[PairEntry]:
    return [pair for pair in pairs if pair.model == results[0].model]


def _open(look: Look, results: Sequence[AxisResult]) -> list[PairEntry]:
    """Return the undecided pairs of the model of these results."""
    return [pair for pair in _here(look.pairs, results) if pair.state == "open"]


def _pair_in_words(pair: PairEntry, results: Sequence[AxisResult]) -> str:
    return f"{_name(pair.a, results)} and {_name(pair.b, results)} ({pair.evaluation})"


def _pairs_in_words(pairs: Sequence[PairEntry]) -> str:
    return f"{len(pairs)} {plural(pairs, 'pair', 'pairs')} of methods"
