"""Verdicts: what catalog/backends.yml says of a launch, and what is wrong in that file.

An entry holds of a launch when all of its conditions do. A condition on an option or an environment variable
is a value, a list of values of which one must hold, {above: number}, {has: text}, or {not: [values]}; null
and false are a setting that is left out. A condition on a fact is a range of versions, a list of ranges, or
texts. What was not seen neither holds nor fails: such an entry is told, unless it says good.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

WHERE = "catalog/backends.yml"
SETTINGS = ("options", "environment")
VERSIONS = ("sglang", "flashinfer", "kernel", "cudnn")
EXACT = ("==", "!=", ">=", "<=", ">", "<")
KERNELS = ("sgl-kernel", "sglang-kernel")
"""The kernel package's name up to 0.3 and from 0.4: https://github.com/sgl-project/sglang/pull/20440"""
ABSENT = "none"
"""A fact that was looked for and is not there: no version of it holds."""
WORSE = ("good", "unknown", "bad")
EFFECTS = {
    "crash": "it crashes",
    "refused": "the engine refuses it",
    "garbage": "it starts, is healthy, and answers garbage",
    "quiet_loss": "it answers, and quietly worse",
    "lost_calls": "it loses tool calls",
    "out_of_memory": "it runs out of memory",
    "slow": "it is slow",
    "hang": "it hangs",
    "ignored": "nothing reads it",
}
LAST = "999999"

Entry = Mapping[str, Any]
Problems = Iterator[tuple[str, str]]


# --- conditions ----------------------------------------------------------------------------------


def as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def same(wanted: Any, value: str | None) -> bool:
    """Whether a setting, None where it is left out, is the value that a condition names."""
    if wanted is None or wanted is False:
        return value is None
    return value is not None and str(wanted).casefold() == value.casefold()


def holds(condition: Any, value: str | None) -> bool:
    """Whether a setting keeps to a condition."""
    if not isinstance(condition, Mapping):
        return any(same(wanted, value) for wanted in as_list(condition))
    if "has" in condition:
        return value is not None and condition["has"].casefold() in value.casefold()
    if "not" in condition:
        return not any(same(wanted, value) for wanted in condition["not"])
    try:
        return value is not None and float(value) > condition["above"]
    except ValueError:
        return False


def in_ranges(ranges: Any, version: str) -> bool | None:
    """Whether one of the ranges holds a version; None for a version that cannot be compared."""
    if version == ABSENT:
        return False
    try:
        found = Version(version)
    except InvalidVersion:
        return None
    return any(SpecifierSet(versions).contains(found, prereleases=True) for versions in as_list(ranges))


def fact_holds(key: str, condition: Any, facts: Mapping[str, Any]) -> bool | None:
    """Whether a fact keeps to a condition; None where it was not seen."""
    value = facts.get(key)
    if value is None:
        return None
    if key in VERSIONS:
        return in_ranges(condition, str(value))
    return holds(condition, str(value))


def option_texts(launch: Mapping[str, Any], verdicts: Mapping[str, Any]) -> dict[str, str]:
    """The options that are set, by SGLang's main name for them, as texts.

    SGLang's parser takes other names of an option and the beginning of a name; both are found here, so that
    another spelling is judged alike.
    """
    names = {alias: option for option, others in verdicts["aliases"].items() for alias in others}
    names |= {option: option for option in verdicts["aliases"]}
    for entry in verdicts["verdicts"]:
        names |= {option: option for option in entry["when"].get("options", {})}
    texts = {}
    for name, value in launch.items():
        if value is None or value is False:
            continue
        text = " ".join(str(item) for item in as_list(value)) if value is not True else "true"
        begun = {option for full, option in names.items() if full.startswith(str(name))}
        for option in {names[name]} if name in names else begun or {name}:
            texts[option] = text
    return texts


def environment_texts(environment: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in environment.items() if value is not None}


