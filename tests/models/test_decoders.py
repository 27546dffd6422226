"""Decoders: log-probabilities, greedy answers and options against one pass after another over unpadded prompts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import heatproof
from heatproof import Batch, Model, UserError
from heatproof.features import Passages, Tokens
from support.decoders import KEYS, PLACES, WORDS, Causal, Induction, induction, questions

HIDES = Passages()
ROAD = heatproof.Faithfulness(features=HIDES, fractions=(0.25, 0.5), metrics=("road",))


def prompts(answers: Any = ()) -> Batch:
    """Three prompts of different lengths."""
    texts = [
        ["ann rome .", "ben oslo . lives .", "where ann"],
        ["eve bonn .", "where"],
        ["fay cork", "dan lima", "eve"],
    ]
    return heatproof.prompts(WORDS, texts, answers)


def next_logits(net: nn.Module, ids: list[int], hidden: tuple[int, ...] = ()) -> Tensor:
    """What a decoder says after these tokens, without any padding, (L, V)."""
    mask = torch.tensor([[int(i not in hidden) for i in range(len(ids))]])
    with torch.no_grad():
        out = net(
            inputs_embeds=net.get_input_embeddings()(torch.tensor([ids])), attention_mask=mask
        )  # type: ignore[operator]
    return getattr(out, "logits", out)[0]


def log_probability(
    net: nn.Module, prompt: list[int], said: list[int], hidden: tuple[int, ...] = ()
) -> float:
    logs = next_logits(net, prompt + said, hidden).log_softmax(1)
    return sum(float(logs[len(prompt) + t - 1, token]) for t, token in enumerate(said))


def greedy(net: nn.Module, prompt: list[int], tokens: int, end: int | None = None) -> list[int]:
    said: list[int] = []
    while len(said) < tokens and (not said or said[-1] != end):
        said.append(int(next_logits(net, prompt + said)[-1].argmax()))
    return said


def rows(batch: Batch) -> list[list[int]]:
    return [x[m.bool()].tolist() for x, m in zip(batch.x, batch.aux["attention_mask"], strict=True)]


def read(model: Model, batch: Batch) -> Tensor:
    batch = model.fixed(batch)
    with torch.no_grad():
        return model.logits(model.inputs(batch), batch.aux)


NETS = {"induction": Induction(len(WORDS)), "causal": Causal(len(WORDS)).eval()}
each = pytest.mark.parametrize("net", NETS.values(), ids=NETS)


@each
def test_a_given_answer_has_the_log_probability_of_its_tokens(net: nn.Module) -> None:
    answers = ["rome oslo", "lives", "bonn cork ."]
    batch = prompts(answers)
    found = read(heatproof.decoder(net), batch)[:, 0]
    expected = [
        log_probability(net, row, WORDS.encode(a))
        for row, a in zip(rows(batch), answers, strict=True)
    ]
    torch.testing.assert_close(found, torch.tensor(expected))


@each
@pytest.mark.parametrize("end", [None, WORDS.encode(".")[0]])
def test_the_answer_is_decoded_greedily_up_to_its_end(net: nn.Module, end: int | None) -> None:
    tokenizer: Any = type(
        "Ending", (), {"eos_token_id": end, "encode": staticmethod(WORDS.encode)}
    )()
    model, batch = heatproof.decoder(net, tokenizer, tokens=4), prompts()
    answer = model.fixed(batch).aux["answer"]
    said = [row[row >= 0].tolist() for row in answer]
    assert said == [greedy(net, row, 4, end) for row in rows(batch)]
    assert [int((row >= 0).int().argmax()) for row in answer] == [len(row) for row in rows(batch)]
    assert bool((read(model, batch)[:, 1] >= 0).all())


def test_the_lead_says_whether_greedy_decoding_still_gives_the_answer() -> None:
    net = NETS["causal"]
    model, batch = heatproof.decoder(net, tokens=2), prompts()
    fixed = model.fixed(batch)
    said = [greedy(net, row, 2) for row in rows(batch)]
    verdicts = []
    for place in range(3):
        for token in range(2, len(WORDS)):
            changed = fixed.with_x(fixed.x.index_fill(1, torch.tensor([place]), token))
            found = model.task.same(read(model, fixed), read(model, changed), torch.zeros(3).long())
            assert found.tolist() == [
                greedy(net, row, 2) == one for row, one in zip(rows(changed), said, strict=True)
            ]
            verdicts += found.tolist()
    assert len(set(verdicts)) == 2


@each
def test_options_are_compared_by_their_log_probabilities(net: nn.Module) -> None:
    batch = prompts(["rome", "oslo", "lima"])  # answers that come with the data play no part
    for options in (["rome", "oslo", "bonn"], ["rome .", "oslo lives", "cork cork"], [[2], [3, 4]]):
        model = heatproof.decoder(net, WORDS, options=options)
        ids = [WORDS.encode(option) if isinstance(option, str) else option for option in options]
        expected = torch.tensor(
            [[log_probability(net, row, option) for option in ids] for row in rows(batch)]
        )
        torch.testing.assert_close(read(model, batch), expected)
        bare = {key: value for key, value in batch.aux.items() if key != "answer"}
        torch.testing.assert_close(read(model, replace(batch, aux=bare)), expected)
        assert model.task.target(expected).tolist() == expected.argmax(1).tolist()
    assert model.classes == ("[2]", "[3, 4]")


def test_hiding_the_last_token_leaves_the_answer_where_it_stood() -> None:
    net = NETS["causal"]
    for model in (
        heatproof.decoder(net, tokens=1),
        heatproof.decoder(net, options=[[3], [4], [5]]),
    ):
        batch = model.fixed(prompts())
        kept = torch.ones(batch.x.shape, dtype=torch.bool)
        last = [len(row) - 1 for row in rows(batch)]
        kept[torch.arange(3), torch.tensor(last)] = False
        x, aux = Tokens().hide(batch.x, batch.aux, kept)
        found = model.logits(model.inputs(batch.with_x(x)), aux)
        said = [[3]] * 3 if found.shape[1] == 3 else [greedy(net, row, 1) for row in rows(batch)]
        expected = [
            log_probability(net, r, s, (n,))
            for r, s, n in zip(rows(batch), said, last, strict=True)
        ]
        torch.testing.assert_close(found[:, 0], torch.tensor(expected))


def test_vectors_are_read_like_ids_and_have_a_gradient() -> None:
    model = heatproof.decoder(NETS["causal"], tokens=2)
    batch = model.fixed(prompts())
    vectors = model.inputs(batch).requires_grad_()
    by_vectors = model.logits(vectors, batch.aux)
    torch.testing.assert_close(by_vectors, model.logits(batch.x, batch.aux))
    (gradient,) = torch.autograd.grad(by_vectors[:, 0].sum(), vectors)
    assert torch.equal(gradient.abs().sum(2) > 0, batch.aux["attention_mask"].bool())


def test_a_passage_is_worth_what_the_answer_loses_without_it() -> None:
    net, (batch, _) = NETS["induction"], questions(3)
    model = heatproof.decoder(net, tokens=1)
    batch = model.fixed(batch)
    maps = heatproof.FeatureAblation(features=HIDES)(model, batch, torch.zeros(3).long(), 0)
    for i, (row, numbers) in enumerate(
        zip(rows(batch), batch.aux["_passages"].tolist(), strict=True)
    ):
        said = greedy(net, row, 1)
        whole = log_probability(net, row, said)
        for passage in range(1, 5):
            places = tuple(k for k, number in enumerate(numbers) if number == passage)
            lost = torch.tensor(whole - log_probability(net, row, said, places))
            torch.testing.assert_close(
                maps[i, list(places)], lost.expand(len(places)), atol=1e-4, rtol=1e-4
            )
        assert not maps[i, [k for k, number in enumerate(numbers) if not number]].any()


def exact(model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
    return batch.aux["_region"].double()


def other(model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
    """The map of the passage after the right one."""
    right = (batch.aux["_region"] * batch.aux["_passages"]).amax(1, keepdim=True)
    return (batch.aux["_passages"] == right % 4 + 1).double()


def constant(model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
    return torch.ones(batch.x.shape)


def known(count: int = 12) -> Batch:
    """Questions with the passage that holds the answer as their region."""
    batch, right = questions(count)
    return replace(batch, aux={**batch.aux, "_region": batch.aux["_passages"] == right[:, None]})


@pytest.mark.parametrize("options", [(), PLACES], ids=["answer", "options"])
def test_the_passage_that_holds_the_answer_is_found(options: Any) -> None:
    model = induction(options=options, tokens=1)
    found = {
        "exact": exact, "other": other, "constant": constant,
        "lime": heatproof.Lime(features=HIDES, samples=48), "input_x_gradient": heatproof.InputXGradient(),
        "kernel_shap": heatproof.KernelShap(features=HIDES, samples=16),
        "occlusion": heatproof.Occlusion(window=1, stride=1),
    }  # fmt: skip
    certificate = heatproof.Certificate(features=HIDES, radii=(1, 3), fraction=0.25)
    run = heatproof.evaluate(
        model, known(), found, [ROAD, heatproof.Localisation(), certificate], references=4
    )
    ranking = run.ranking().set_index(["evaluation", "explainer"])
    for axis in ("faithfulness", "localisation", "certificate"):
        scores = ranking.loc[axis, "raw"]
        best = float(scores["exact"])
        assert scores.isna().to_dict() == {name: name == "constant" for name in found}
        assert all(best >= scores[name] - 1e-3 for name in found if name != "constant"), axis
        assert all(
            scores["other"] < scores[name] - 0.1
            for name in found
            if name not in ("other", "constant")
        ), axis
    rates = run.table().query("measure == 'rate' and explainer == 'exact'")
    assert (
        len(rates) == 24 and (rates.value == 1).all()
    )  # whatever passages are added, the answer survives
    assert set(run.table().query("explainer == 'constant'").status) == {"undefined"}
    if options:
        page = Path(run.report()).read_text(encoding="utf-8")
        assert "passages removed" in page and "tokens removed" not in page


def test_the_order_of_passages_does_not_matter_to_what_looks_things_up() -> None:
    model = induction(options=PLACES)
    named = {
        "lime": heatproof.Lime(features=HIDES, samples=32),
        "gradient": heatproof.InputXGradient(),
    }
    symmetry = heatproof.Symmetry(group=heatproof.groups.PassagePermutation(HIDES), elements=6)
    table = heatproof.evaluate(model, known(6), named, [symmetry], references=3).table()
    for measure in ("equivariance", "model_invariance"):
        values = table[
            (table.measure == measure) & (table.condition == "passage_permutation")
        ].value
        assert len(values) == 12 and values.min() > 1 - 1e-4
    settled = heatproof.decoder(NETS["causal"], WORDS, options=PLACES)
    moved = heatproof.evaluate(settled, known(6), named, [symmetry], references=3).table()
    assert moved[moved.measure == "model_invariance"].value.min() < 0.99


def test_passages_move_in_one_piece() -> None:
    batch = heatproof.prompts(WORDS, [["ann rome .", "ben", "where"]])
    group = heatproof.groups.PassagePermutation(HIDES)
    drawn = {
        tuple(WORDS.decode(group.act(g, batch).x[0])) for g in group.sample(batch, 20, 0)[:, 0]
    }
    assert drawn == {("ann", "rome", ".", "ben", "where"), ("ben", "ann", "rome", ".", "where")}
    torn = replace(batch, aux={**batch.aux, "_passages": torch.tensor([[1, 2, 1, 2, 0]])})
    with pytest.raises(UserError, match="passage"):
        group.elements(torn)


def test_texts_are_stable_under_what_says_the_same() -> None:
    table = torch.arange(len(WORDS))
    old, new = (
        torch.tensor(WORDS.encode(" ".join(words))) for words in (KEYS, (*KEYS[1:], KEYS[0]))
    )
    table[old] = new  # everybody is renamed, so that the answers stay

    def renamed(batch: Batch, seed: int) -> Tensor:
        return table[batch.x]

    data, named = known(6), {"gradient": heatproof.InputXGradient()}
    run = heatproof.evaluate(
        induction(tokens=1), data, named, [heatproof.Stability(perturbations=renamed)], references=3
    )
    fass = run.table().query("measure == 'fass'")
    assert len(fass) == 6 and fass.value.min() > 0.99
    for wrong in ("usual", "jitter", ["identity", "column_noise"]):
        with pytest.raises(UserError, match="own"):
            heatproof.Stability(perturbations=wrong).configured_for(induction(), data)


def test_a_prompt_may_be_one_text_without_passages() -> None:
    as_text, as_list = (
        heatproof.prompts(WORDS, ["where ann"]),
        heatproof.prompts(WORDS, [["where ann"]]),
    )
    assert torch.equal(as_text.x, as_list.x)
    assert as_text.aux["_passages"].tolist() == [[0, 0]]


def test_wrong_decoders_and_prompts_are_refused() -> None:
    for call, message in (
        (lambda: heatproof.decoder(nn.Linear(2, 2)), r"Linear.*get_input_embeddings"),
        (
            lambda: heatproof.decoder(NETS["causal"], options=["rome", "oslo"]),
            "tokenizer",
        ),
        (lambda: induction(options=["rome"]), "options"),
        (lambda: induction(tokens=0), "at least 1"),
        (lambda: heatproof.prompts(WORDS, "where ann"), "list of texts"),
        (lambda: heatproof.prompts(WORDS, [""]), "prompt"),
        (lambda: heatproof.prompts(WORDS, [["where"]], ["rome", "oslo"]), "prompt"),
        (lambda: HIDES.segments(Batch(("a",), torch.tensor([[1, 2]]))), "separators"),
    ):
        with pytest.raises(UserError, match=message):
            call()


def gpt2(folder: Path) -> Any:
    """A tiny GPT-2 with random weights and a tokenizer of whole words, saved as a local copy of a hub's model."""
    transformers, tokenizers = (
        pytest.importorskip("transformers"),
        pytest.importorskip("tokenizers"),
    )
    listed = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *WORDS.words])}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(listed, unk_token="[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", eos_token="."
    )
    made.save_pretrained(folder)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        ends = {"bos_token_id": listed["."], "eos_token_id": listed["."]}
        config = transformers.GPT2Config(
            vocab_size=len(listed), n_positions=64, n_embd=32, n_layer=2, n_head=2, **ends
        )
        net = transformers.GPT2LMHeadModel(config).eval()
        net.transformer.wpe.weight.data *= 20  # so that a shifted token shows
        net.transformer.wte.weight.data *= 20
    net.save_pretrained(folder)
    return net, made


