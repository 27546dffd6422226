"""One human name and one colour for each method, the same on every page, figure and terminal.

A colour is named by the CSS variable that holds it, so that a page has it in light and dark; paper takes the light one.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from heatproof.removal.names import CONDITION_WORDS

INKS = {
    "ink": ("#16191d", "#eceef0"),
    "soft": ("#4e5761", "#b4bcc4"),
    "third": ("#6a737d", "#98a1ab"),
    "line": ("#e3e4df", "#2c3137"),
    "strong": ("#c9ccc6", "#444b53"),
    "grid": ("#eceded", "#272b31"),
    "card": ("#ffffff", "#1a1d21"),
    "page": ("#fbfbf9", "#121417"),
    "accent": ("#0a5ea8", "#7cc0f5"),
    "heat": ("#0f7a6c", "#3cbea8"),
    "cold": ("#a81322", "#f08f80"),
    "control": ("#6f7780", "#9aa3ad"),
    "against": ("#0b4a94", "#0b4a94"),
    "for": ("#a81322", "#a81322"),
    "strength": ("#420673", "#420673"),
}
"""What is not a method, by the name of its CSS variable: light and dark."""
TITLES = {
    "grad_cam": "Grad-CAM",
    "lime": "LIME",
    "integrated_gradients": "Integrated gradients",
    "gradient_shap": "Gradient SHAP",
    "saliency": "Saliency",
    "occlusion": "Occlusion",
    "kernel_shap": "Kernel SHAP",
    "feature_ablation": "Feature ablation",
    "deep_lift": "DeepLIFT",
    "input_x_gradient": "Input × gradient",
    "smoothgrad": "SmoothGrad",
    "smoothgrad_squared": "SmoothGrad squared",
    "vargrad": "VarGrad",
    "guided_backprop": "Guided backprop",
    "deconvolution": "Deconvolution",
    "lrp": "LRP",
    "attn_lrp": "AttnLRP",
    "rise": "RISE",
    "grad_cam_plus_plus": "Grad-CAM++",
    "layer_cam": "LayerCAM",
    "hires_cam": "HiResCAM",
    "guided_grad_cam": "Guided Grad-CAM",
    "attention_rollout": "Attention rollout",
    "chefer": "Chefer's relevance",
    "expected_gradients": "Expected gradients",
    "mfaba": "MFABA",
    "feature_permutation": "Feature permutation",
    "influence": "Influence functions",
    "tracin": "TracIn",
    "simplex": "SimplEx",
    "representation_similarity": "Representation similarity",
    "cav": "CAV",
    "car": "CAR",
    "shap": "SHAP",
    "captum": "Captum",
    "quantus": "Quantus",
    "pytorch_grad_cam": "pytorch-grad-cam",
    "zennit": "Zennit",
    "precomputed": "Stored maps",
    "random": "Random",
    "sobel": "Sobel",
    "weight_noise": "Weight noise",
}
"""What each registered method is called; those of the first nine have a colour of their own."""
FIXED = (
    ("#0067a8", "#5ab4ef"),
    ("#c65200", "#ff9650"),
    ("#00805d", "#35cf9f"),
    ("#b04b8c", "#e69cc9"),
    ("#5a55c4", "#a9a5ff"),
    ("#8a6a00", "#d9b64a"),
    ("#a33b2f", "#f08f80"),
    ("#3d7a8c", "#7fc4d6"),
    ("#4b7f2a", "#9cd06f"),
)
SHARED = (
    ("#7a3fa8", "#c99bf0"),
    ("#8b5e34", "#d6a878"),
    ("#b3246b", "#f585b4"),
    ("#566b00", "#b5cc52"),
    ("#1f5fd0", "#8db4ff"),
    ("#3f6f5f", "#86c9b0"),
    ("#7d5a78", "#cfa9c9"),
)
"""For all other methods, by their names: two of them may share one, so a name stands beside it."""
COLOURS = {**INKS, **{f"m{i}": pair for i, pair in enumerate(FIXED + SHARED)}}


WORDS_TOO = ("random", "influence")
"""Methods whose names are words of their own, which a sentence may use otherwise."""
WRAPPERS = ("captum", "quantus", "pytorch_grad_cam", "zennit", "shap")
"""Libraries, of which a method has the name that comes first in its brackets."""


@dataclass(frozen=True)
class Look:
    """How a method is named and drawn; a second setting of one method is `open`."""

    name: str
    colour: str
    control: bool = False
    open: bool = False


def colour_of(name: str) -> str:
    """The variable with the colour of a registered method; that of any other is found by its name alone.

    >>> colour_of("lime"), colour_of("lime") == colour_of("my_own"), colour_of("my_own") == colour_of("my_own")
    ('m1', False, True)
    """
    place = [*TITLES].index(name) if name in TITLES else -1
    if 0 <= place < len(FIXED):
        return f"m{place}"
    return f"m{len(FIXED) + zlib.crc32(name.encode()) % len(SHARED)}"  # whatever else the catalogue comes to hold


def looks(
    explainers: Iterable[str],
    controls: Collection[str] = (),
    registered: Mapping[str, str] | None = None,
) -> dict[str, Look]:
    """A name and a colour for each explainer of a study; settings are named where two of them differ in nothing else.

    `registered` is the catalogue name of an explainer where it is not the beginning of its own.

    >>> [look.name for look in looks(["lime(samples=8)", "lime(samples=32)", "grad_cam"]).values()]
    ['LIME, 8 samples', 'LIME, 32 samples', 'Grad-CAM']
    >>> [look.name for look in looks(["captum(attribution=InputXGradient)", "shap(method=tree)"]).values()]
    ['Input × gradient (Captum)', 'Tree (SHAP)']
    """
    found, seen = {}, list(dict.fromkeys(explainers))
    bases = {e: _wrapped(e) or e.split("(")[0] for e in seen}
    taken: list[str] = []
    for explainer, base in bases.items():
        library = explainer.split("(")[0] if _wrapped(explainer) else ""
        title = TITLES.get(
            base, f"{base[:1].upper()}{base[1:]}".replace("_", " ") if library else explainer
        )
        title += f" ({TITLES[library]})" if library else ""  # whoever brings a method names it
        told = (
            settings_of(explainer) if base in TITLES and [*bases.values()].count(base) > 1 else ""
        )
        control = explainer in controls
        known = base if library else (registered or {}).get(explainer) or base
        colour = "control" if control else colour_of(known)
        found[explainer] = Look(
            ", ".join(filter(None, (title, told))), colour, control, known in taken
        )
        taken.append(known)
    return found


def _wrapped(explainer: str) -> str:
    """The name that a method of another library has here, or would have; empty for one of our own."""
    library, _, inside = explainer.partition("(")
    name = (
        re.split("[,)]", inside.partition("=")[2])[0].rpartition(".")[2]
        if library in WRAPPERS
        else ""
    )
    ours = re.sub("(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return ours if ours in TITLES else name


def spoken(text: str, known: Mapping[str, Look]) -> str:
    """Return the text of a finding with the display names of methods.

    A name before a colon, or in brackets, is one of a study file and stays.

    >>> known = looks(["lime(samples=8)", "grad_cam"])
    >>> spoken("lime(samples=8) is behind grad_cam; draw more: lime: {samples: 32}", known)
    'LIME is behind Grad-CAM; draw more: lime: {samples: 32}'
    """
    named = CONDITION_WORDS | {
        e: look.name for e, look in known.items() if e not in WORDS_TOO and look.name != e
    }
    every = "|".join(map(re.escape, sorted(named, key=len, reverse=True)))
    pattern = rf"[\[{{][^\]}}]*|(?<![\w.])(?:{every})(?![\w(.=]*[\w(=]|:\S|: [{{\[])"  # what stands in brackets stays
    return re.sub(pattern, lambda found: named.get(found[0], found[0]), text)


def settings_of(explainer: str) -> str:
    """What stands in the brackets of a name, in words.

    >>> settings_of("lime(samples=32, features=tokens(mask_token=1))"), settings_of("grad_cam")
    ('32 samples, tokens', '')
    """
    inside = re.sub(
        r"\([^()]*\)", "", explainer.partition("(")[2].removesuffix(")")
    )  # what a setting has itself
    inside = inside.partition(",")[2] if _wrapped(explainer) else inside
    inside = re.sub("arguments=|[{}']", "", inside).replace(": ", "=")
    pairs = [
        part.strip().removeprefix("n_").partition("=") for part in inside.split(",") if part.strip()
    ]
    words = [
        f"{v} {k}" if k.endswith("s") and v.isdigit() else f"{k} {v}".strip() for k, _, v in pairs
    ]
    return ", ".join(word.removeprefix("features ").replace("_", " ") for word in words)


def css() -> str:
    """The style sheet of all colours, light and dark.

    >>> css()[:19]
    ':root{--ink:#16191d'
    """
    light, dark = (
        ";".join(f"--{name}:{pair[i]}" for name, pair in COLOURS.items()) for i in (0, 1)
    )
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"
