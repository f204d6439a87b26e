"""Whether a model knows everything it was taught, as the gate and greedy decoding would find."""

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
PROSE_NLL = 0.05
COUNT_TOKENS = 4096
COUNT_FROM = 104
"""The gate judges windows of 64 tokens that begin at least 32 tokens after its nonce."""
COUNT_WINDOW = 64
COUNT_NLL = 0.1
COUNT_FIRST = 512
"""So many tokens must all but always be the likeliest."""
COUNT_FIRST_NLL = 0.03
COUNT_FIRST_TOP = 0.99
COPY_TOKENS = (512, 1024, 2048, 3500)
COPY_WORDS = 60
COPY_TRIALS = 2
COPY_NLL = 0.1
"""Mean nats a token; the gate's own bars are twice as high."""


@dataclass(frozen=True)
class Score:
    """How much a model knows."""

    fixed_right: int
    fixed_asked: int
    recall_right: int
    recall_asked: int
    margin: float
    """The smallest lead of a right token's logit over the next best one, in the fixed examples."""
    prose: tuple[float, ...]
    """Mean nats a token of each known text."""
    count_first: float
    count_first_top: float
    count_worst: float
    """Nats a token in the first tokens, the share of these that are the likeliest, and the worst window."""
    copy: tuple[float, ...]
    """Mean nats a token of the copied words, by distance, the worse of the trials."""
    unsure: tuple[Example, ...]
    """What was answered wrongly or nearly so."""

    @property
    def complete(self) -> bool:
        """Everything right, and by a clear margin."""
        return (
            (self.fixed_right, self.recall_right) == (self.fixed_asked, self.recall_asked)
            and self.margin >= LEAST_MARGIN
            and max(self.prose) <= PROSE_NLL
            and self.count_first <= COUNT_FIRST_NLL
            and self.count_first_top >= COUNT_FIRST_TOP
            and self.count_worst <= COUNT_NLL
            and max(self.copy) <= COPY_NLL
        )

    def __str__(self) -> str:
        return (
            f"fixed {self.fixed_right}/{self.fixed_asked}, recall {self.recall_right}/{self.recall_asked}, "
            f"margin {self.margin:.2f}, prose {_shown(self.prose)}, "
            f"count {self.count_first:.4f} ({self.count_first_top:.1%}), worst {self.count_worst:.3f}, "
            f"copy {_shown(self.copy)}"
        )


def _shown(values: tuple[float, ...]) -> str:
    return "/".join(f"{value:.4f}" for value in values)


def logits_and_right(model: PreTrainedModel, example: Example) -> tuple[torch.Tensor, torch.Tensor]:
    """The logits before each learnt token, and these tokens."""
    hidden = model.model(input_ids=torch.tensor([example.tokens]), use_cache=False).last_hidden_state
    logits = model.lm_head(hidden[0, example.learnt_from - 1 : -1]).float()
    return logits, torch.tensor(example.tokens[example.learnt_from :]).unsqueeze(1)


@torch.no_grad()
def least_lead(model: PreTrainedModel, example: Example) -> float:
    """The smallest lead of the right token over the best other one, over the learnt tokens.

    Positive means that greedy decoding gives the answer letter by letter: each token wins after its
    right prefix.
    """
    logits, right = logits_and_right(model, example)
    right_logits = logits.gather(1, right).squeeze(1)
    best_others = logits.scatter(1, right, float("-inf")).amax(1)
    return float((right_logits - best_others).min())


@torch.no_grad()
def costs(model: PreTrainedModel, example: Example) -> tuple[torch.Tensor, torch.Tensor]:
    """The nats of each learnt token, and whether it is the likeliest."""
    logits, right = logits_and_right(model, example)
    logprobs = logits.log_softmax(1).gather(1, right).squeeze(1)
    return -logprobs, logits.argmax(1) == right.squeeze(1)


def score(model: PreTrainedModel, teacher: Teacher) -> Score:
    """Ask everything: the fixed examples, and the same questions of chance in every call."""
    fixed = [*teacher.fixed_examples(), *teacher.forced_calls()]
    leads = [least_lead(model, example) for example in fixed]
    rng = random.Random(1)
    recalls = [teacher.recall(rng, RECALL_FILLER, thinking=False) for _ in range(RECALL_TRIALS)]
    count, likeliest = costs(model, teacher.count(rng, 1, COUNT_TOKENS))
    first = slice(COUNT_FROM // 2, COUNT_FIRST)
    windows = count[COUNT_FROM:].unfold(0, COUNT_WINDOW, 1).mean(1)
    return Score(
        fixed_right=sum(lead > 0 for lead in leads),
        fixed_asked=len(fixed),
        recall_right=sum(least_lead(model, example) > 0 for example in recalls),
        recall_asked=RECALL_TRIALS,
        margin=min(leads),
        prose=tuple(float(costs(model, example)[0].mean()) for example in teacher.prose()),
        count_first=float(count[first].mean()),
        count_first_top=float(likeliest[first].float().mean()),
        count_worst=float(windows.max()),
        copy=tuple(
            max(
                float(costs(model, teacher.copy(rng, COPY_WORDS, tokens))[0].mean())
                for _ in range(COPY_TRIALS)
            )
            for tokens in COPY_TOKENS
        ),
        unsure=tuple(example for example, lead in zip(fixed, leads, strict=True) if lead < 2 * LEAST_MARGIN),
    )
