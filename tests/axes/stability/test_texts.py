"""Perturbations of texts: what becomes of their tokens, and maps compared word by word."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor, nn

import heatproof
from heatproof import Batch, Model, UserError
from heatproof.axes.stability.perturbations import Case, PassageOrder, Synonyms, WhiteSpace
from support.decoders import KEYS, PLACES, WORDS, Induction, induction, questions

TEXTS = [
    "The film  was good",
    "Bad actors, a bad film!",
    "good good acting",
    "nothing more to say of it",
]
START = 1


class Pieces:
    """A tokenizer that cuts words into pieces of three letters, keeps case and blanks, and begins with a token."""

    all_special_ids = (0, START)

    def __init__(self) -> None:
        self.pieces = ["<pad>", "<s>"]

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        cut = re.findall(r"\s(?=\s)|\s?\w{1,3}|\s?[^\w\s]|\s", text)
        self.pieces += [piece for piece in dict.fromkeys(cut) if piece not in self.pieces]
        return [START] * add_special_tokens + [self.pieces.index(piece) for piece in cut]

    def decode(self, ids: Any) -> str:
        return "".join(self.pieces[i] for i in ids)


class Bag(nn.Module):
    """The sum of the scores of all pieces, whose letters in any case, and blanks, decide on them."""

    def __init__(self, tokenizer: Pieces, size: int = 200) -> None:
        super().__init__()
        self.table = nn.Embedding(size, 2)
        score = [sum(map(ord, piece.strip().lower())) % 13 for piece in tokenizer.pieces] + [
            0
        ] * size
        self.table.weight.data = torch.tensor([[float(s), -1.0] for s in score[:size]])

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        return (self.table(x) * attention_mask[..., None]).sum(1)


def made(texts: list[str] = TEXTS, length: int | None = 40) -> tuple[Model, Batch, Pieces]:
    tokenizer = Pieces()
    for text in texts:  # so that the network has a score for every piece that will occur
        for variant in (text, text.upper(), text.lower(), text.title(), re.sub(r"\s+", "\n", text)):
            tokenizer.encode(variant)
            tokenizer.encode(variant + " movie picture fine", add_special_tokens=False)
    data = heatproof.open_data(texts, vocabulary=tokenizer, length=length)
    return Model(Bag(tokenizer), embedding="table"), data.load(range(len(data))).batch, tokenizer


def said(tokenizer: Pieces, batch: Batch) -> list[str]:
    rows = zip(batch.x.tolist(), batch.aux["attention_mask"].tolist(), strict=True)
    return [
        tokenizer.decode([i for i, real in zip(*row, strict=True) if real and i != START])
        for row in rows
    ]


@pytest.mark.parametrize(
    ("perturbation", "wanted"),
    [
        (Case(), str.upper),
        (Case("lower"), str.lower),
        (Case("capitalised"), lambda text: re.sub(r"\b[a-z]", lambda m: m[0].upper(), text)),
        (WhiteSpace(), lambda text: re.sub(r"(\s)", r"\1\1", text)),
        (WhiteSpace("lines"), lambda text: re.sub(r"\s+", "\n", text)),
        (WhiteSpace("trimmed"), lambda text: re.sub(r"\s+", " ", text).strip()),
        (Synonyms({"Film": ["movie"]}), lambda text: text.replace("film", "movie")),
    ],
    ids=["upper", "lower", "capitalised", "doubled", "lines", "trimmed", "synonyms"],
)  # fmt: skip
def test_texts_become_what_a_change_of_their_letters_makes_of_them(
    perturbation: Any, wanted: Any
) -> None:
    _, batch, tokenizer = made([*TEXTS, "  ends with blanks \n"])
    changed = perturbation(batch, 0)
    texts = [*TEXTS, "  ends with blanks \n"]
    assert said(tokenizer, changed.batch) == [wanted(text) for text in texts]
    assert [why == "" for why in changed.failures] == [wanted(text) != text for text in texts]
    again = Pieces.encode(tokenizer, wanted(texts[0]))  # the tokens are those of the whole text
    assert changed.batch.x[0, : len(again)].tolist() == again


def test_words_keep_their_numbers_and_special_tokens_have_none() -> None:
    _, batch, tokenizer = made(["Bad actors, a bad film!"])
    changed = Synonyms({"bad": ["terribly poor"]})(batch, 0)
    pieces = [tokenizer.pieces[i] for i in changed.batch.x[0].tolist()]
    assert pieces[:8] == ["<s>", "Ter", "rib", "ly", " poo", "r", " act", "ors"]
    assert changed.before[0, :9].tolist() == [-1, 1, 2, 2, 2, 3, 4, 5, 5]
    assert changed.after[0, :8].tolist() == [-1, 1, 1, 1, 1, 1, 2, 2]
    assert bool((changed.after[0, int(changed.batch.aux["attention_mask"].sum()) :] == -1).all())


def test_draws_depend_on_seed_and_sample_alone() -> None:
    _, batch, tokenizer = made(["a film and a film"] * 6)
    synonyms = Synonyms({"film": ["movie", "picture", "work"]})
    whole = said(tokenizer, synonyms(batch, 0).batch)
    assert whole == [said(tokenizer, synonyms(batch[i : i + 1], 0).batch)[0] for i in range(6)]
    assert len(set(whole)) > 2 and whole != said(tokenizer, synonyms(batch, 1).batch)
    prompts, _ = questions(4)
    moved = PassageOrder()(prompts, 0).batch.x
    assert torch.equal(moved[2:3], PassageOrder()(prompts[2:3], 0).batch.x)
    assert bool((moved != prompts.x).any(1).all()) and torch.equal(
        moved.sort(1).values, prompts.x.sort(1).values
    )


PERTURBATIONS = [
    {"case": {"to": ["upper", "lower", "capitalised"]}},
    {"white_space": {"to": ["doubled", "lines", "trimmed"]}},
    "identity",
]


def test_maps_of_a_network_that_reads_words_in_any_case_score_1() -> None:
    model, batch, _ = made()
    stability = heatproof.Stability(perturbations=PERTURBATIONS)
    table = heatproof.evaluate(
        model, batch, ["input_x_gradient"], [stability], references=2
    ).table()
    rows = table[(table.measure == "fass") & (table.status == "ok")]
    assert set(rows.condition) == {"case", "case(to=lower)", "case(to=capitalised)", "white_space",
                                   "white_space(to=lines)", "white_space(to=trimmed)"}  # fmt: skip
    assert (rows.value == 1).all()
    assert (table[table.measure == "identity_check"].value == 1).all()
    lost = table[(table.measure == "fass") & (table.status == "undefined")]
    assert lost.reason.str.contains("changes nothing in it").all()
    assert (
        table[table.measure == "fass"].groupby("condition").size() == len(TEXTS)
    ).all()  # every pair is a row


def test_scores_are_of_words_against_a_calculation_by_hand() -> None:
    model, batch, tokenizer = made()
    given = {i: np.random.default_rng(int(i)).normal(size=(40,)) for i in batch.ids}

    def maps(
        model: Model, batch: Batch, target: Tensor, seed: int
    ) -> Tensor:  # other at every place and token
        return torch.stack(
            [torch.tensor(given[i]) * (1 + x % 7) for i, x in zip(batch.ids, batch.x, strict=True)]
        )

    synonyms = {
        "words": {"bad": ["not so good"], "film": ["movie"], "good": ["fine"], "more": ["to add"]}
    }
    stability = heatproof.Stability(perturbations={"synonyms": synonyms}, k=2)
    table = heatproof.evaluate(model, batch, {"mine": maps}, [stability], references=2).table()
    found = (
        table[(table.measure == "spearman") & (table.condition == "synonyms")]
        .set_index("sample")
        .value
    )
    assert len(found) == 4
    for sample, text, row in zip(batch.ids, TEXTS, batch.x, strict=True):
        words = re.findall(r"\s*\S+", text)
        capital = {
            "bad": "not so good",
            "Bad": "Not so good",
            "film": "movie",
            "good": "fine",
            "more": "to add",
        }
        others = [re.sub(r"\w+", lambda m: capital.get(m[0], m[0]), word) for word in words]  # noqa: B023
        sums = []
        for said_words in (words, others):
            ids = [tokenizer.encode(word, add_special_tokens=False) for word in said_words]
            owner = [-1] + [n for n, own in enumerate(ids) for _ in own]
            x = [START, *(i for own in ids for i in own)]
            value = [given[sample][at] * (1 + token % 7) for at, token in enumerate(x)]
            sums.append(
                [
                    sum(v for v, o in zip(value, owner, strict=True) if o == n)
                    for n in range(len(words))
                ]
            )
        assert found[sample] == pytest.approx((spearmanr(*sums).statistic + 1) / 2, abs=1e-6), text
        assert row[0] == START


def test_flips_and_texts_that_grow_too_long_are_rows() -> None:
    _, batch, tokenizer = made(["a good film", "a bad film"], length=None)
    model = Model(Bag(tokenizer), embedding="table")
    words = {"good": ["a" * 40], "bad": ["bad"]}
    stability = heatproof.Stability(perturbations={"synonyms": {"words": words}}, k=1)
    table = heatproof.evaluate(
        model, batch, ["input_x_gradient"], [stability], references=2
    ).table()
    reasons = table[table.measure == "fass"].sort_values("sample").reason.tolist()
    assert (
        "it would have 18 tokens, and texts have 6 here" in reasons[0]
        and "changes nothing" in reasons[1]
    )
    flipping = Bag(tokenizer)
    flipping.table.weight.data = torch.tensor([[0.0, 1.0]]).repeat(200, 1)
    flipping.table.weight.data[tokenizer.encode(" film", False)[0], 0] = 30.0
    stability = heatproof.Stability(perturbations={"synonyms": {"words": {"film": ["it"]}}}, k=1)
    table = heatproof.evaluate(
        Model(flipping, embedding="table"), batch, ["input_x_gradient"], [stability], references=2
    )
    assert "flipped" in set(table.table().status)


def test_an_answer_stands_behind_the_changed_prompt() -> None:
    batch, _ = questions()
    model = induction(tokens=1)
    wider = {
        key: nn.functional.pad(held, (0, 3)) for key, held in {"x": batch.x, **batch.aux}.items()
    }
    fixed = model.fixed(replace(batch, x=wider.pop("x"), aux=wider))
    changed = Synonyms({"where": ["where . where"]})(fixed, 0)
    assert not any(changed.failures)
    texts = []
    for row, passage in zip(batch.x.tolist(), batch.aux["_passages"].tolist(), strict=True):
        ids = [
            [i for i, n in zip(row, passage, strict=True) if n == k and i] for k in (1, 2, 3, 4, 0)
        ]
        texts.append([" ".join(WORDS.decode(own)).replace("where", "where . where") for own in ids])
    answers = [WORDS.decode([int(a) for a in row if a >= 0])[0] for row in fixed.aux["answer"]]
    direct = heatproof.prompts(WORDS, texts, answers, length=changed.batch.x.shape[1])
    assert torch.equal(changed.batch.x, direct.x) and torch.equal(
        changed.batch.aux["answer"], direct.aux["answer"]
    )
    for key in ("attention_mask", "_passages"):
        assert torch.equal(changed.batch.aux[key], direct.aux[key])


def test_a_decoder_that_does_not_mind_the_order_of_passages_keeps_its_maps() -> None:
    batch, _ = questions()
    model = heatproof.decoder(Induction(len(WORDS)), WORDS, options=PLACES)
    fixed = model.fixed(batch)
    moved = PassageOrder()(fixed, 0).batch
    assert torch.equal(moved.aux["answer"], fixed.aux["answer"])
    assert torch.allclose(
        *(model.logits(model.inputs(b), b.aux) for b in (fixed, moved)), atol=1e-5
    )
    stability = heatproof.Stability(
        perturbations=["passage_order", {"synonyms": {"words": {"lives": [*KEYS[:2]]}}}]
    )
    table = heatproof.evaluate(
        model, batch, ["input_x_gradient"], [stability], references=2
    ).table()
    rows = table[(table.measure == "fass") & (table.condition == "passage_order")]
    assert (rows.status == "ok").all() and rows.value.min() > 0.99


def test_wrong_uses_are_refused_before_any_pass(tmp_path: Any) -> None:
    model, batch, _ = made()
    bare = replace(batch, tokenizer=None)
    cases = [
        (bare, "case", r"case.*tokenizer"),
        (batch, "synonyms", r"synonyms.*words"),
        (batch, {"case": {"to": "uper"}}, "upper"),
        (batch, {"synonyms": {"words": {"film": []}}}, "synonyms"),
        (batch, {"synonyms": {"words": str(tmp_path / "none.json")}}, "none.json"),
    ]
    for data, perturbation, message in cases:
        model.passes = 0
        with pytest.raises(UserError, match=message):
            heatproof.evaluate(
                model, data, ["input_x_gradient"], [{"stability": {"perturbations": perturbation}}]
            )
        assert model.passes == 0
    with pytest.raises(UserError, match=r"white_space.*token ids"):
        heatproof.evaluate(
            nn.Flatten(),
            torch.rand(3, 4),
            ["random"],
            [heatproof.Stability(perturbations="white_space")],
        )
    (tmp_path / "words.json").write_text(json.dumps({"Film": ["movie"]}))
    assert Synonyms(str(tmp_path / "words.json")).words == {"film": ["movie"]}


CORPUS = [
    case(text)
    for text in [*TEXTS, "Where is it? It is there.", "\n"]
    for case in (str, str.upper, str.lower, str.title)
]


def _byte_level(tokenizers: Any) -> tuple[Any, dict[str, str]]:
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder, letters = (
        tokenizers.decoders.ByteLevel(),
        tokenizers.pre_tokenizers.ByteLevel.alphabet(),
    )
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=340, initial_alphabet=letters, special_tokens=["<s>"]
    )
    made.train_from_iterator(CORPUS, trainer)
    return made, {"bos_token": "<s>"}


def _with_underscores(tokenizers: Any) -> tuple[Any, dict[str, str]]:
    made = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    made.pre_tokenizer, made.decoder = (
        tokenizers.pre_tokenizers.Metaspace(),
        tokenizers.decoders.Metaspace(),
    )
    made.train_from_iterator(
        CORPUS,
        tokenizers.trainers.BpeTrainer(
            vocab_size=160, special_tokens=["<unk>", "<s>"], show_progress=False
        ),
    )
    first = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    made.post_processor = first
    return made, {"bos_token": "<s>", "unk_token": "<unk>"}


def _word_pieces(tokenizers: Any) -> tuple[Any, dict[str, str]]:
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    made.pre_tokenizer, made.decoder = (
        tokenizers.pre_tokenizers.BertPreTokenizer(),
        tokenizers.decoders.WordPiece(),
    )
    special = ["[UNK]", "[CLS]", "[SEP]"]
    made.train_from_iterator(
        CORPUS, tokenizers.trainers.WordPieceTrainer(vocab_size=160, special_tokens=special)
    )
    ends = [("[CLS]", 1), ("[SEP]", 2)]
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=ends
    )
    return made, {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}


@pytest.mark.parametrize("make", [_byte_level, _with_underscores, _word_pieces])
def test_tokenizers_of_transformers_cut_a_changed_text_as_a_whole(make: Any) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    made, named = make(pytest.importorskip("tokenizers"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **named)
    texts = ["The film was good", "Where is it? It is there.", "nothing more to say of it"]
    batch = heatproof.open_data(texts, vocabulary=tokenizer, length=80).load(range(3)).batch
    wanted = [
        (Case(), str.upper),
        (Case("lower"), str.lower),
        (WhiteSpace("lines"), lambda text: text.replace(" ", "\n")),
        (Synonyms({"film": ["good acting"]}), lambda text: text.replace("film", "good acting")),
    ]
    for perturbation, change in wanted:
        changed = perturbation(batch, 0)
        for text, row, real, why in zip(
            texts,
            changed.batch.x,
            changed.batch.aux["attention_mask"],
            changed.failures,
            strict=True,
        ):
            ids = row[real != 0].tolist()
            assert ids == tokenizer.encode(change(text)), (perturbation, text)
            assert bool(why) == (ids == tokenizer.encode(text))