@pytest.mark.filterwarnings("ignore")
def test_decoders_of_transformers_are_read_as_they_read_themselves(tmp_path: Path) -> None:
    net, tokenizer = gpt2(tmp_path)
    texts = [["ann rome .", "ben oslo . lives .", "where ann"], ["eve bonn .", "where"]]
    answers = ["rome oslo lima", "bonn"]
    model = heatproof.load_model(f"decoder:{tmp_path}")
    given = heatproof.prompts(tokenizer, texts, answers)
    for row, answer, found in zip(rows(given), answers, read(model, given)[:, 0], strict=True):
        said = tokenizer.encode(answer, add_special_tokens=False)
        labels = torch.tensor([[-100] * len(row) + said])
        loss = net(torch.tensor([row + said]), labels=labels).loss
        torch.testing.assert_close(found, -loss.detach() * len(said), rtol=1e-4, atol=1e-4)
    open_ended = model.fixed(heatproof.prompts(tokenizer, texts))
    for row, answer in zip(rows(open_ended), open_ended.aux["answer"], strict=True):
        made = net.generate(torch.tensor([row]), attention_mask=torch.ones(1, len(row)), do_sample=False,
                            max_new_tokens=8, pad_token_id=0)  # fmt: skip
        assert answer[answer >= 0].tolist() == made[0, len(row) :].tolist()
    chooser = heatproof.load_model(f"decoder:{tmp_path}", classes=["rome", "oslo"])
    assert chooser.classes == ("rome", "oslo") and read(chooser, open_ended).shape == (2, 2)
    assert Tokens.of(tokenizer) == Tokens(special=tuple(tokenizer.all_special_ids))
    data = heatproof.open_data(["ann rome", "ben"], vocabulary=tokenizer)
    assert data.load([0, 1]).batch.x.tolist() == [
        tokenizer.encode("ann rome"),
        [*tokenizer.encode("ben"), 0],
    ]


def test_the_lead_of_an_answer_is_no_other_class() -> None:
    batch, _ = questions(4)
    found = {}
    for kind, model in (("answer", induction(tokens=1)), ("options", induction(options=PLACES))):
        axis = heatproof.Dependence(draws=0, k=3)
        table = heatproof.evaluate(
            model, batch, {"gradient": heatproof.InputXGradient()}, [axis], references=2
        ).table()
        found[kind] = set(table.measure)
    assert found["options"] - found["answer"] >= {"class_dependence"}
