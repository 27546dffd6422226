"""The name of a pool of training examples, which ends up in the name of a run."""

import torch

from heatproof.explainers.concepts.concepts import Concept
from heatproof.explainers.examples.training_set import Examples
from heatproof.types import Batch


def pool(factor: float = 1.0, label: int = 0, first: str = "a") -> Batch:
    x = torch.arange(1, 13, dtype=torch.float32).reshape(2, 6) * factor
    return Batch(ids=(first, "b"), x=x, label=torch.tensor([label, 1]))


def test_rounding_changes_no_name():
    as_computed_elsewhere = 1 + 2 * torch.finfo(torch.float32).eps
    here, elsewhere = Examples(pool()), Examples(pool(as_computed_elsewhere))
    assert here != elsewhere
    assert repr(here) == repr(elsewhere)


def test_ids_labels_and_values_change_the_name():
    pools = [pool(), pool(factor=1.01), pool(label=2), pool(first="z")]
    assert len({repr(Examples(batch)) for batch in pools}) == 4


def test_a_concept_keeps_its_name_under_rounding():
    x = torch.linspace(0.5, 2, 60).reshape(20, 3)
    nearly_one = 1 + 2 * torch.finfo(torch.float32).eps
    here = Concept("dots", x, -x)
    elsewhere = Concept("dots", x * nearly_one, -x)
    other = Concept("dots", 1.1 * x, -x)
    assert here.fingerprint != elsewhere.fingerprint
    assert repr(here) == repr(elsewhere)
    assert repr(here) != repr(other)