def launch_facts(launch: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts, with those that the launch itself decides: a CPU, and how the engine reads the weights."""
    decided: dict[str, Any] = {}
    if launch.get("device") == "cpu":
        decided = {"gpu": "cpu", "gpu_count": "0", "link": ABSENT}
    if launch.get("quantization"):
        decided["quantization"] = launch["quantization"]
    return {**facts, **decided}


def entry_state(
    entry: Entry, texts: Mapping[str, Mapping[str, str]], facts: Mapping[str, Any]
) -> tuple[bool, list[str]]:
    """Whether an entry may hold of a launch, and the facts that it takes and that were not seen."""
    unseen = []
    for key, condition in entry["when"].items():
        if key in SETTINGS:
            if not all(holds(wanted, texts[key].get(name)) for name, wanted in condition.items()):
                return False, []
        else:
            fits = fact_holds(key, condition, facts)
            if fits is False:
                return False, []
            if fits is None:
                unseen.append(key)
    return True, unseen


# --- a launch ------------------------------------------------------------------------------------


def setting_text(entry: Entry, texts: Mapping[str, Mapping[str, str]], facts: Mapping[str, Any]) -> str:
    """What an entry is about, as the launch has it; its facts where it is about no setting."""
    options = [
        f"{name} {texts['options'][name]}" if name in texts["options"] else f"{name} left out"
        for name in entry["when"].get("options", {})
    ]
    variables = [
        f"{name}={texts['environment'][name]}" if name in texts["environment"] else f"{name} not set"
        for name in entry["when"].get("environment", {})
    ]
    return ", ".join(options + variables) or ", ".join(
        f"{key} {facts.get(key) or 'not seen'}" for key in entry["when"]
    )


def instead_text(instead: Mapping[str, Any]) -> str:
    """The nearest good choice in words."""
    parts = [
        f"{name}: {value}" if value is not None else f"{name} left out"
        for name, value in instead.get("options", {}).items()
    ]
    parts += [
        f"{name}={value}" if value is not None else f"{name} not set"
        for name, value in instead.get("environment", {}).items()
    ]
    parts += [f"{package} {versions}" for package, versions in instead.get("versions", {}).items()]
    return ", ".join([*parts, *([instead["text"]] if "text" in instead else [])])


def good_choice(
    entry: Entry,
    texts: Mapping[str, Mapping[str, str]],
    facts: Mapping[str, Any],
    verdicts: Mapping[str, Any],
) -> str:
    """The first choice of a bad entry that makes no entry hold that calls it bad, in words."""
    bad = [
        other
        for other in verdicts["verdicts"]
        if other["verdict"] == "bad" and (other is entry or not entry_state(other, texts, facts)[0])
    ]
    for choice in entry["instead"]:
        after: dict[str, dict[str, str]] = {}
        for kind in SETTINGS:
            changed = choice.get(kind, {})
            kept = {name: value for name, value in texts[kind].items() if name not in changed}
            after[kind] = kept | environment_texts(changed)
        others = {**facts, **dict.fromkeys(choice.get("versions", {}))}
        if not any(entry_state(other, after, others) == (True, []) for other in bad):
            return f"Take {instead_text(choice)} instead"
    named = " or ".join(instead_text(choice) for choice in entry["instead"])
    return f"Instead: {named}, which is bad as well with what else this launch has"


def addresses(entry: Entry) -> list[str]:
    """Every source of an entry."""
    disagree = entry.get("disagree", {"good": [], "bad": []})
    return [*entry.get("sources", []), *disagree["good"], *disagree["bad"]]


def entry_finding(
    entry: Entry, texts: Mapping[str, Mapping[str, str]], facts: Mapping[str, Any], unseen: Sequence[str]
) -> dict[str, str]:
    """What an entry that may hold says of a launch, without its choices: {level, id, verdict, text}."""
    setting, reason = setting_text(entry, texts, facts), " ".join(entry["reason"].split())
    found = {"id": entry["id"], "verdict": entry["verdict"]}
    sources = " ".join(addresses(entry))
    if entry["verdict"] == "good":
        return found | {"level": "good", "text": f"{setting}: good. {reason} ({entry['id']})"}
    what = EFFECTS[entry["effect"]]
    if unseen:
        text = (
            f"{setting}: not judged, since not seen: {', '.join(unseen)}. If they fit, it is "
            f"{entry['verdict']}: {what} ({entry['id']})"
        )
        return found | {"level": "warn", "text": text}
    if entry["verdict"] == "unknown":
        apart = "the sources disagree: " if "disagree" in entry else ""
        text = f"{setting}: unknown, {apart}it may be that {what}. {reason} ({entry['id']}; {sources})"
        return found | {"level": "warn", "text": text}
    return found | {"level": "refuse", "text": f"{setting}: bad, {what}. {reason} ({entry['id']}; {sources})"}


def override_problems(
    overrides: Any, verdicts: Mapping[str, Any], findings: Mapping[str, Mapping[str, str]]
) -> Iterator[dict[str, str]]:
    """Overrides that override nothing, each a refusal; `findings` by entry."""
    if not isinstance(overrides, Mapping):
        text = f"backend_overrides must be a mapping of entry to reason, not {type(overrides).__name__}"
        yield {"level": "refuse", "id": "backend_overrides", "verdict": "none", "text": text}
        return
    known = {entry["id"]: entry["verdict"] for entry in verdicts["verdicts"]}
    for name, why in overrides.items():
        if name not in known:
            near = difflib.get_close_matches(str(name), list(known), n=1)
            text = f"no such entry in {WHERE}" + (f"; did you mean {near[0]!r}?" if near else "")
        elif name not in findings:
            text = "the entry does not hold of this launch; take the override out"
        elif known[name] == "good":
            text = "the entry says good, so there is nothing to override; take the override out"
        elif not isinstance(why, str) or not why.strip():
            text = f"say who answers for it and why, in words, not {why!r}"
        else:
            continue
        problem = {"level": "refuse", "id": str(name), "verdict": known.get(name, "none")}
        yield problem | {"text": f"backend_overrides: {name}: {text}"}


def judge_launch(
    launch: Mapping[str, Any],
    facts: Mapping[str, Any],
    verdicts: Mapping[str, Any],
    *,
    environment: Mapping[str, Any] | None = None,
    overrides: Mapping[str, str] | None = None,
) -> list[dict[str, str]]:
    """What the catalogue says of a launch: findings {level, id, verdict, text}, the worst first.

    `launch` are the options, underscores for dashes; `verdicts` is catalog/backends.yml. `facts` are
    those of `verdict_facts`; one that is missing or null was not seen. `overrides` is entry to reason. Levels
    are `refuse` (bad, or an override that overrides nothing), `override` (bad or unknown, and answered for),
    `warn` (unknown, or not judged since a fact was not seen) and `good`. What was not seen is never good.
    """
    facts = launch_facts(launch, facts)
    texts = {
        "options": option_texts(launch, verdicts),
        "environment": environment_texts(environment or {}),
    }
    findings = {}
    for entry in verdicts["verdicts"]:
        may_hold, unseen = entry_state(entry, texts, facts)
        if may_hold and not (unseen and entry["verdict"] == "good"):
            findings[entry["id"]] = entry_finding(entry, texts, facts, unseen)
    for entry in verdicts["verdicts"]:
        found = findings.get(entry["id"], {})
        if found.get("level") == "refuse" and entry["id"] not in (overrides or {}):
            choice = good_choice(entry, texts, facts, verdicts)
            found["text"] += f". {choice}, or answer for it with backend_overrides: {{{entry['id']}: WHY}}"
    wrong = list(override_problems({} if overrides is None else overrides, verdicts, findings))
    if isinstance(overrides, Mapping):
        for name in overrides.keys() & findings.keys() - {problem["id"] for problem in wrong}:
            text = f"{findings[name]['text']} Overridden: {overrides[name]}"
            findings[name] |= {"level": "override", "text": text}
    order = ("refuse", "override", "warn", "good")
    return sorted([*wrong, *findings.values()], key=lambda finding: order.index(finding["level"]))


def strict_gate(findings: Sequence[Mapping[str, str]]) -> bool:
    """Whether a launch is not known to be right, so that its gate must be a strict one."""
    return any(finding["level"] in ("refuse", "override", "warn") for finding in findings)


def finding_lines(findings: Sequence[Mapping[str, str]], strict: bool = True) -> list[str]:
    """The findings that refuse nothing, a line each; `strict`: whether to tell of the gate."""
    names = {"override": "OVERRIDDEN", "warn": "warning", "good": "known good"}
    lines = [f"{names[found['level']]}: {found['text']}" for found in findings if found["level"] != "refuse"]
    if strict and strict_gate(findings):
        lines.append("the gate is strict: profile full at least, and a warning does not pass")
    return lines


# --- facts ---------------------------------------------------------------------------------------


def gpu_facts(
    gpus: Sequence[Mapping[str, Any]], table: Mapping[str, Mapping[str, str]]
) -> dict[str, str | None]:
    """{gpu, link} of GPUs {name, compute_capability}; None where that is not known, or they differ."""
    kinds = []
    for gpu in gpus:
        named = next((kind for part, kind in table.items() if part in gpu["name"]), {})
        capability = gpu.get("compute_capability")
        arch = f"sm_{capability.replace('.', '')}" if capability else named.get("gpu")
        kinds.append({"gpu": arch, "link": named.get("link")})
    alike = kinds and all(kind == kinds[0] for kind in kinds)
    return kinds[0] if alike else {"gpu": None, "link": None}


def method_of(quantization: Mapping[str, Any]) -> str:
    """SGLang's name for how a checkpoint is quantised; `quantization` is of the module checkpoint_facts."""
    method, algorithm = quantization.get("method"), str(quantization.get("algorithm") or "").lower()
    if method == "modelopt":
        return {"nvfp4": "modelopt_fp4", "fp8": "modelopt_fp8"}.get(algorithm, "modelopt_mixed")
    return str(method or ABSENT)


def version_facts(stack: Mapping[str, Any], lock: Mapping[str, Any] | None = None) -> dict[str, str | None]:
    """The versions that decide: those of a lock with wheels, else what the stack itself names."""
    found: dict[str, str | None] = dict.fromkeys(VERSIONS)
    if lock and lock["wheels"]:
        locked = {wheel["name"].lower().replace("_", "-"): wheel["version"] for wheel in lock["wheels"]}
        cudnn = [version for name, version in locked.items() if name.startswith("nvidia-cudnn-cu")]
        kernel = stack["kernel"].get("wheel", {}).get("version")
        kernels = [locked[name] for name in KERNELS if name in locked]
        found |= {
            "sglang": locked.get("sglang", ABSENT),
            "flashinfer": locked.get("flashinfer-python", ABSENT),
            "kernel": (kernels or [kernel])[0],
            "cudnn": (cudnn or [ABSENT])[0],
        }
    else:
        found |= {
            "sglang": stack["sglang"].get("version"),
            "flashinfer": stack.get("flashinfer", {}).get("version"),
            "kernel": stack["kernel"].get("wheel", {}).get("version"),
        }
    if "stand_in" in stack["kernel"]:
        found["kernel"] = ABSENT
    return found


def verdict_facts(
    stack: Mapping[str, Any],
    verdicts: Mapping[str, Any],
    *,
    profile: Mapping[str, Any] | None = None,
    lock: Mapping[str, Any] | None = None,
    node: Mapping[str, Any] | None = None,
    checkpoint: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The facts that launches are judged by; None is not seen, `none` is not there.

    gpu (`sm_120`), gpu_count, link, the versions sglang, flashinfer, kernel and cudnn, quantization by
    SGLang's name, model (the architecture), experts (their number), kv_scales (all, some, none) and kv_cache,
    what `auto` makes the KV cache (`fp8`, or `model` for the model's own type). `node` are facts of
    host_facts, `checkpoint` those of checkpoint_facts. Before a node is seen, the profile's hardware stands
    for its GPUs.
    """
    gpus = (node or {}).get("gpus") or []
    hardware = (profile or {}).get("hardware")
    if not gpus and hardware:
        gpus = [{"name": hardware["gpu"]}] * hardware["count"]
    facts: dict[str, Any] = version_facts(stack, lock)
    seen = checkpoint or {}
    quantization = seen.get("quantization") or {}
    architecture = seen.get("architecture") or (profile or {}).get("architecture") or {}
    experts = architecture.get("experts")
    if experts is None and seen and architecture.get("name"):
        experts = 0  # a configuration that was read and names no experts is of a dense model
    fp8 = "fp8" in str(quantization.get("kv_cache")).lower()
    return {
        **facts,
        **gpu_facts(gpus, verdicts["gpus"]),
        "gpu_count": str(len(gpus)) if gpus else None,
        "quantization": method_of(quantization) if seen else None,
        "model": architecture.get("name"),
        "experts": experts,
        "kv_scales": (seen.get("kv_scales") or {}).get("state"),
        "kv_cache": ("fp8" if fp8 else "model") if seen else None,
    }


# --- what is wrong in the file -------------------------------------------------------------------


def boundaries(ranges: Any) -> set[str]:
    """The versions that ranges name."""
    return {part.version for versions in as_list(ranges) for part in SpecifierSet(versions)}


def candidates(*ranges: Any) -> list[str]:
    """Versions of which one lies in every region that the ranges cut: the bounds, and what follows each."""
    bounds = set().union(*map(boundaries, ranges))
    return ["0", *bounds, *(f"{Version(bound).base_version}.0.0.1" for bound in bounds), LAST]


def sample_values(*conditions: Any) -> list[str | None]:
    """Settings of which one keeps to each condition that can be kept: those it names, and others."""
    values: list[str | None] = [None, "another value"]
    for condition in conditions:
        if isinstance(condition, Mapping) and "has" in condition:
            values.append(condition["has"])
        elif isinstance(condition, Mapping) and "above" in condition:
            values += [str(condition["above"]), str(condition["above"] + 1)]
        else:
            named = condition["not"] if isinstance(condition, Mapping) else as_list(condition)
            values += [str(value) for value in named if value is not None and value is not False]
    return values


def compatible(key: str, one: Any, other: Any) -> bool:
    """Whether two conditions on one key can hold at once."""
    if key in VERSIONS:
        return any(
            in_ranges(one, version) and in_ranges(other, version) for version in candidates(one, other)
        )
    return any(holds(one, value) and holds(other, value) for value in sample_values(one, other))


def flat(entry: Entry) -> dict[tuple[str, str], Any]:
    """The conditions of an entry by (`options`, name), (`environment`, name) or (`fact`, name)."""
    conditions: dict[tuple[str, str], Any] = {}
    for key, condition in entry["when"].items():
        if key in SETTINGS:
            conditions |= {(key, name): wanted for name, wanted in condition.items()}
        else:
            conditions["fact", key] = condition
    return conditions


def settings_of(conditions: Mapping[tuple[str, str], Any]) -> set[tuple[str, str]]:
    return {key for key in conditions if key[0] in SETTINGS}


def overlap(one: Mapping[tuple[str, str], Any], other: Mapping[tuple[str, str], Any]) -> bool:
    """Whether two entries can hold of one launch."""
    return all(compatible(key[1], one[key], other[key]) for key in one.keys() & other.keys())


def range_problems(entry: Entry, place: str) -> Problems:
    """Ranges that are none, or that hold no version."""
    ranges = [(f"{place}.when.{key}", entry["when"][key]) for key in VERSIONS if key in entry["when"]]
    ranges += [
        (f"{place}.instead[{number}].versions.{key}", value)
        for number, choice in enumerate(entry.get("instead", []))
        for key, value in choice.get("versions", {}).items()
    ]
    for where, value in ranges:
        for versions in as_list(value):
            try:
                parts = list(SpecifierSet(versions))
            except InvalidSpecifier:
                parts = []
            plain = all(part.operator in EXACT and not part.version.endswith(".*") for part in parts)
            if not parts or not plain:
                yield (
                    where,
                    f"{entry['id']}: {where.rpartition('.')[2]} {versions!r} is no range of versions; "
                    'write one such as ">=0.6.8,<0.6.11"',
                )
            elif not any(in_ranges(versions, version) for version in candidates(versions)):
                yield where, f"{entry['id']}: {where.rpartition('.')[2]} {versions!r} holds no version"


def form_problems(entry: Entry, place: str) -> Problems:
    """Keys that an entry's verdict needs or forbids."""
    name, verdict = entry["id"], entry["verdict"]
    if verdict == "good":
        for key in ("effect", "instead", "disagree"):
            if key in entry:
                yield f"{place}.{key}", f"{name}: a good entry has no {key}; take it out"
        if not any(key in entry["when"] for key in SETTINGS):
            yield f"{place}.when", f"{name}: a good entry names options or environment that are good"
    elif "effect" not in entry:
        yield place, f"{name}: effect is missing: what happens ({', '.join(EFFECTS)})"
    if verdict == "bad" and "instead" not in entry:
        yield place, f"{name}: instead is missing: the nearest good choice"
    if ("sources" in entry) == ("disagree" in entry):
        yield place, f"{name}: name sources, or disagree where they do not say the same"
    if "disagree" in entry and verdict == "bad":
        yield f"{place}.disagree", f"{name}: sources that disagree make the verdict unknown, not {verdict}"


def name_clashes(verdicts: Mapping[str, Any]) -> Problems:
    """Aliases that stand for two options, and entries that name an alias or the id of another."""
    mains: dict[str, str] = {}
    for option, others in verdicts["aliases"].items():
        for alias in others:
            if alias in verdicts["aliases"] or mains.get(alias, option) != option:
                yield f"aliases.{option}", f"aliases: {alias} stands for two options"
            mains[alias] = option
    first: dict[str, int] = {}
    for number, entry in enumerate(verdicts["verdicts"]):
        if entry["id"] in first:
            yield (
                f"verdicts[{number}].id",
                f"{entry['id']}: there is an entry of that id already, number {first[entry['id']] + 1}",
            )
        first.setdefault(entry["id"], number)
        parts = {"when": entry["when"]}
        parts |= {f"instead[{which}]": choice for which, choice in enumerate(entry.get("instead", []))}
        for part, settings in parts.items():
            for option in settings.get("options", {}):
                if option in mains:
                    place = f"verdicts[{number}].{part}.options"
                    yield (
                        f"{place}.{option}",
                        f"{entry['id']}: {option} is SGLang's other name; write {mains[option]}",
                    )


def contradictions(entries: Sequence[Entry]) -> Problems:
    """Entries that differ about launches of which both can hold, and about the same settings.

    A good entry is contradicted as well by one about fewer of its settings. One with more settings than a
    good entry is its exception, and one that is unknown beside another's bad adds a doubt: neither
    contradicts.
    """
    conditions = [flat(entry) for entry in entries]
    for (i, one), (j, other) in itertools.combinations(enumerate(entries), 2):
        if one["verdict"] == other["verdict"]:
            continue
        worse, better = (i, j) if WORSE.index(one["verdict"]) > WORSE.index(other["verdict"]) else (j, i)
        settings, others = settings_of(conditions[worse]), settings_of(conditions[better])
        about_same = settings <= others if entries[better]["verdict"] == "good" else settings == others
        if about_same and overlap(conditions[worse], conditions[better]):
            yield (
                f"verdicts[{j}]",
                f"{other['id']} says {other['verdict']} of launches of which {one['id']} says "
                f"{one['verdict']}; set their versions or settings apart",
            )


def implied(key: str, one: Any, other: Any) -> bool:
    """Whether whatever keeps to the first condition on a key keeps to the second as well."""
    if key in VERSIONS:
        kept = [version for version in candidates(one, other) if in_ranges(one, version)]
        return all(in_ranges(other, version) for version in kept)
    return all(holds(other, value) for value in sample_values(one, other) if holds(one, value))


def instead_problems(entries: Sequence[Entry]) -> Problems:
    """Choices that leave the entry as it is, or that an entry calls bad wherever they are made."""
    bad = [(entry, flat(entry)) for entry in entries if entry["verdict"] == "bad"]
    for number, entry in enumerate(entries):
        for which, choice in enumerate(entry.get("instead", [])):
            place = f"verdicts[{number}].instead[{which}]"
            own = flat(entry)
            after = own | {
                (kind, name): value for kind in SETTINGS for name, value in choice.get(kind, {}).items()
            }
            after |= {("fact", name): value for name, value in choice.get("versions", {}).items()}
            if "text" in choice and after == own:
                continue
            for other, conditions in bad:
                changed = {key for key in conditions if after.get(key, ...) != own.get(key, ...)}
                if (changed or other is entry) and all(
                    key in after and implied(key[1], after[key], conditions[key]) for key in conditions
                ):
                    yield place, f"{entry['id']}: instead {instead_text(choice)} is bad: see {other['id']}"


def verdict_problems(verdicts: Mapping[str, Any], lines: Mapping[str, int]) -> list[str]:
    """What a schema cannot see, in a catalog/backends.yml that keeps to it: `catalog/backends.yml:LINE: ...`.

    `lines` are those of the filter stack_lines.
    """
    found = list(name_clashes(verdicts))
    for number, entry in enumerate(verdicts["verdicts"]):
        place = f"verdicts[{number}]"
        found += [*form_problems(entry, place), *range_problems(entry, place)]
    if not found:
        entries = verdicts["verdicts"]
        found = [*contradictions(entries), *instead_problems(entries)]
    return [
        f"{WHERE}:{line}: {text}" for line, text in sorted({(lines.get(key, 1), text) for key, text in found})
    ]


# --- a table -------------------------------------------------------------------------------------


def condition_text(condition: Any) -> str:
    """A condition for a reader."""
    if isinstance(condition, Mapping):
        if "has" in condition:
            return f"with {condition['has']}"
        if "above" in condition:
            return f"above {condition['above']}"
        named = [value for value in condition["not"] if value is not None]
        return ("anything but " + ", ".join(map(str, named))) if named else "set"
    return " or ".join("left out" if value is None else str(value) for value in as_list(condition))


def verdict_table(verdicts: Mapping[str, Any]) -> str:
    """The verdicts as a Markdown table."""
    lines = [
        "| entry | verdict | of what | what happens, why | instead | evidence, sources |",
        "|---|---|---|---|---|---|",
    ]
    for entry in verdicts["verdicts"]:
        conditions = [f"`{name}` {condition_text(wanted)}" for (_kind, name), wanted in flat(entry).items()]
        reason = " ".join(entry["reason"].split())
        happens = f"{EFFECTS[entry['effect']]}. {reason}" if "effect" in entry else reason
        sources = " ".join(f"<{address}>" for address in addresses(entry))
        apart = "sources disagree: " if "disagree" in entry else ""
        cells = [
            entry["id"],
            entry["verdict"],
            "; ".join(conditions),
            happens,
            " or ".join(instead_text(choice) for choice in entry.get("instead", [])),
            f"{apart}{entry['evidence']}, {sources}",
        ]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


class FilterModule:
    """Filters about verdicts."""

    def filters(self) -> dict[str, Any]:
        return {
            "judge_launch": judge_launch,
            "verdict_facts": verdict_facts,
            "strict_gate": strict_gate,
            "finding_lines": finding_lines,
            "verdict_problems": verdict_problems,
            "verdict_table": verdict_table,
        }
