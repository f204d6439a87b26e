"""Texts for the garbage detector: generators of valid classes and of the garbage that users reported.

Every generator is given its own seeded source of randomness, so that a text is the same on every machine.
Sentences are put together from word lists, and are not meant to be wise.
"""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable, Sequence

from llm_gate.neutral import WORDS

Valid = Callable[[random.Random], str]
# Given the randomness and about how many tokens are wanted.
Garbage = Callable[[random.Random, int], str]

# Who, does what, where, when: a language's lists and what joins and ends its sentences.
_LISTS: dict[str, tuple[tuple[str, ...], str]] = {
    "english": (
        (
            "The keeper/A young engineer/My neighbour/The old captain/The night nurse/Our teacher",
            "repaired the pump/wrote a long letter/counted the boats/forgot the key/measured the wall/sang",
            "beside the harbour/in the narrow kitchen/under the bridge/at the station/near the mill",
            "before sunrise/after the storm/on a cold Tuesday/while it rained/in spring/twice that week",
        ),
        " .",
    ),
    "german": (
        (
            "Die Müllerin/Der alte Kapitän/Mein Nachbar/Eine junge Ärztin/Niemand/Unser Lehrer",
            "reparierte die Pumpe/schrieb einen langen Brief/zählte die Boote/vergaß den Schlüssel/sang",
            "am Hafen/in der schmalen Küche/unter der Brücke/am Bahnhof/bei der Mühle",
            "vor Sonnenaufgang/nach dem Sturm/an einem kalten Dienstag/während es regnete/im Frühling",
        ),
        " .",
    ),
    "french": (
        (
            "Le gardien/Une jeune ingénieure/Mon voisin/Le vieux capitaine/Personne/La boulangère",
            "répara la pompe/écrivit une longue lettre/compta les bateaux/oublia la clé/chanta",
            "près du port/dans la petite cuisine/sous le pont/à la gare/derrière l'église",
            "avant l'aube/après la tempête/un mardi d'hiver/pendant l'été/deux fois ce mois-là",
        ),
        " .",
    ),
    "vietnamese": (
        (
            "Người gác đèn/Một kỹ sư trẻ/Hàng xóm của tôi/Cô giáo/Không ai/Bác sĩ",
            "sửa máy bơm/viết một lá thư dài/đếm những chiếc thuyền/quên chìa khóa/hát",
            "bên bến cảng/trong căn bếp nhỏ/dưới cây cầu/ở nhà ga",
            "trước bình minh/sau cơn bão/vào một ngày lạnh/khi trời mưa",
        ),
        " .",
    ),
    "russian": (
        (
            "Старый капитан/Молодая учительница/Мой сосед/Смотритель маяка/Никто/Врач",
            "починил насос/написал длинное письмо/сосчитал лодки/забыл ключ/спел песню",
            "у причала/на узкой кухне/под мостом/на вокзале/возле мельницы",
            "до рассвета/после бури/в холодный вторник/во время дождя/весной",
        ),
        " .",
    ),
    "greek": (
        (
            "Ο γέρος καπετάνιος/Μια νέα γιατρός/Ο γείτονάς μου/Κανείς/Η δασκάλα",
            "επισκεύασε την αντλία/έγραψε ένα γράμμα/μέτρησε τις βάρκες/ξέχασε το κλειδί",
            "κοντά στο λιμάνι/στη μικρή κουζίνα/κάτω από τη γέφυρα/στον σταθμό",
            "πριν από την αυγή/μετά την καταιγίδα/μια κρύα Τρίτη/την άνοιξη",
        ),
        " .",
    ),
    "hebrew": (
        (
            "הקברניט הזקן/רופאה צעירה/השכן שלי/איש לא/המורה",
            "תיקן את המשאבה/כתב מכתב ארוך/ספר את הסירות/שכח את המפתח",
            "ליד הנמל/במטבח הקטן/מתחת לגשר/בתחנה",
            "לפני הזריחה/אחרי הסערה/ביום שלישי קר/באביב",
        ),
        " .",
    ),
    "arabic": (
        (
            "القبطان العجوز/طبيبة شابة/جاري القديم/المعلم/الحارس",
            "أصلح المضخة/كتب رسالة طويلة/عد القوارب/نسي المفتاح",
            "قرب الميناء/في المطبخ الضيق/تحت الجسر/في المحطة",
            "قبل الفجر/بعد العاصفة/في يوم بارد/في الربيع",
        ),
        " .",
    ),
    "hindi": (
        (
            "बूढ़े कप्तान ने/एक युवा इंजीनियर ने/मेरे पड़ोसी ने/हमारे शिक्षक ने/चौकीदार ने",
            "बंदरगाह के पास/छोटी रसोई में/पुल के नीचे/स्टेशन पर",
            "सूर्योदय से पहले/तूफ़ान के बाद/ठंडे मंगलवार को/वसंत में",
            "पंप ठीक किया/लंबा पत्र लिखा/नावें गिनीं/दरवाज़ा खोला",
        ),
        " ।",
    ),
    "bengali": (
        (
            "বৃদ্ধ নাবিক/এক তরুণ প্রকৌশলী/আমার প্রতিবেশী/আমাদের শিক্ষক/পাহারাদার",
            "বন্দরের কাছে/ছোট রান্নাঘরে/সেতুর নিচে/স্টেশনে",
            "ভোরের আগে/ঝড়ের পরে/ঠান্ডা মঙ্গলবারে/বসন্তকালে",
            "পাম্প মেরামত করল/লম্বা চিঠি লিখল/নৌকা গুনল/দরজা খুলল",
        ),
        " ।",
    ),
    "tamil": (
        (
            "வயதான மாலுமி/இளம் பொறியாளர்/என் அண்டை வீட்டார்/எங்கள் ஆசிரியர்",
            "துறைமுகத்தின் அருகே/சிறிய சமையலறையில்/பாலத்தின் கீழ்/நிலையத்தில்",
            "விடியலுக்கு முன்/புயலுக்குப் பிறகு/குளிர்ந்த நாளில்/வசந்தத்தில்",
            "கடிதம் எழுதினார்/படகுகளை எண்ணினார்/கதவைத் திறந்தார்/பாடினார்",
        ),
        " .",
    ),
    "korean": (
        (
            "늙은 선장은/젊은 기술자는/우리 이웃은/선생님은/야간 간호사는",
            "해 뜨기 전에/폭풍이 지난 뒤에/추운 화요일에/비가 오는 동안/봄에",
            "항구 옆에서/좁은 부엌에서/다리 아래에서/역에서/방앗간 근처에서",
            "펌프를 고쳤다/긴 편지를 썼다/배를 세었다/열쇠를 잊었다/노래를 불렀다",
        ),
        " .",
    ),
    "chinese": (
        (
            "老船长/年轻的工程师/我的邻居/夜班护士/我们的老师/没有人",
            "在日出之前/在暴风雨之后/在寒冷的星期二/下雨的时候/春天里",
            "在港口旁边/在狭窄的厨房里/在桥下/在火车站/在磨坊附近",
            "修好了水泵/写了一封长信/数了数小船/忘记了钥匙/唱起了歌",
        ),
        "。",
    ),
    "japanese": (
        (
            "年老いた船長は/若い技師は/隣の人は/夜勤の看護師は/わたしたちの先生は",
            "日の出の前に/嵐のあとで/寒い火曜日に/雨のあいだ/春になると",
            "港のそばで/狭い台所で/橋の下で/駅で/水車小屋の近くで",
            "ポンプを直した/長い手紙を書いた/ボートを数えた/カギを忘れた/歌をうたった",
        ),
        "。",
    ),
    "thai": (
        (
            "กัปตันเฒ่า/วิศวกรหนุ่ม/เพื่อนบ้านของฉัน/ครูของเรา",
            "ซ่อมเครื่องสูบน้ำ/เขียนจดหมายยาว/นับเรือ/ลืมกุญแจ",
            "ข้างท่าเรือ/ในครัวเล็ก/ใต้สะพาน/ที่สถานี",
            "ก่อนพระอาทิตย์ขึ้น/หลังพายุ/ในวันอังคารที่หนาว/ในฤดูใบไม้ผลิ",
        ),
        "  ",
    ),
}
LANGUAGES = tuple(_LISTS)


