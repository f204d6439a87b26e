"""The gate section that is used when no model profile is given: the values of a typical reasoning model."""

from __future__ import annotations

RESULT = " End with a line that holds this result alone, in digits without separators."
GATE: dict[str, object] = {
    "deadline_s": 300,
    "request_timeout_s": 60,
    "thinking": {
        "on": {"chat_template_kwargs": {"enable_thinking": True}},
        "off": {"chat_template_kwargs": {"enable_thinking": False}},
    },
    "smoke": {
        "answer": {"prompt": "Reply with exactly OK", "expect": "OK", "max_tokens": 16},
        "arithmetic": {"prompt": "What is 17*19?", "expect": "323", "max_tokens": 64},
        "thinking": {"prompt": "What is 17*19?", "expect": "323", "max_tokens": 512},
        "throughput": {
            "prompt": "Write a story of about 300 words.",
            "max_tokens": 512,
            "min_tokens": 256,
            "min_tokens_per_second": None,
        },
    },
    # Any language model of some size goes on counting; knowing nothing by heart is assumed of none.
    "counting": {"to": 200},
    "facts": [
        {"prompt": "What is the capital of France? Answer in one word.", "expect": "Paris"},
        {"prompt": "What is the capital of Japan? Answer in one word.", "expect": "Tokyo"},
        {"prompt": "What is 17*19? Answer with the number only.", "expect": "323"},
        {"prompt": "What is 12*12? Answer with the number only.", "expect": "144"},
        {"prompt": "What is 250+250? Answer with the number only.", "expect": "500"},
        {
            "prompt": "Which chemical element has the symbol Fe? Answer in one lowercase word.",
            "expect": "iron",
        },
        {"prompt": "Which planet is closest to the sun? Answer in one word.", "expect": "Mercury"},
        {"prompt": "How many days has a week? Answer with the number only.", "expect": "7"},
    ],
    # Long answers with one right result each; a test computes the results.
    "soak": {
        "tasks": [
            {
                "prompt": "Add the whole numbers from 1 to 150 one at a time and write a line with the "
                f"running total for each.{RESULT}",
                "expect": "11325",
            },
            {
                "prompt": "List all prime numbers below 400 in order, each on a line with its place in the "
                f"list, and tell how many there are.{RESULT}",
                "expect": "78",
            },
            {
                "prompt": "Begin with 27. Halve an even number; multiply an odd one by 3 and add 1. Write a "
                f"numbered line for each step until you reach 1, and tell how many steps it took.{RESULT}",
                "expect": "111",
            },
            {
                "prompt": "Write the first 60 Fibonacci numbers, which begin with 1 and 1, a numbered line "
                f"each, and tell the last.{RESULT}",
                "expect": "1548008755920",
            },
            {
                "prompt": "Write the squares of 1 to 60, each on a line with the sum of all so far, and tell "
                f"the last sum.{RESULT}",
                "expect": "73810",
            },
            {
                "prompt": "Multiply 1 by 3 forty times, a numbered line for each product, and tell the "
                f"last.{RESULT}",
                "expect": "12157665459056928801",
            },
        ],
    },
}

# What the run profiles full and soak ask for, where a model profile says nothing of its own.
FULL: dict[str, object] = {
    # Short prompts one by one, a length that is no multiple of anything, and one more than tiles:
    # https://github.com/flashinfer-ai/flashinfer/pull/3192 (2001), .../sglang/pull/29633 (1 mod 64).
    "lengths": [
        *(1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 100, 128, 129, 257, 500, 512, 1024),
        *(1536, 2001, 2048, 2049, 3072, 4096, 6000, 8000),
    ],
    "concurrency": [1, 2, 3, 4, 5, 8, 9, 16, 17, 33, 65],
    "continuation_tokens": 512,
    "throughput": {"warmups": 2, "runs": 5, "tokens": 256, "ramp": [1, 2, 4, 8, 16], "ramp_tokens": 128},
}
