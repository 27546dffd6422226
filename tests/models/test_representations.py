"""Readouts of models without labels: each number by hand, its gradient on a linear encoder, and every axis that runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import heatproof
from heatproof import Batch, Model, UserError
from heatproof.models.randomised import seeded
from heatproof.models.tasks import Representation
from heatproof.runs.study.file import read_study

WEIGHT = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
ROWS = torch.randn(10, 8, generator=torch.Generator().manual_seed(1))
CORPUS = torch.randn(3, 4, generator=torch.Generator().manual_seed(2))


def encoder() -> nn.Module:
    net = nn.Linear(8, 4, bias=False)
    net.weight.data = WEIGHT.clone()
    return net


def mean_direction() -> Tensor:
    return (CORPUS / CORPUS.norm(dim=1, keepdim=True)).mean(0)


TASKS = {
    "self": {"read": "self"},
    "norm": {"read": "norm"},
    "unit": {"read": "unit", "unit": 2},
    "cosine": {"read": "cosine", "reference": CORPUS},
}
every_reading = pytest.mark.parametrize("reading", TASKS)


def number_and_gradient(reading: str, x: Tensor) -> tuple[Tensor, Tensor]:
    """The explained number of a linear encoder h = W x, and its gradient in x, in closed form."""
    h = x @ WEIGHT.T
    length = h.norm(dim=1, keepdim=True)
    if reading == "self":
        return (h * h).sum(1), h @ WEIGHT  # h(x₀) does not move with x: no factor of 2
    if reading == "norm":
        return length[:, 0], h / length @ WEIGHT
    if reading == "unit":
        return h[:, 2], WEIGHT[2].expand(len(x), -1)
    direction = mean_direction()
    cosine = (h @ direction)[:, None] / length
    return cosine[:, 0], ((direction - cosine * h / length) / length) @ WEIGHT


@every_reading
def test_what_is_explained_is_the_number_of_the_formula(reading: str) -> None:
    model = Model(encoder(), task={"representation": TASKS[reading]})
    signed = heatproof.Saliency(absolute=False)
    run = heatproof.evaluate(
        model, ROWS, {"gradient": signed}, [], keep_maps=True, references=4, shard_size=3
    )
    number, gradient = number_and_gradient(reading, ROWS)
    readouts = run.samples().sort_values("sample")["readout"]
    np.testing.assert_allclose(readouts, number, rtol=1e-5)
    maps = heatproof.explain(model, ROWS, signed)
    np.testing.assert_allclose(maps, gradient, rtol=1e-4, atol=1e-5)


@every_reading
def test_axes_run_and_say_what_was_explained(reading: str) -> None:
    model = Model(encoder(), task={"representation": {**TASKS[reading], "least_cosine": 0.95}})
    axes = [
        heatproof.Stability(perturbations={"column_noise": {"sigma": 0.3}}, k=2),
        heatproof.Faithfulness(imputers="zero", fractions=(0.25, 0.5), metrics=("road",)),
        heatproof.Symmetry(group={"permutation": {"dim": 1}}, elements=3),
    ]
    run = heatproof.evaluate(model, ROWS, ["input_x_gradient", "random"], axes, references=4)
    table = run.table()
    (models,) = run.manifest.study.tasks.values()
    (entry,) = models.values()
    assert entry.task == "representation" and entry.readout == model.task.readout
    for measure in ("fass", "road", "equivariance", "model_change"):
        assert (table.query("measure == @measure").status == "ok").any(), measure
    flipped = table[table["status"] == "flipped"]
    assert all("cosine" in reason for reason in flipped["reason"])
    assert run.text()


def test_unchanged_is_a_cosine_of_representations() -> None:
    task = Representation(read="norm", least_cosine=0.8)
    before = task.table(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), {})
    after = task.table(torch.tensor([[5.0, 1.0], [1.0, 1.0]]), {})
    same = task.same(before, after, torch.zeros(2, dtype=torch.int64))
    assert same.tolist() == [True, False]  # cosines 0.98 and 0.71


def test_an_invariant_encoder_has_invariant_representations() -> None:
    """Circular convolutions and a mean: every reading is invariant to shifts, and its gradient follows them."""

    def build() -> nn.Module:
        ring = nn.Conv1d(1, 4, 3, padding=1, padding_mode="circular")
        return nn.Sequential(ring, nn.Tanh(), nn.AdaptiveAvgPool1d(1), nn.Flatten())

    net = seeded(build, 0)
    series = torch.randn(3, 1, 12, generator=torch.Generator().manual_seed(3))
    shifts = heatproof.Symmetry(group="cyclic", elements=12)
    for parameters in TASKS.values():
        model = Model(net, task={"representation": parameters})
        table = heatproof.evaluate(model, series, ["saliency"], shifts).table()
        scores = table.query("measure == 'equivariance'").value
        np.testing.assert_allclose(scores, 1, atol=1e-4)
        np.testing.assert_allclose(table.query("measure == 'model_change'").value, 0, atol=1e-2)


def test_maps_of_channels_are_flattened() -> None:
    convolution = nn.Conv2d(3, 2, 3)
    model = Model(convolution, task={"representation": {"read": "norm"}})
    x = torch.rand(2, 3, 6, 6)
    table = model.logits(model.inputs(Batch(("a", "b"), x)))
    assert table.shape == (2, 1 + 2 * 4 * 4)
    torch.testing.assert_close(table[:, 0], convolution(x).flatten(1).norm(dim=1))


def test_a_study_reads_reference_vectors_beside_its_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "corpus.npz", x=CORPUS.numpy())
    np.save(tmp_path / "corpus.npy", CORPUS.numpy())
    expected = Representation(read="cosine", reference=CORPUS)
    for name in ("corpus.npz", "corpus.npy"):
        assert Representation(read="cosine", reference=str(tmp_path / name)) == expected
    (tmp_path / "nets.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Linear(8, 4)\n"
    )
    np.savez(tmp_path / "rows.npz", x=ROWS.numpy())
    (tmp_path / "study.yaml").write_text(
        "model: {source: 'python:nets.py:make', task: {representation: {read: cosine, reference: corpus.npz}}}\n"
        "data: rows.npz\nexplainers: [saliency]\nevaluations: [agreement]\n"
    )
    study = read_study(tmp_path / "study.yaml", allow_code=True)
    (options,) = study.models.values()
    assert options["task"] == expected


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"read": "unit"}, "unit"),
        ({"read": "cosine"}, "reference"),
        ({"read": "norm", "unit": 1}, "read: unit"),
        ({"read": "self", "reference": CORPUS}, "read: cosine"),
        ({"read": "cosine", "reference": torch.zeros(2, 4)}, "zeros"),
        ({"read": "cosine", "reference": torch.full((2, 4), torch.nan)}, "finite"),
        ({"read": "cosine", "reference": "nowhere.npz"}, "nowhere"),
        ({"read": "cosine", "reference": [["a"]]}, "reference"),
        ({"read": "lenght"}, "lenght"),
    ],
)
def test_mistakes_are_explained(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Representation(**parameters)


def test_vectors_and_units_that_do_not_fit_are_refused() -> None:
    for parameters, message in (
        ({"read": "cosine", "reference": torch.ones(1, 5)}, "4 entries.*5"),
        ({"read": "unit", "unit": 4}, "4"),
    ):
        model = Model(encoder(), task={"representation": parameters})
        with pytest.raises(UserError, match=message):
            heatproof.evaluate(model, ROWS, ["saliency", "random"], [heatproof.Agreement()])