def sentence(source: random.Random, language: str) -> str:
    """One sentence of a language."""
    lists, ending = _LISTS[language]
    return ending[:-1].join(source.choice(words.split("/")) for words in lists) + ending[-1]


def prose(source: random.Random, language: str, sentences: int = 30) -> str:
    """Paragraphs of a language."""
    gap = "" if language in ("chinese", "japanese") else " "
    said = [sentence(source, language) for _ in range(sentences)]
    return "\n\n".join(gap.join(said[start : start + 5]) for start in range(0, sentences, 5))


def _language(language: str) -> Valid:
    return lambda source: prose(source, language)


def _lines(line: Callable[[random.Random, int], str], count: int = 60, joint: str = "\n") -> Valid:
    """Many of the same kind, each made from the randomness and its number."""
    return lambda source: joint.join(line(source, number) for number in range(count))


def _python(source: random.Random, number: int) -> str:
    name, factor = source.choice(WORDS), source.randint(2, 99)
    return (
        f'def scale_{name}_{number}(values, factor={factor}):\n    """Scale {name} by {factor}."""\n'
        f"    if not values:\n        raise ValueError('no {name} given')\n"
        f"    return [value * factor + {number} for value in values if value is not None]\n"
    )


def _cuda(source: random.Random, number: int) -> str:
    name, size = source.choice(WORDS), 2 ** source.randint(4, 10)
    return (
        f"// {'-' * 70}\ntemplate <int kSize>\n__global__ void add_{name}_{number}(const float* a, "
        f"float* out, int n) {{\n  __shared__ float tile[{size}];\n"
        "  int index = blockIdx.x * blockDim.x + threadIdx.x;\n"
        f"  if (index < n) {{\n    tile[threadIdx.x] = a[index];\n    __syncthreads();\n"
        f"    out[index] += tile[(threadIdx.x + {number}) % {size}];\n  }}\n}}\n"
    )


