"""Every model whose right map is known, its samples, and every corruption of its maps; what `validate` counts."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import torch

from heatproof.truth import GRADES, Summed, corrupted, truths, validate
from heatproof.truth.validate import ASKED, markdown, needed, sentences
from support.fixed import brief, digest
from support.recorded import recorded

NAMES = ("linear", "gated", "planted", "colours", "pairs", "columns", "sets", "motifs", "words")


@pytest.mark.parametrize("name", NAMES)
def test_samples_and_right_maps(name: str) -> None:
    truth = {truth.name: truth for truth in truths()}[name]
    batch, model = truth.samples(4, seed=2), truth.model()
    inputs = model.inputs(batch)
    logits = model.logits(inputs, batch.aux).detach()
    target = torch.arange(4) % 3
    net = model.module  # of texts, one that takes the vectors of words
    assert isinstance(net, Summed)
    right = net.right(inputs, target)
    told: dict[str, Any] = {
        "text": truth.text,
        "tags": truth.tags,
        "ids": batch.ids,
        "x": digest(batch.x.double()),
    }
    told |= {"aux": {key: digest(value.double()) for key, value in batch.aux.items()}}
    told |= {"weight": digest(truth.net.weight), "logits": digest(logits), "right": digest(right)}
    assert torch.allclose(right.flatten(1).sum(1), logits[torch.arange(4), target], atol=1e-3)
    for grade, (how, level) in GRADES.items():
        if how != "sobel" or "image" in truth.tags:
            told[grade] = digest(corrupted(how, level, model, batch, target, 3))
    recorded(f"truth/{name}", told)


def test_what_is_counted() -> None:
    table = validate(4, seed=1, only=["columns"])
    told = {
        f"{r['axis']}.{r['measure']} {r['corruption']}": f"{r['wins']} {r['losses']} {r['n']} {brief(r['share'])} "
        f"{brief(r['low'])} {brief(r['high'])} {r['verdict']} {r['needed']} {r['better']} {brief(r['resilience'])} "
        f"{brief(r['resilience_low'])} {brief(r['resilience_high'])} {brief(r['constant'])}"
        for r in table.to_dict("records")
    }
    recorded("truth/counted", told)


def made_up() -> pd.DataFrame:
    rows = []
    for measure, better, wins in (
        ("depth", "higher", 18),
        ("height", "lower", 11),
        ("width", "neither", 2),
    ):
        for corruption in ASKED:
            share = wins / 20
            low, high = share - 0.15, share + 0.15
            verdict = "prefers" if low > 0.5 else "misled" if high < 0.5 else "blind"
            facts = {
                "axis": "stability",
                "measure": measure,
                "better": better,
                "constant": float(wins == 2),
            }
            facts |= {
                "resilience": share,
                "resilience_low": low,
                "resilience_high": high,
                "corruption": corruption,
            }
            facts |= {
                "wins": wins,
                "losses": 20 - wins,
                "n": 20,
                "share": share,
                "low": low,
                "high": high,
            }
            rows.append({**facts, "verdict": verdict, "needed": needed(share)})
    return pd.DataFrame(rows)


def test_what_is_said() -> None:
    page = markdown(made_up(), 20, " --quick").split("\n")
    told: dict[str, Any] = {"sentences": dict(sentences(made_up())), "page": page[1:]}
    told["needed"] = [
        needed(share) for share in (0.49, 0.5, 0.51, 0.55, 0.6, 0.7, 0.75, 0.9, 0.99, 1.0)
    ]
    alone = made_up()[lambda rows: rows["corruption"] == next(iter(ASKED))]
    told["alone"] = dict(sentences(alone))
    told["few"] = [needed(0.6, most=20), needed(0.9, most=8)]
    told["asked"] = ASKED
    told["models"] = [truth.name for truth in truths() if truth.name != "photographs"]
    recorded("truth/said", told)
