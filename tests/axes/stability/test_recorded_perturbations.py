"""Every perturbation on fixed samples, with its usual parameters and with others: what it gives and how it is named."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from heatproof import Batch
from heatproof.axes.stability import perturbations as perturbing
from heatproof.axes.stability.evaluation import Stability
from heatproof.axes.stability.perturbations import (
    KNOWN,
    KNOWN_PRESETS,
    OPEN,
    describe,
    milder,
    resolve,
    title,
)
from heatproof.axes.stability.perturbations.contract import (
    adopted,
    bound,
    check,
    condition,
    is_geometric,
    level,
)
from heatproof.axes.stability.tiles import said
from support.fixed import batch_of, digest, fixed, picture_model, refusals, row_model
from support.recorded import recorded

SHAPES = {
    "image": (2, 3, 24, 26),
    "series": (2, 2, 12),
    "table": (3, 6),
    "volume": (2, 1, 6, 7, 22),
}
OTHERS: list[Any] = [
    {"rotation": {"degrees": -33.0}},
    {"translation": {"pixels": -3, "axis": "vertical"}},
    {"elastic": {"amplitude": 2.0, "smoothness": 3.0}},
    {"brightness": {"factor": 0.4}},
    {"contrast": {"factor": 0.3}},
    {"gaussian_noise": {"sigma": 0.5}},
    {"gaussian_blur": {"sigma": 0.6}},
    {"gaussian_blur": {"sigma": 0.1}},
    {"jpeg": {"quality": 95}},
    {"occluding_patch": {"fraction": 0.2, "value": 0.9}},
    {"jitter": {"sigma": 0.7}},
    {"scaling": {"factor": 0.5}},
    {"time_shift": {"steps": -4}},
    {"column_noise": {"sigma": 0.5}},
    {"column_swap": {"fraction": 0.5}},
]


def batches(kind: str | None, name: str) -> list[Batch]:
    kinds = [kind or "image", *(["volume"] if name in perturbing.contract.OF_VOLUMES else [])]
    return [batch_of(*SHAPES[k], seed=3) for k in kinds]


def given(perturbation: Any, batch: Batch) -> dict[str, Any]:
    references = batch_of(4, *batch.x.shape[1:], seed=11)
    references.x[:, 0] = (
        (references.x[:, 0] > 0.5).float() if batch.x.ndim == 2 else references.x[:, 0]
    )
    changed = bound(perturbation, references)(batch, 7)
    told: dict[str, Any] = (
        {} if perturbation.unit == "quality" else {"x": digest(changed)}
    )  # codecs differ
    if is_geometric(perturbation):
        moved, valid = perturbation.move(fixed(*batch.x.shape, seed=4, low=-1), batch.ids, 7)
        told |= {"moved": digest(moved), "valid": digest(valid.double())}
    return told


@pytest.mark.parametrize(
    "name", [name for name in KNOWN if not issubclass(KNOWN[name], perturbing.OfTexts)]
)
def test_a_perturbation(name: str) -> None:
    every = [p for p in resolve([name]) + resolve(OTHERS) if name == p.name]  # type: ignore[attr-defined]
    found: dict[str, Any] = {}
    for one in every:
        facts = [
            one.family,
            one.kind,
            one.unit,
            one.magnitude_field,
            one.stochastic,
            condition(one),
            level(one),
        ]
        found[describe(one)] = [facts, *(given(one, batch) for batch in batches(one.kind, name))]
    recorded(f"perturbations/{name}", found)


def test_presets_and_words() -> None:
    found: dict[str, Any] = {
        name: [describe(p) for p in preset] for name, preset in KNOWN_PRESETS.items()
    }
    found["open"] = OPEN
    levels = [
        ("rotation", 15.0),
        ("jpeg", 40.0),
        ("brightness", 1.5),
        ("translation", 3.0),
        ("contrast", 0.5),
    ]
    levels += [
        ("scaling", 1.1),
        ("gaussian_noise", 0.15),
        ("time_shift", 2.0),
        ("mine", 0.0),
        ("mine", 2.0),
    ]
    levels += [
        ("identity", 0.0),
        ("column_swap", 0.1),
        ("brightness", 0.7),
        ("translation(axis=vertical)", 9.0),
    ]
    found["words"] = {f"{c} {x:g}": [title(c, x), milder(c, x), said(c, x)] for c, x in levels}
    recorded("perturbations/presets", found)


def test_swapped_columns_of_one_category_go_together() -> None:
    aux = {"_columns": torch.tensor([[0, 0, 1, 2, 2, 2]] * 3)}
    batch = Batch(("a", "b", "c"), fixed(3, 6), aux)
    swap = KNOWN["column_swap"](fraction=0.4).bound(Batch(("a", "x", "y"), fixed(3, 6, seed=5)))
    recorded("perturbations/columns", [digest(swap(batch, seed), 20) for seed in range(3)])
    gaps = fixed(5, 4, seed=2)
    gaps[0, 0], gaps[:, 1], gaps[:, 2] = torch.nan, 3.0, (gaps[:, 2] > 0.5).float()
    noise = KNOWN["column_noise"]().bound(Batch(tuple("abcde"), gaps))
    recorded("perturbations/scale", list(noise.scale))


REFUSED: dict[str, Any] = {
    "translation of all": lambda: check(KNOWN["translation"](pixels=8), (3, 8, 8)),
    "translation in depth": lambda: check(KNOWN["translation"](axis="depth", pixels=1), (3, 8, 8)),
    "time shift of all": lambda: check(KNOWN["time_shift"](steps=-8), (3, 8)),
    "patch that does not fit": lambda: check(KNOWN["occluding_patch"](fraction=0.5), (3, 2, 20)),
    "jpeg of two channels": lambda: check(KNOWN["jpeg"](), (2, 8, 8)),
    "rotation of series": lambda: check(KNOWN["rotation"](), (2, 8)),
    "jitter of tables": lambda: check(KNOWN["jitter"](), (8,)),
    "jpeg of volumes": lambda: check(KNOWN["jpeg"](), (3, 8, 8, 8)),
    "nothing": lambda: check(KNOWN["rotation"](), (0, 8, 8)),
    "scale of another length": lambda: check(KNOWN["column_noise"](scale=(1.0, 2.0)), (3,)),
    "bytes": lambda: KNOWN["brightness"]()(Batch(("a",), torch.ones(1, 3, 4, 4).byte()), 0),
    "sigma of bytes": lambda: resolve({"gaussian_noise": {"sigma": 1.5}}),
    "factor in percent": lambda: resolve({"brightness": {"factor": 20.5}}),
    "unbound": lambda: KNOWN["column_noise"]()(batch_of(2, 3), 0),
    "unbound swap": lambda: KNOWN["column_swap"]()(batch_of(2, 3), 0),
    "flags only": lambda: KNOWN["column_noise"]().bound(
        Batch(("a", "b"), torch.tensor([[0.0, 1.0], [1.0, 1.0]]))
    ),
    "twice": lambda: resolve(["jpeg", {"jpeg": {"quality": 40}}]),
    "none": lambda: resolve([]),
    "two lists": lambda: resolve({"elastic": {"amplitude": [1, 2], "smoothness": [3, 4]}}),
    "empty list": lambda: resolve({"jpeg": {"quality": []}}),
    "preset with parameters": lambda: resolve({"fass-paper": {"x": 1}}),
    "number": lambda: resolve({"jpeg": 3}),
    "a class": lambda: resolve(KNOWN["jpeg"]),
    "maps without ids": lambda: KNOWN["rotation"]().move(fixed(2, 1, 4, 4), ("a",), 0),
}


def test_what_is_refused() -> None:
    recorded("perturbations/refused", refusals(REFUSED))
    for fits, shape in (
        (KNOWN["translation"](pixels=7), (3, 8, 8)),
        (KNOWN["time_shift"](steps=7), (3, 8)),
    ):
        check(fits, shape)
    assert resolve({"gaussian_noise": {"sigma": 1.0}}) and resolve({"brightness": {"factor": 20.0}})


def test_data_that_stability_suits() -> None:
    asked, volumes, pictures = Stability(), batch_of(2, 1, 8, 8, 8), batch_of(2, 3, 24, 24)
    deep, model = Batch(volumes.ids, volumes.x * 1.5), picture_model()
    plain, bright = (
        asked.suited(model, volumes),
        asked.suited(model, Batch(pictures.ids, 2 * pictures.x)),
    )
    mild = Stability(perturbations="mild").suited(row_model(9), batch_of(2, 9))
    found = [
        [[describe(p) for p in one.perturbations], str(one.k)] for one in (plain, bright, mild)
    ]
    wrong: dict[str, Any] = {"above 1": lambda: asked.suited(model, deep)}
    wrong |= {"below 0": lambda: asked.suited(model, Batch(deep.ids, -volumes.x))}
    wrong |= {"k": lambda: Stability(k=300, perturbations="contrast").check((3, 10, 10))}
    wrong |= {"k of all": lambda: Stability(k=192, perturbations="contrast").check((3, 8, 8))}
    wrong |= {
        "weights": lambda: Stability(weights=(1, 0, 0)).check((9,)),
        "shape": lambda: asked.check((2, 3, 4, 5, 6)),
    }
    wrong |= {"texts": lambda: Stability(perturbations="case").suited(row_model(4), batch_of(1, 4))}
    Stability(k=191, perturbations="contrast").check((3, 8, 8))
    recorded("perturbations/suited", [found, str(asked.conditions()), refusals(wrong)])


def test_ones_own_has_the_usual() -> None:
    class Darker:
        family, kind, unit, magnitude_field, by = "photometric", "image", "×", "by", 0.5

        def __call__(self, batch: Batch, seed: int) -> torch.Tensor:
            return self.by * batch.x

    plain, named = adopted(lambda batch, seed: batch.x), adopted(Darker())
    facts = [
        [p.family, p.kind, p.unit, p.magnitude_field, p.stochastic, is_geometric(p)]
        for p in (plain, named)
    ]
    recorded("perturbations/own", [*facts, level(named), level(plain)])


class Letters:
    """A tokenizer of single letters; 1 and 2 are special."""

    all_special_ids = (0, 1, 2)

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, ids: list[int]) -> str:
        return "".join(chr(i) for i in ids)

    __call__ = encode


def texts(*said: str, width: int = 26) -> Batch:
    rows = [[1, *map(ord, text), 2] for text in said]
    x = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
    held = {"attention_mask": (torch.arange(width) < torch.tensor([[len(r)] for r in rows])).long()}
    return Batch(tuple("abcd"[: len(said)]), x, held, tokenizer=Letters())


WORDINGS: dict[str, Any] = {
    "upper": KNOWN["case"](),
    "lower": KNOWN["case"]("lower"),
    "capitalised": KNOWN["case"]("capitalised"),
    "doubled": KNOWN["white_space"](),
    "lines": KNOWN["white_space"]("lines"),
    "trimmed": KNOWN["white_space"]("trimmed"),
    "synonyms": KNOWN["synonyms"](words={"good": ["fine", "nice", "kind"], "film": ["movie"]}),
}


@pytest.mark.parametrize("case", WORDINGS)
def test_other_words(case: str) -> None:
    batch = texts("A good film", " the  good Film ", "a good old film at home")
    changed = WORDINGS[case](batch, 3)
    maps = fixed(*batch.x.shape, seed=1)
    moved, both = changed.move(maps[[2, 0]], ("c", "a"), 0)
    told: dict[str, Any] = {
        "text": ["".join(chr(i) if i > 2 else "_" for i in row) for row in changed.batch.x.tolist()]
    }
    told |= {
        "before": [str(row) for row in changed.before.tolist()],
        "after": [str(row) for row in changed.after.tolist()],
    }
    told |= {
        "lost": list(changed.lost),
        "mask": digest(changed.batch.aux["attention_mask"].double()),
    }
    told |= {"moved": digest(moved), "both": [str(row) for row in both.int().tolist()]}
    told["by word"] = digest(changed.by_word(maps, changed.after))
    recorded(f"perturbations/texts_{case}", told)


def test_passages_in_another_order() -> None:
    x = torch.tensor([[5, 6, 9, 7, 8, 4, 2], [1, 3, 5, 7, 9, 11, 13]])
    aux = {
        "_passages": torch.tensor([[1, 1, 0, 2, 3, 0, 0], [1, 0, 0, 2, 2, 2, 0]]),
        "attention_mask": torch.ones_like(x),
    }
    aux["_answer"] = torch.tensor([[-100, -100, -100, -100, -100, 3, 4]] * 2)
    group = KNOWN["passage_order"](features={"passages": {"mask_token": 0}})
    found = [group(Batch(("a", "b"), x, aux), seed) for seed in range(3)]
    recorded(
        "perturbations/passages",
        [[c.batch.x.tolist(), c.after.tolist(), c.before.tolist(), c.lost] for c in found],
    )