def _json(source: random.Random) -> str:
    items = [
        {"id": number, "name": source.choice(WORDS), "ready": source.random() < 0.5, "load": source.random()}
        for number in range(40)
    ]
    return json.dumps({"nodes": items, "error": None}, indent=source.choice((None, 2, 4)))


def _javascript(source: random.Random, number: int) -> str:
    name = source.choice(WORDS)
    return (
        f"export const {name}{number} = async (input = {{}}) => {{\n"
        f"  const {{ {name}, ...rest }} = input;\n  return rest ? [{name}, {number * 7}] : 0;\n}};\n"
    )


def _css(source: random.Random, number: int) -> str:
    colour = f"#{source.randrange(16**6):06x}"
    return f".{source.choice(WORDS)}-{number} {{\n  color: {colour};\n  padding: {number % 9}px 0 0 4px;\n}}"


def _html(source: random.Random, number: int) -> str:
    word = source.choice(WORDS)
    link = f'<a href="/{word}">{word.title()}</a>'
    return f'<tr class="row"><td>{number}</td><td>{link}</td><td><s>9</s></td></tr>'


def _xml(source: random.Random, number: int) -> str:
    load = f'<load unit="%">{source.random():.2f}</load>'
    return f'  <node id="{number}"><name>{source.choice(WORDS)}</name>{load}</node>'


def _yaml(source: random.Random, number: int) -> str:
    name = source.choice(WORDS)
    return (
        f"- name: install {name}\n  when: {name}_{number} is defined\n  loop: [{number}, {number * 7 % 31}]"
    )


def _markdown(source: random.Random) -> str:
    parts = [f"# {source.choice(WORDS).title()}\n"]
    for number in range(8):
        parts.append(f"## {number + 1}. {source.choice(WORDS).title()}\n\n{sentence(source, 'english')}\n")
        parts.append(
            "\n".join(f"- **{word}**: {sentence(source, 'english')}" for word in source.sample(WORDS, 4))
        )
        parts.append(f"\n> {sentence(source, 'english')}\n\n```sh\nmake {source.choice(WORDS)}\n```\n\n---\n")
    return "\n".join(parts)


def _shell(source: random.Random, number: int) -> str:
    word = source.choice(WORDS)
    fetch = f'curl -fsSL "$url/{word}" | tar -xz -C /tmp || exit {number}'
    return f'if [ ! -f "$HOME/{word}.{number}" ]; then\n  {fetch}\nfi'


