"""What a claim is, and how its verdict follows from intervals.

A claim has a function of the tables that gives parts, mostly one per network, each a number with its 95 % interval, and
the side of a bound on which the claim says that they lie. Intervals of m parts are widened to 1 − 0.05 / m each
(Bonferroni), so that all hold together. A part holds only where its interval lies wholly on that side, and fails only
where it lies wholly on the other. The claim holds where all parts do and does not where all fail, or where one fails
and the claim was about all of them; it is mixed where some hold and others fail, else undecided.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from reading import Tables
from scipy.stats import norm

from heatproof.text import number, with_interval

HOLDS, DOES_NOT, MIXED, UNDECIDED, NOT_RUN = (
    "holds",
    "does not",
    "mixed",
    "undecided",
    "not run yet",
)
UNTESTABLE, NO_INTERVAL = "cannot be tested here", "no interval"
VERDICTS = (HOLDS, DOES_NOT, MIXED, UNDECIDED, NO_INTERVAL, NOT_RUN, UNTESTABLE)
GRID = "grid"
ARITHMETIC = "page"


@dataclass(frozen=True)
class Part:
    """One number with its interval; the ends are the number itself where it is exact, NaN where none is known."""

    label: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Found:
    """Parts, and where the claim says that they lie: above or below a bound, or within a margin of it."""

    parts: tuple[Part, ...]
    side: str = "above"
    bound: float = 0.0
    margin: float = 0.0
    every: bool = False
    """Whether the claim is about all parts, so that one that fails refutes it."""
    ends: tuple[float, float] = (-math.inf, math.inf)
    """Ends of the scale, beyond which no interval goes."""
    said: str = ""
    """What the number is, in words."""
    command: str = ""
    published: float = math.nan
    """The paper's number on the same scale, where it has one."""
    samples: tuple[int, ...] = ()
    """How many samples the parts rest on, where these are not all that a network was asked about."""


@dataclass(frozen=True)
class Claim:
    """A published claim: where it stands, what was printed, and how it is tested; `why` where it cannot be.

    The claims of the first screen have `plain`, the claim in plain words, and `measured`, a template of the result (see
    `in_short`).
    """

    key: str
    paper: str
    place: str
    text: str
    published: str
    differs: str
    why: str
    plain: str
    measured: str
    test: Callable[[Tables], Found] | None


@dataclass(frozen=True)
class AxisResult:
    """A claim with what came of it."""

    claim: Claim
    found: Found
    verdict: str
    shown: str
    power: str


def parts(frame: pd.DataFrame, scale: float = 1.0, label: str = "network") -> tuple[Part, ...]:
    """Rows with value, low and high as parts."""
    numbers = zip(frame[label], frame["value"], frame["low"], frame["high"], strict=True)
    return tuple(
        Part(str(name), scale * v, scale * low, scale * high) for name, v, low, high in numbers
    )


def every_pair(
    t: Tables, axis: str, measure: str, pairs: Sequence[tuple[str, str]]
) -> tuple[Part, ...]:
    """The paired differences first − second of some pairs of methods, a part for each pair and network of images."""
    leads = [t.between(axis, measure, a, b).assign(label=f"{a} − {b}") for a, b in pairs]
    both = pd.concat(leads, ignore_index=True).dropna()
    both = both[both["network"].isin(t.networks.loc[t.networks["modality"] == "image", "network"])]
    return parts(both.assign(network=both["network"].astype(str) + ", " + both["label"]))


def exact(value: float, label: str = "") -> tuple[Part, ...]:
    """A number without an error: arithmetic on printed values."""
    return (Part(label, value, value, value),)


def widened(found: Found) -> Found:
    """The parts with intervals that hold together at 95 %."""
    m = max(len(found.parts), 1)
    factor = float(norm.ppf(1 - 0.025 / m) / norm.ppf(0.975))
    wide = [
        replace(
            p,
            low=max(p.value - factor * (p.value - p.low), min(found.ends[0], p.low)),
            high=min(p.value + factor * (p.high - p.value), max(found.ends[1], p.high)),
        )
        for p in found.parts
    ]
    return replace(found, parts=tuple(wide))


def with_more(found: Found, have: Mapping[str, int], wanted: Mapping[str, int]) -> Found:
    """The parts as they would be with as many samples of a network as are wanted, if their values stayed.

    `have` is by network, or by the label of a part where that was asked about fewer.

    >>> one = Found((Part("net, r = 1", 0.5, 0.3, 0.7),))
    >>> p = with_more(one, {"net": 100}, {"net": 400}).parts[0]
    >>> round(p.low, 3), round(p.high, 3)
    (0.4, 0.6)
    """
    grown = []
    for p in found.parts:
        network = p.label.split(",")[0]
        count = have.get(p.label, have.get(network, 0))
        part = math.sqrt(min(1.0, count / wanted[network])) if count and network in wanted else 1.0
        grown.append(
            replace(
                p, low=p.value - part * (p.value - p.low), high=p.value + part * (p.high - p.value)
            )
        )
    return replace(found, parts=tuple(grown))


