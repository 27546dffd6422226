"""What imputers and orders of removal are called in a sentence."""

from __future__ import annotations

CONDITION_WORDS = {
    "dataset_mean": "dataset mean",
    "image_mean": "image mean",
    "reference_mean": "reference mean",
    "own_baseline": "own baseline",
    "k_nearest": "nearest rows",
    "mice": "MICE",
    "telea": "Telea inpainting",
    "biharmonic": "biharmonic inpainting",
    "noisy_linear": "noisy linear",
    "noisy_linear_published": "noisy linear as published",
    "morf": "MoRF",
    "lerf": "LeRF",
}


def removal_words(condition: str) -> str:
    """Return the name of a removal condition, of its imputer or of its order, as a sentence has it.

    >>> removal_words("noisy_linear morf")
    'noisy linear MoRF'
    """
    return " ".join(CONDITION_WORDS.get(word, word) for word in condition.split(" "))