def _sql(source: random.Random, number: int) -> str:
    one, two = source.sample(WORDS, 2)
    return (
        f"INSERT INTO {one} (id, {two}, made) VALUES ({number}, '{two}', NOW() - INTERVAL '{number} days');"
    )


def _log(source: random.Random, number: int) -> str:
    level = source.choice(("INFO", "WARNING", "DEBUG"))
    moment = f"2026-03-01 12:{number:02}:07,{source.randint(0, 999):03}"
    return f"{moment} {level:<8} worker-{number % 4} {source.choice(WORDS)}: {source.random():.4f} s"


def _diff(source: random.Random, number: int) -> str:
    word = source.choice(WORDS)
    return f"@@ -{number},3 +{number},3 @@\n context {word}\n-{word} = {number}\n+{word} = {number * 3}"


def _latex(source: random.Random, number: int) -> str:
    a, b = source.randint(2, 99), source.randint(2, 99)
    left = rf"\frac{{{a}x^2 + {b}x}}{{{number + 1}}}"
    return rf"\begin{{align}} {left} &= \sum_{{i=1}}^{{{b}}} \alpha_i \cdot {a}^{{i}} \\ \end{{align}}"


def _arithmetic(source: random.Random, _number: int) -> str:
    a, b = source.randint(11, 99), source.randint(11, 99)
    return f"{a} * {b} = {a} * {b - b % 10} + {a} * {b % 10} = {a * (b - b % 10)} + {a * (b % 10)} = {a * b}"


def _reasoning(source: random.Random) -> str:
    steps = []
    for _ in range(14):
        steps.append(
            source.choice(("Okay, let me think.", "Wait,", "Hmm.", "So", "Let me check:", "Actually,"))
        )
        steps.append(_arithmetic(source, 0) + ".")
        steps.append(sentence(source, "english"))
    return "\n\n".join(" ".join(steps[start : start + 3]) for start in range(0, len(steps), 3))


def _table(source: random.Random) -> str:
    rows = [
        f"| {word:<12} | {source.randint(0, 9999):>6} | {source.random():>8.3f} |"
        for word in source.sample(WORDS, 25)
    ]
    return "\n".join(
        [f"| {'name':<12} | {'count':>6} | {'share':>8} |", "|--------------|-------:|---------:|", *rows]
    )


def _box_table(source: random.Random) -> str:
    rows = [f"│ {word:<10} │ {source.randint(0, 99999):>8} │" for word in source.sample(WORDS, 20)]
    return "\n".join(["┌────────────┬──────────┐", *rows, "└────────────┴──────────┘"])


def _separators(source: random.Random) -> str:
    mark = source.choice("=-*~#_")
    return "\n".join(f"{mark * 60}\n{sentence(source, 'english')}\n{mark * 60}" for _ in range(14))


def _emoji(source: random.Random) -> str:
    faces = "😀😅🎉🚀🔥🌊🌲🍎📦🧭🛠✅❌⭐👍🏽👩‍💻🇩🇪🇰🇷"
    whole = faces[:13]
    return "\n".join(
        f"{source.choice(whole)} {sentence(source, 'english')} {source.choice(faces)}{source.choice(whole)}"
        for _ in range(25)
    )


def _poem(source: random.Random) -> str:
    refrain = f"O {source.choice(WORDS)}, o {source.choice(WORDS)},\nthe tide comes in again."
    verses = ["\n".join(sentence(source, "english").rstrip(".") + "," for _ in range(4)) for _ in range(6)]
    return f"\n\n{refrain}\n\n".join(verses)


def _bottles(source: random.Random) -> str:
    """A counting song is as repetitive as a valid text gets."""
    start = source.randint(30, 99)
    return "\n".join(
        f"{n} green bottles hanging on the wall,\n{n} green bottles hanging on the wall,\n"
        f"And if one green bottle should accidentally fall,\n"
        f"There'd be {n - 1} green bottles hanging on the wall.\n"
        for n in range(start, start - 12, -1)
    )


def _dialogue(source: random.Random) -> str:
    names = source.sample(("Anna", "Ben", "Chidi", "Dana", "Emre"), 2)
    return "\n".join(f'{names[number % 2]}: "{sentence(source, "english")}"' for number in range(30))