def part_verdict(part: Part, found: Found) -> str:
    """Whether one part holds, by its interval alone.

    >>> part_verdict(Part("", 0.2, 0.1, 0.3), Found(())), part_verdict(Part("", 0.2, -0.1, 0.5), Found(()))
    ('holds', 'undecided')
    """
    if not (math.isfinite(part.low) and math.isfinite(part.high)):
        return NO_INTERVAL
    if found.side == "within":
        near, far = found.bound - found.margin, found.bound + found.margin
        inside, outside = near <= part.low and part.high <= far, part.low > far or part.high < near
        return HOLDS if inside else DOES_NOT if outside else UNDECIDED
    sign = 1 if found.side == "above" else -1
    low, high = sorted((sign * part.low, sign * part.high))
    return (
        HOLDS if low > sign * found.bound else DOES_NOT if high < sign * found.bound else UNDECIDED
    )


def verdict(found: Found) -> str:
    """The verdict of all parts together."""
    said = {part_verdict(p, found) for p in found.parts}
    if not said:
        return NOT_RUN
    if len(said) == 1:
        return said.pop()
    if DOES_NOT in said and found.every:
        return DOES_NOT
    return MIXED if {HOLDS, DOES_NOT} <= said else NO_INTERVAL if NO_INTERVAL in said else UNDECIDED


def shown(found: Found) -> str:
    """The parts in words: each of up to three, of more the smallest and the largest."""
    told = [f"{p.label}: {_number(p)}".removeprefix(": ") for p in found.parts]
    if len(told) > 3:
        ordered = sorted(found.parts, key=lambda p: p.value)
        counts = [part_verdict(p, found) for p in found.parts]
        held = ", ".join(f"{name} on {counts.count(name)}" for name in VERDICTS if name in counts)
        ends = [f"{_number(p)} ({p.label})" for p in (ordered[0], ordered[-1])]
        told = [f"from {ends[0]} to {ends[1]}; of {len(told)}, {held}"]
    within = f"within {_plain(found.margin)} of" if found.margin else "to be"
    where = {"above": "above", "below": "below", "within": within}[found.side]
    about = f"{found.said}, claimed {where} {_plain(found.bound)}: " if found.said else ""
    return about + "; ".join(told)


def in_short(j: AxisResult) -> str:
    """Return the result of a claim in a few words: its template with the numbers of its parts.

    `{low}` and `{high}` are the smallest and the largest value, `{-low}` and `{-high}` the same with the sign turned,
    `{n}` the number of parts, and `{holds}` and `{fails}` on how many of them the claim holds and does not.
    """
    if not j.found.parts:
        return j.shown
    values = [p.value for p in j.found.parts]
    verdicts = [part_verdict(p, j.found) for p in j.found.parts]
    words = {
        "{low}": _rounded(min(values)),
        "{high}": _rounded(max(values)),
        "{-low}": _rounded(-min(values)),
        "{-high}": _rounded(-max(values)),
        "{n}": str(len(values)),
        "{holds}": str(verdicts.count(HOLDS)),
        "{fails}": str(verdicts.count(DOES_NOT)),
    }
    text = j.claim.measured
    for field, number_in_words in words.items():
        text = text.replace(field, number_in_words)
    return text


def _rounded(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 10 else number(value)


def power(found: Found) -> str:
    """The smallest distance from the bound that the widest interval would have shown four times out of five."""
    widths = [(p.high - p.low) / 2 for p in found.parts if p.high > p.low]
    if not widths:
        return ""
    seen = max(widths) * float((norm.ppf(0.975) + norm.ppf(0.8)) / norm.ppf(0.975))
    return f"{seen:.2g}"


def judge(claim: Claim, tables: Tables) -> AxisResult:
    """Test a claim on the tables that are there."""
    if claim.test is None:
        return AxisResult(claim, Found(()), UNTESTABLE, claim.why, "")
    found = widened(claim.test(tables))
    outcome = verdict(found)
    text = shown(found) if found.parts else "its rows are not in the tables"
    return AxisResult(
        claim, found, outcome, text, power(found) if outcome in (DOES_NOT, UNDECIDED, MIXED) else ""
    )


def _plain(value: float) -> str:
    return f"{value:g}".replace("-", "−")


def _number(part: Part) -> str:
    if not math.isfinite(part.low):
        return f"{number(part.value)} (no interval)"
    if part.low == part.high:
        return f"{part.value:.3g}".replace("-", "−")
    return with_interval(part.value, part.low, part.high)


def all_claims() -> list[Claim]:
    """Every claim of `claims.csv` with the function that tests it; one without has the reason why."""
    import claims_fass
    import claims_invariance
    import claims_printed
    import claims_road
    import claims_sanity
    import claims_soft

    files = (
        claims_fass,
        claims_printed,
        claims_soft,
        claims_invariance,
        claims_road,
        claims_sanity,
    )
    tests: dict[str, Callable[[Tables], Found]] = {}
    for module in files:
        tests |= module.TESTS
    rows = pd.read_csv(Path(__file__).with_name("claims.csv"), keep_default_na=False)
    if missing := set(tests) ^ set(rows.loc[rows["why"] == "", "key"]):
        raise ValueError(f"claims.csv and the tests do not agree on {', '.join(sorted(missing))}")
    return [
        Claim(**{str(name): value for name, value in row.items()}, test=tests.get(row["key"]))
        for row in rows.to_dict("records")
    ]
