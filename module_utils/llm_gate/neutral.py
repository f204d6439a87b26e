"""Built-in texts for servers of any model. Nothing is known of how likely a model finds them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

# One piece each of what servers are asked for, so that a fault of some tokens only has a chance to show.
DOMAINS = (
    "The committee met on Thursday to discuss the new bridge. Most members agreed that the old "
    "one had served the town well for ninety years, but its foundations were sinking, and "
    "repairs now cost more each spring than the toll brought in. A young engineer showed "
    "drawings of a lighter structure made of steel and wood.",
    "def merge(left, right):\n    result = []\n    while left and right:\n        source = "
    "left if left[0] <= right[0] else right\n        result.append(source.pop(0))\n    return "
    "result + left + right\n\n\nclass Queue:\n    def __init__(self, size=16):\n        "
    "self.items = [None] * size\n        self.head = 0\n",
    '{"order": 10482, "customer": {"name": "M. Olsen", "city": "Bergen"}, "lines": [{"sku": '
    '"A-17", "count": 3, "price": 12.5}, {"sku": "C-02", "count": 1, "price": 249.0}], "paid": '
    'true, "note": null}',
    "Let f(x) = x^3 - 3x + 1. Then f'(x) = 3x^2 - 3, which is zero at x = 1 and x = -1. Since "
    "f(-2) = -1 and f(-1) = 3, there is a root between -2 and -1. 12 * 34 = 408; 408 / 17 = "
    "24; sqrt(576) = 24.",
    "委员会星期四开会讨论新桥。大多数成员认为旧桥已经为城镇服务了九十年。但是它的地基正在下沉。每年春天的"
    "维修费用都比过桥费更高。",
    "위원회는 목요일에 새 다리에 대해 논의했다. 대부분의 위원은 오래된 다리가 구십 년 동안 "
    "마을에 도움이 되었다는 데 동의했다.",
    "Der Ausschuss traf sich am Donnerstag, um über die neue Brücke zu sprechen. Die meisten "
    "Mitglieder waren sich einig, dass die alte ihren Dienst getan hatte, doch die Fundamente "
    "sanken.",
    '"Did you lock the gate?" she asked.\n"I thought you had the key," he said.\n"I gave it to '
    'Tom on Monday."\n"Then it is still in his coat, and his coat is in Lisbon."\n',
)

# Beginnings that any language model can go on with, each in plain prose.
CONTINUATIONS = (
    "The lighthouse keeper opened his notebook and wrote down everything that had happened during the storm. "
    "Shortly after midnight",
    "Bread is made from only a few ingredients, and yet no two bakers make it alike. The first thing a baker "
    "must understand is",
    "When the railway reached the valley, the life of the village changed within a single year. Before that",
    "A good map leaves things out. The art of making one lies in deciding what a traveller needs, and so",
)

# Common words of one or two tokens each for the copying task.
WORDS = (
    *("apple", "river", "stone", "garden", "window", "silver", "horse", "paper", "music", "winter", "bottle"),
    *("castle", "forest", "mirror", "button", "candle", "island", "ladder", "market", "needle", "orange"),
    *("pencil", "rabbit", "saddle", "tunnel", "valley", "wagon", "yellow", "anchor", "basket", "camera"),
    *("desert", "engine", "feather", "guitar", "hammer", "jacket", "kettle", "lemon", "mountain", "ocean"),
    *("pepper", "rocket", "shadow", "temple", "umbrella", "violin", "whistle", "bridge", "circle", "dragon"),
    *("flower", "harbor", "insect", "jungle", "knight", "lantern", "magnet", "napkin", "oyster", "pillow"),
    *("ribbon", "sailor", "turtle", "velvet", "walnut", "zebra", "blanket", "copper", "dolphin", "eagle"),
)

_PEOPLE = (
    "baker",
    "teacher",
    "sailor",
    "farmer",
    "doctor",
    "painter",
    "driver",
    "miller",
    "writer",
    "cook",
    "judge",
)
_DEEDS = ("greeted", "followed", "helped", "asked", "thanked", "called", "met")
_PLACES = ("harbour", "market", "station", "church", "orchard", "bridge", "library", "mill", "square")
_TIMES = ("early on Monday", "after the rain", "in the evening", "before noon", "last winter")


def filler(characters: int) -> str:
    """Plain sentences of at least so many characters, each different from all before for the first 38,115."""
    sentences = []
    length = 0
    for sentence in _sentences():
        if length >= characters:
            break
        sentences.append(sentence)
        length += len(sentence) + 1
    return " ".join(sentences)


def _sentences() -> Iterator[str]:
    number = 0
    people = list(product(_PEOPLE, repeat=2))
    while True:
        # The lists have lengths without common factor, so that all combinations come before the first repeat.
        one, other = people[number % len(people)]
        deed, place = _DEEDS[number % len(_DEEDS)], _PLACES[number % len(_PLACES)]
        time = _TIMES[number % len(_TIMES)]
        yield f"The {one} {deed} the {other} near the {place} {time}."
        number += 1