def _translations(source: random.Random) -> str:
    """Eight languages in turns."""
    return "\n".join(
        f"{language.title()}: {sentence(source, language)}"
        for _ in range(4)
        for language in source.sample(LANGUAGES, 8)
    )


def _glossary(source: random.Random) -> str:
    """Words of one script explained in another."""
    pairs = (
        ("水", "water"),
        ("山", "mountain"),
        ("먹다", "to eat"),
        ("дом", "house"),
        ("كتاب", "book"),
        ("पानी", "water"),
    )
    return "\n".join(
        f"{number}. {one} ({other}): {sentence(source, 'english')}"
        for number, (one, other) in enumerate(source.choices(pairs, k=25), 1)
    )


def _tech_korean(source: random.Random) -> str:
    """Korean with Latin names in it, as people write about software."""
    names = ("GPU", "Python", "SGLang", "CUDA", "Linux", "API", "NVFP4")
    return " ".join(f"{source.choice(names)}를 {sentence(source, 'korean')}" for _ in range(20))


def _tech_chinese(source: random.Random) -> str:
    names = ("GPU", "Python", "SGLang", "CUDA", "Linux", "API", "NVFP4")
    return "".join(f"使用{source.choice(names)}的时候，{sentence(source, 'chinese')}" for _ in range(20))


def _number_list(source: random.Random) -> str:
    most = source.choice((9, 99, 9999))
    return "[" + ", ".join(str(source.randint(0, most)) for _ in range(300)) + "]"


def _one_word(source: random.Random) -> str:
    return source.choice(
        ("OK", "Paris", "323", "Yes.", "-17.5", "はい", "да", "서울", "3.14159", "👍", "No!", "42°C")
    )


def _matrix(source: random.Random) -> str:
    return "\n".join(" ".join(f"{source.gauss(0, 1):8.4f}" for _ in range(8)) for _ in range(24))


def _grid(source: random.Random) -> str:
    """A board or a maze in characters."""
    return "\n".join("".join(source.choices("#.", (1, 2), k=30)) for _ in range(20))


VALID: dict[str, Valid] = {
    **{language: _language(language) for language in LANGUAGES},
    "python": _lines(_python, 14),
    "cuda": _lines(_cuda, 8),
    "json": _json,
    "javascript": _lines(_javascript, 20),
    "css": _lines(_css, 40),
    "html": _lines(_html, 40),
    "xml": _lines(_xml, 40),
    "yaml": _lines(_yaml, 30),
    "markdown": _markdown,
    "shell": _lines(_shell, 20),
    "sql": _lines(_sql, 30),
    "log": _lines(_log, 40),
    "diff": _lines(_diff, 30),
    "latex": _lines(_latex, 25),
    "arithmetic": _lines(_arithmetic, 40),
    "reasoning": _reasoning,
    "table": _table,
    "box-table": _box_table,
    "separators": _separators,
    "times-table": lambda source: "\n".join(
        f"{source.randint(2, 12)} x {n} = {source.randint(2, 12) * n}" for n in range(1, 100)
    ),
    "counting": lambda source: ", ".join(str(source.randint(1, 9) + n) for n in range(300)),
    "number-list": _number_list,
    "matrix": _matrix,
    "csv": _lines(
        lambda source, n: f"{n},{source.choice(WORDS)},{source.random():.3f},{source.randint(0, 1)}"
    ),
    "base64": lambda source: base64.b64encode(source.randbytes(1500)).decode(),
    "base64-lines": lambda source: base64.encodebytes(source.randbytes(1500)).decode(),
    "hex": _lines(lambda source, n: f"{16 * n:08x}  {source.randbytes(16).hex(' ')}", 40),
    "uuids": _lines(lambda source, _n: source.randbytes(16).hex(), 40),
    "dna": lambda source: "\n".join("".join(source.choices("ACGT", k=60)) for _ in range(25)),
    "emoji": _emoji,
    "poem": _poem,
    "bottles": _bottles,
    "dialogue": _dialogue,
    "eight-languages": _translations,
    "glossary": _glossary,
    "korean-with-names": _tech_korean,
    "chinese-with-names": _tech_chinese,
    "one-word": _one_word,
    "grid": _grid,
}
# Those that a probe's prompt for prose may bring.
PROSE = (*LANGUAGES, "reasoning", "poem", "dialogue", "emoji")


