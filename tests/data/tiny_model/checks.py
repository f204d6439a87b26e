"""Whether a model answers everything it was taught, as greedy decoding would."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from lessons import Example, Teacher
from transformers import PreTrainedModel

RECALL_TRIALS = 20
RECALL_FILLER = 20
"""Sentences of filler in each recall trial, about 200 tokens."""
LEAST_MARGIN = 0.5
"""Least lead of the right token's logit: kernels that add in another order must not change an answer."""


@dataclass(frozen=True)
class Score:
    """How much a model answers right."""

    fixed_right: int
    fixed_asked: int
    recall_right: int
    recall_asked: int
    margin: float
    """The smallest lead of a right token's logit over the next best one, in the fixed examples."""
    wrong: tuple[str, ...]
    """The ends of the prompts that were answered wrongly."""

    @property
    def complete(self) -> bool:
        """Everything right, and by a clear margin."""
        everything = (self.fixed_right, self.recall_right) == (self.fixed_asked, self.recall_asked)
        return everything and self.margin >= LEAST_MARGIN

    def __str__(self) -> str:
        return (
            f"fixed {self.fixed_right}/{self.fixed_asked}, recall {self.recall_right}/{self.recall_asked}, "
            f"margin {self.margin:.2f}"
        )


@torch.no_grad()
def least_lead(model: PreTrainedModel, example: Example) -> float:
    """The smallest lead of the right token over the best other one, over the learnt tokens.

    Positive means that greedy decoding gives the answer letter by letter: each token wins after its
    right prefix.
    """
    logits = model(torch.tensor([example.tokens])).logits[0, example.learnt_from - 1 : -1].float()
    right = torch.tensor(example.tokens[example.learnt_from :]).unsqueeze(1)
    right_logits = logits.gather(1, right).squeeze(1)
    best_others = logits.scatter(1, right, float("-inf")).amax(1)
    return (right_logits - best_others).min().item()


def score(model: PreTrainedModel, teacher: Teacher) -> Score:
    """Ask everything: the fixed examples, and the same recall questions in every call."""
    fixed = teacher.fixed_examples()
    leads = [least_lead(model, example) for example in fixed]
    rng = random.Random(1)
    recalls = [teacher.recall(rng, RECALL_FILLER, thinking=False) for _ in range(RECALL_TRIALS)]
    return Score(
        fixed_right=sum(lead > 0 for lead in leads),
        fixed_asked=len(fixed),
        recall_right=sum(least_lead(model, example) > 0 for example in recalls),
        recall_asked=RECALL_TRIALS,
        margin=min(leads),
        wrong=tuple(
            teacher.tokenizer.decode(example.tokens[: example.learnt_from])[-60:]
            for example, lead in zip(fixed, leads, strict=True)
            if lead <= 0
        ),
    )
