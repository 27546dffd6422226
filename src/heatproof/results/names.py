"""What explainers, models and data are called in a report, and the colour of every method.

A method has the same name and colour on every page, in every figure and in the terminal. A colour is named by the CSS
variable that holds it (see `report.styles`), so that a page has it in light and dark.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heatproof.results.arrays import ScoreArrays

TITLES = {
    "grad_cam": "Grad-CAM",
    "lime": "LIME",
    "integrated_gradients": "Integrated Gradients",
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
    "random": "Random map",
    "sobel": "Edge filter",
    "weight_noise": "Weight noise",
}
"""What each registered method is called; the first nine have a colour of their own."""
OWN_COLOURS = (
    ("#4170cf", "#70c5ff"),
    ("#b3350c", "#e8971a"),
    ("#007547", "#4dfdc8"),
    ("#660d40", "#b972bd"),
    ("#3f2191", "#797dfd"),
    ("#653f07", "#fde271"),
    ("#d63c56", "#e3a186"),
    ("#046b82", "#87f3fd"),
    ("#0a3d18", "#81933d"),
)
"""Light and dark. Any two, and the grey of controls, also differ for readers with deuteranopia (see the tests)."""
SHARED_COLOURS = (
    ("#7a3fa8", "#c99bf0"),
    ("#8b5e34", "#d6a878"),
    ("#b3246b", "#f585b4"),
    ("#566b00", "#b5cc52"),
    ("#1f5fd0", "#8db4ff"),
    ("#3f6f5f", "#86c9b0"),
    ("#7d5a78", "#cfa9c9"),
)
"""For all other methods, by their names: two of them may share one, so a name stands beside it."""
LIBRARIES = ("captum", "quantus", "pytorch_grad_cam", "zennit", "shap")
"""Libraries whose methods are named first in their brackets, such as captum(attribution=InputXGradient)."""


@dataclass(frozen=True)
class Look:
    """How a method is named and drawn; a second setting of one method is `open`."""

    name: str
    colour: str
    control: bool = False
    open: bool = False


def colour_of(name: str) -> str:
    """Return the CSS variable with the colour of a registered method; that of any other depends on its name alone.

    >>> colour_of("lime"), colour_of("lime") == colour_of("my_own"), colour_of("my_own") == colour_of("my_own")
    ('m1', False, True)
    """
    with_own_colour = list(TITLES)[: len(OWN_COLOURS)]
    if name in with_own_colour:
        return f"m{with_own_colour.index(name)}"
    shared = zlib.crc32(name.encode()) % len(SHARED_COLOURS)
    return f"m{len(OWN_COLOURS) + shared}"


MARKS = {"blind": "ignores model"}
"""The words beside an explainer's name for a mark of `run.ranking()`."""


def with_mark(name: str, mark: str | None) -> str:
    """Return a display name with the words of its mark.

    >>> with_mark("Edge filter", "blind"), with_mark("LIME", "")
    ('Edge filter (ignores model)', 'LIME')
    """
    return f"{name} ({MARKS.get(mark, mark)})" if mark else name


def looks(
    explainers: Iterable[str],
    controls: Collection[str] = (),
    registered: Mapping[str, str] | None = None,
) -> dict[str, Look]:
    """Return the name and colour of each explainer of a study; settings are named where two differ in nothing else.

    `registered` has the name in the catalogue of explainers where it is not the beginning of their own.

    >>> [look.name for look in looks(["lime(samples=8)", "lime(samples=32)", "grad_cam"]).values()]
    ['LIME, 8 samples', 'LIME, 32 samples', 'Grad-CAM']
    >>> [look.name for look in looks(["captum(attribution=InputXGradient)", "shap(method=tree)"]).values()]
    ['Input × gradient (Captum)', 'Tree (SHAP)']
    """
    registered = registered or {}
    method_of = {
        explainer: _method_of_library(explainer) or explainer.partition("(")[0]
        for explainer in dict.fromkeys(explainers)
    }
    methods = list(method_of.values())
    by_explainer = {}
    with_colour: set[str] = set()
    for explainer, method in method_of.items():
        title = _title(explainer, method)
        if method in TITLES and methods.count(method) > 1:
            title = ", ".join(filter(None, (title, settings_of(explainer))))
        is_control = explainer in controls
        of_library = bool(_method_of_library(explainer))
        name = method if of_library else registered.get(explainer) or method
        colour = "control" if is_control else colour_of(name)
        by_explainer[explainer] = Look(title, colour, is_control, open=name in with_colour)
        with_colour.add(name)
    return by_explainer


def _title(explainer: str, method: str) -> str:
    """Return the name of a method for people; whoever brings a method of their own has named it already."""
    if not _method_of_library(explainer):
        return TITLES.get(method, explainer)
    library = TITLES[explainer.partition("(")[0]]
    readable = f"{method[:1].upper()}{method[1:]}".replace("_", " ")
    return f"{TITLES.get(method, readable)} ({library})"


def _method_of_library(explainer: str) -> str:
    """Return the name that a method of another library has here, or would have; empty for one of our own."""
    library, _, arguments = explainer.partition("(")
    if library not in LIBRARIES:
        return ""
    first_value = re.split("[,)]", arguments.partition("=")[2])[0]
    name = first_value.rpartition(".")[2]
    snake_case = re.sub("(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return snake_case if snake_case in TITLES else name


def settings_of(explainer: str) -> str:
    """Return what stands in the brackets of a name, in words.

    >>> settings_of("lime(samples=32, features=tokens(mask_token=1))"), settings_of("grad_cam")
    ('32 samples, tokens', '')
    """
    settings = explainer.partition("(")[2].removesuffix(")")
    settings = re.sub(r"\([^()]*\)", "", settings)  # the settings of a setting
    if _method_of_library(explainer):
        settings = settings.partition(",")[2]
    settings = re.sub("arguments=|[{}']", "", settings).replace(": ", "=")
    words = []
    for setting in filter(str.strip, settings.split(",")):
        name, _, value = setting.strip().removeprefix("n_").partition("=")
        is_count = name.endswith("s") and value.isdigit()
        text = f"{value} {name}" if is_count else f"{name} {value}".strip()
        words.append(text.removeprefix("features ").replace("_", " "))
    return ", ".join(words)


def subjects(every_arrays: Sequence[ScoreArrays]) -> list[str]:
    """Return for each result the words that tell it from the others: data set, model, evaluation; empty for the only one.

    >>> subjects([])
    []
    """
    names = [(arrays.dataset, arrays.model, arrays.evaluation) for arrays in every_arrays]
    differs = [len(set(of_all)) > 1 for of_all in zip(*names, strict=True)]
    words = []
    for of_result in names:
        telling = [name for name, is_telling in zip(of_result, differs, strict=True) if is_telling]
        words.append(", ".join(telling))
    return words


def about(arrays: ScoreArrays) -> str:
    """Return the model and the data in words.

    >>> import numpy as np, pandas as pd
    >>> from heatproof.results.arrays import ScoreArrays
    >>> about(ScoreArrays("photos", "net", "s", [], [], ["a"], {}, np.zeros((0, 0, 1), np.int8), pd.DataFrame(), {}))
    'net on photos (1 sample)'
    """
    n = len(arrays.samples)
    return f"{arrays.model} on {arrays.dataset} ({n} sample{'' if n == 1 else 's'})"