def _loop(unit: str, joint: str = "") -> Garbage:
    return lambda _source, tokens: joint.join([unit] * tokens)


def _loop_of(units: Sequence[str], joint: str = "") -> Garbage:
    """A loop of one of the units, whichever the seed brings."""
    return lambda source, tokens: joint.join([source.choice(units)] * tokens)


def _phrase_loop(joint: str) -> Garbage:
    """Some words again and again; about so many words in all."""

    def make(source: random.Random, tokens: int) -> str:
        words = source.sample(WORDS, source.randint(2, 6))
        return joint.join([" ".join(words)] * max(8, tokens // len(words)))

    return make


def _paragraph_loop(source: random.Random, tokens: int) -> str:
    """Longer than any period that a window could show, at least five times."""
    paragraph = prose(source, "english", 6) + "\n"
    return paragraph * max(5, tokens // 80)


def _soup(source: random.Random, tokens: int, joint: str) -> str:
    """Pieces of a multilingual vocabulary."""
    pieces = [
        *WORDS[:20], "ing", "tion", "ление", "ость", "при", "それ", "ため", "的", "是的", "地方", "입니다",
        "그래서", "ال", "كان", "था", "और", "δεν", "είναι", "שלא", "ที่", "การ", "_size", "://", "};", "ção",
    ]  # fmt: skip
    return joint.join(source.choice(pieces) for _ in range(tokens))


def _random_characters(source: random.Random, tokens: int) -> str:
    """Code points of the letters of many scripts, and whatever lies between."""
    return "".join(
        chr(source.randrange(0x21, 0x2FFF)) + " " * (source.random() < 0.2) for _ in range(4 * tokens)
    )


def _random_ascii(source: random.Random, tokens: int) -> str:
    return "".join(
        source.choice(string.printable[:94]) + " " * (source.random() < 0.2) for _ in range(4 * tokens)
    )


def _broken_korean(source: random.Random, tokens: int) -> str:
    """https://github.com/vllm-project/vllm/issues/54150"""
    text = list(prose(source, "korean", 1 + tokens // 10))
    for place in range(3, len(text) - 6, 17):
        text[place] = "\ufffd"
    return "".join(text)


def _control(source: random.Random, tokens: int) -> str:
    """https://github.com/sgl-project/sglang/issues/22242"""
    words = [
        source.choice(WORDS) + source.choice(("", "", "\x00", "\x07", "\x1b", "\u0085"))
        for _ in range(tokens)
    ]
    return " ".join([*words, "\x01\x02"])


def _leaking(unit: str) -> Garbage:
    """A control token here and there in sound text."""

    def make(source: random.Random, tokens: int) -> str:
        return f"{unit} ".join(sentence(source, "english") for _ in range(2 + tokens // 12))

    return make


SPECIAL = (
    *("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|reserved_special_token_7|>", "<|channel|>", "[gMASK]"),
    *(
        "<unk>",
        "<pad>",
        "<｜begin▁of▁sentence｜>",
        "<｜tool▁calls▁end｜>",
        "<end_of_turn>",
        "[/INST]",
        "<0xE2>",
    ),
    *("<think>", "</think>", "</s>", "<extra_id_3>", "[PAD]", "<mask>"),
)

# One endless token, by https://github.com/vllm-project/vllm/issues/13035 and the like; each is caught always.
GROSS: dict[str, Garbage] = {
    **{f"loop {unit!r}": _loop(unit) for unit in ("!", "!!!!", "?", *"./+-#%|(…·")},
    **{f"loop {unit!r} spaced": _loop(unit, " ") for unit in (*"!0aI=的", "the", "1.", "**")},
    **{
        f"loop {unit!r}": _loop(unit)
        for unit in ("a", "the", "при", "的", "입니다", "ال", "😂", "\u200b", "\ufeff")
    },
    # Fewer are a number, such as 1e30.
    "loop '0'": lambda _source, tokens: "0" * max(40, tokens),
    **{f"loop {unit!r} by lines": _loop(unit, "\n") for unit in ("think", "**", "- ", "Yes.", "0", "```")},
    "loop of any printable character": _loop_of([chr(code) for code in range(33, 127)]),
    "loop of any printable character, spaced": _loop_of([chr(code) for code in range(33, 127)], " "),
    "loop of any word": _loop_of(WORDS, " "),
    "loop of any word, glued": _loop_of(WORDS),
    "loop of any token of a vocabulary": lambda source, tokens: _soup(source, 1, "") * tokens,
    "think think think": _loop("think", " "),
    "a a a a a": _loop("a", " "),
    "fullwidth": _loop("ｆｕｌｌ"),
    "asterisks": _loop("** "),
    "asterisks by lines": _loop("**\n\n"),
    "braces": _loop("{}"),
    "phrase": _phrase_loop(", "),
    "phrase by lines": _phrase_loop(".\n"),
    "sentence": lambda source, tokens: (sentence(source, "english") + " ") * max(6, tokens // 12),
    "paragraph": _paragraph_loop,
    "U+FFFD": _loop("\ufffd"),
    "U+FFFD in Korean": _broken_korean,
    "control characters": _control,
    "private use": lambda source, tokens: "".join(map(chr, source.choices(range(0xE000, 0xF8FF), k=tokens))),
    **{f"leaking {unit}": _leaking(unit) for unit in SPECIAL},
    **{f"loop {unit}": _loop(unit) for unit in SPECIAL},
    "glued soup": lambda source, tokens: _soup(source, max(100, tokens), ""),
    "spaced soup": lambda source, tokens: _soup(source, max(100, tokens), " "),
    "random characters": lambda source, tokens: _random_characters(source, max(128, tokens)),
}
# Nothing to read, which only the count of tokens tells from an empty answer.
BLANK: dict[str, Garbage] = {
    "nothing": lambda _source, _tokens: "",
    **{f"loop {unit!r}": _loop(unit) for unit in ("\n", " ", "\t", "\r\n", "\u00a0", "\u3000", "\n\n \n")},
}


def replaced_words(source: random.Random, tokens: int, share: float) -> str:
    """English prose with a share of its words drawn from elsewhere."""
    words = prose(source, "english", max(2, tokens // 10)).split(" ")
    return " ".join(source.choice(WORDS) if source.random() < share else word for word in words)


def foreign_words(source: random.Random, tokens: int, share: float) -> str:
    """English prose with a share of its words in another script."""
    words = prose(source, "english", max(2, tokens // 10)).split(" ")
    return " ".join(
        source.choice(("地方", "それ", "ление", "입니다")) if source.random() < share else word
        for word in words
    )


# What surface rules see seldom or never; these faults are for exact answers and for logprobs.
SUBTLE: dict[str, Garbage] = {
    "two words at random": lambda source, tokens: " ".join(source.choices(("no", "yes"), k=tokens)),
    "random English words": lambda source, tokens: " ".join(source.choices(WORDS, k=tokens)),
    "10 % of words replaced": lambda source, tokens: replaced_words(source, tokens, 0.1),
    "50 % of words replaced": lambda source, tokens: replaced_words(source, tokens, 0.5),
    "5 % of words in another script": lambda source, tokens: foreign_words(source, tokens, 0.05),
    "30 % of words in another script": lambda source, tokens: foreign_words(source, tokens, 0.3),
    "random ASCII": _random_ascii,
    "shuffled letters": lambda source, tokens: " ".join(
        "".join(source.sample(word, len(word)))
        for word in prose(source, "english", max(2, tokens // 10)).split()
    ),
    "numbered loop": lambda _source, tokens: "\n".join(
        f"{n}. Check the answer again." for n in range(1, 2 + tokens // 7)
    ),
    "asterisks between words": lambda source, tokens: " ** ".join(
        source.choices(WORDS, k=max(2, tokens // 2))
    ),
    "spelt out": lambda source, tokens: " ".join("".join(prose(source, "english", 1 + tokens // 40).split())),
}


def mixed(valid: str, garbage: str, share: float) -> str:
    """A valid beginning that is so large a share of the whole, then garbage."""
    return valid[: int(len(garbage) * share / (1 - share))] + garbage
