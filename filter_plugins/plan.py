"""The plan of a node: what it should run, named by what it is made of. No host is touched here."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

from packaging.specifiers import SpecifierSet

SHORT = 12
DECIDING = re.compile(
    r"sglang$|torch$|triton$|transformers$|flashinfer|nvidia-cudnn|nvidia-nccl|(sgl|sglang)-kernel"
)
"""Packages whose version decides about answers: each has a line of its own in the plan."""
MOST_NAMED = 8
BUNDLE = 1 << 30
"""Bytes that are sent in one step: what a transfer that is cut sends again, and what it takes beside the
files while it lasts. Each step costs a few tasks, so many small ones make a slow transfer."""
LEASE = 60
SLOWEST = 10e6
"""Bytes a second that a transfer to a node is trusted to make: a tenth of what a 1 Gbit/s line carries. A
slower one may lose its lease on the way; when another run has taken it, this one ends at its next step."""


def fingerprint(value: Any) -> str:
    """The SHA-256 of data, independent of the order of keys."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def short_id(value: Any) -> str:
    """The beginning of the fingerprint of data, for the name of what is made of it."""
    return fingerprint(value)[:SHORT]


def profile_launch(profile: Mapping[str, Any], stack: Mapping[str, Any]) -> dict[str, Any]:
    """The launch options of a profile for the SGLang of a stack.

    Those of `launch_by_version` win over `launch`, the later entry over the earlier. A stack that names a
    commit has no version, and gets `launch` alone.
    """
    options = dict(profile["launch"])
    version = stack["sglang"].get("version")
    for versions, others in profile.get("launch_by_version", {}).items():
        if version is not None and SpecifierSet(versions).contains(version, prereleases=True):
            options |= others
    return options


def deployment_plan(
    stack: Mapping[str, Any],
    profile: Mapping[str, Any],
    lock: Mapping[str, Any],
    *,
    root: str = "/opt/sglang",
    port: int | str = 30000,
    options: Mapping[str, Any] | None = None,
    environment: Mapping[str, Any] | None = None,
    base: str = "",
    toolkit_path: str | None = None,
    locked: bool = True,
) -> dict[str, Any]:
    """What one node should run.

    The checkpoint's folder is named by its files' hashes, so that a re-uploaded checkpoint is another model.
    `options` and `environment` win over those of the profile. A relative path of the checkpoint starts from
    `base`, a folder of the controller. `toolkit_path` is a CUDA toolkit of the host that stands in for the
    stack's; what is compiled at start finds the toolkit by CUDA_HOME. `locked` says whether the lock is a
    reviewed one of the catalogue. `toolkit` of the plan is the nodes', `builder_toolkit` the builder's.
    """
    compiler = plan_toolkit(stack, lock, f"{root}/toolkits", toolkit_path)
    toolkit = None if builder_only(stack) else compiler
    lock = {**lock, "toolkit": toolkit["wheels"] if toolkit else [], "build": list(lock.get("build", ()))}
    if compiler and not toolkit:
        lock["build"] += compiler["wheels"]
    files = dict(profile["checkpoint"]["files"])
    model = f"{profile['name']}-{short_id(files)}"
    return {
        "root": root,
        "stack": dict(stack),
        "profile": dict(profile),
        "lock": lock,
        "lock_id": lock_id(lock),
        "locked": locked,
        "toolkit": toolkit,
        "builder_toolkit": compiler,
        "download_bytes": sum(wheel["size"] for wheel in lock["wheels"]),
        "model": model,
        "model_path": f"{root}/models/{model}",
        "source": posixpath.join(base, profile["checkpoint"]["path"]),
        "launch": {
            "host": "127.0.0.1",
            "port": int(port),
            "served_model_name": profile["served_name"],
            **profile_launch(profile, stack),
            **(options or {}),
        },
        "environment": {
            **({"CUDA_HOME": toolkit["home"]} if toolkit else {}),
            **profile.get("environment", {}),
            **(environment or {}),
        },
        "url": f"http://127.0.0.1:{port}",
    }


def builder_only(stack: Mapping[str, Any]) -> bool:
    """Whether a stack's CUDA toolkit compiles its kernel on the builder and nothing on the nodes."""
    return "source" in stack.get("kernel", {}) and "cuda" not in stack


def lock_id(lock: Mapping[str, Any]) -> str:
    """The hash of what a lock holds; with another toolkit, what was compiled at start is another as well."""
    return fingerprint([lock["wheels"], lock["toolkit"]] if lock.get("toolkit") else lock["wheels"])


def plan_toolkit(
    stack: Mapping[str, Any], lock: Mapping[str, Any], folder: str, path: str | None = None
) -> dict[str, Any] | None:
    """The CUDA toolkit that a stack compiles with, None where it compiles nothing.

    {version (of nvcc), source (wheels, path or package), home (its CUDA_HOME), wheels (of the lock),
    package}. A toolkit from wheels is laid out in `folder`, under the name VERSION-HASH. `path` is one that
    the host has and that stands in for the stack's.
    """
    asked = stack.get("cuda_toolkit")
    if not asked:
        return None
    toolkit = {"version": asked["version"], "source": "path", "wheels": [], "package": None}
    if path:
        return toolkit | {"home": path}
    if "wheels" in asked:
        wheels = list(lock.get("toolkit", ()))
        parts = sorted([wheel["file"], wheel["sha256"]] for wheel in wheels)
        home = f"{folder}/{asked['version']}-{short_id(parts)}"
        return toolkit | {"source": "wheels", "home": home, "wheels": wheels}
    if "package" in asked:
        toolkit |= {"source": "package", "package": asked["package"]}
    return toolkit | {"home": asked["path"]}


def wheel_hashes(wheels: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """File name to SHA-256 of wheels of a lock, as the modules take them."""
    return {wheel["file"]: wheel["sha256"] for wheel in wheels}


def plan_wheels(plan: Mapping[str, Any], kernel: Mapping[str, str] | None = None) -> dict[str, str]:
    """File name to SHA-256 of every wheel of an environment: the lock's, and the kernel's if there is one."""
    wheels = wheel_hashes(plan["lock"]["wheels"])
    if kernel:
        wheels[kernel["file"]] = kernel["sha256"]
    return wheels


def venv_id(plan: Mapping[str, Any], kernel: Mapping[str, str] | None = None) -> str:
    """The name of an environment: a hash of its lock, the kernel wheel's SHA-256 and the Python ABI."""
    return short_id([plan["lock_id"], kernel["sha256"] if kernel else None, plan["lock"]["abi"]])


def release_id(
    plan: Mapping[str, Any], venv: str, launch: Sequence[str], environment: Mapping[str, Any]
) -> str:
    """The name of a release: stack, profile, and a hash of venv, model, arguments and variables."""
    parts = [venv, plan["model"], list(launch), dict(environment)]
    return f"{plan['stack']['name']}.{plan['profile']['name']}.{short_id(parts)}"


def wheel_bundles(
    plan: Mapping[str, Any], missing: Sequence[str], limit: int = BUNDLE
) -> list[dict[str, Any]]:
    """The missing wheels as `file_bundles`."""
    wheels = [*plan["lock"].get("toolkit", ()), *plan["lock"]["wheels"]]
    return file_bundles(missing, {wheel["file"]: wheel["size"] for wheel in wheels}, "wheels", limit)


def lease_seconds(size: float) -> int:
    """Seconds that a step which moves `size` bytes may take before its lease ends."""
    return LEASE + int(size / SLOWEST)


def file_bundles(
    missing: Sequence[str], sizes: Mapping[str, int], what: str = "files", limit: int = BUNDLE
) -> list[dict[str, Any]]:
    """Group files into bundles of about `limit` bytes, sent one by one: {id, files, bytes, note}.

    Nodes that lack the same files get bundles of the same `id`.
    """
    bundles: list[dict[str, Any]] = []
    for name in sorted(missing, key=lambda file: -sizes.get(file, 0)):
        size = sizes.get(name, 0)
        if not bundles or bundles[-1]["bytes"] + size > limit:
            bundles.append({"files": [], "bytes": 0})
        bundles[-1]["files"].append(name)
        bundles[-1]["bytes"] += size
    for number, bundle in enumerate(bundles, 1):
        bundle["id"] = short_id(bundle["files"])
        bundle["note"] = (
            f"bundle {number} of {len(bundles)}, {len(bundle['files'])} {what}, "
            f"{bundle['bytes'] / (1 << 20):.0f} MiB"
        )
    return bundles


def transfer(
    plan: Mapping[str, Any],
    lacking: Mapping[str, Sequence[str]],
    checkpoint: Sequence[Mapping[str, Any]],
    releases: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """What a deployment has to move.

    `lacking` names the missing files: `house` (wheels that the controller lacks), `node` (wheels) and `model`
    (the checkpoint's); its `toolkit` is whether the CUDA toolkit has to be laid out. `checkpoint` lists the
    files at its source {path, size in bytes}, `releases` those of the node. Returns {download, wheels, model,
    toolkit}, each {files, bytes}: `model` with `sizes` (file to bytes), `toolkit` being the wheels to lay
    out; and `environment`: whether the node has an environment from this lock already. A file whose size is
    not known counts no bytes.
    """
    toolkit = plan["toolkit"]["wheels"] if plan.get("toolkit") else []
    every = [*plan["lock"].get("build", ()), *toolkit, *plan["lock"]["wheels"]]
    wheels = {wheel["file"]: wheel["size"] for wheel in every}
    base = len(plan["source"]) + 1
    weights = {str(file["path"])[base:]: file["size"] for file in checkpoint}

    def amount(names: Sequence[str], sizes: Mapping[str, int]) -> dict[str, int]:
        return {"files": len(names), "bytes": sum(sizes.get(name, 0) for name in names)}

    return {
        "download": amount(lacking["house"], wheels),
        "wheels": amount(lacking["node"], wheels),
        "model": amount(lacking["model"], weights)
        | {"sizes": {name: weights.get(name, 0) for name in lacking["model"]}},
        "toolkit": amount([wheel["file"] for wheel in toolkit if lacking.get("toolkit")], wheels),
        "environment": any(release["lock_id"] == plan["lock_id"] for release in releases),
    }


def human(size: float) -> str:
    """A number of bytes for people, in binary units."""
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.2f} GiB"


def project_name(name: str) -> str:
    """A package's normalised name (https://packaging.python.org/en/latest/specifications/name-normalization)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def by_option(arguments: Sequence[str]) -> dict[str, str]:
    """An argument list as option to its values; a bare flag is `on`."""
    options: dict[str, list[str]] = {}
    last = ""
    for word in arguments:
        if word.startswith("--"):
            last = word
            options[last] = []
        else:
            options.setdefault(last, []).append(word)
    return {option: " ".join(values) or "on" for option, values in options.items()}


def changes(now: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, str]:
    """Key to `old -> new` for what differs; `none` stands for what is not there."""
    return {
        key: f"{now.get(key, 'none')} -> {then.get(key, 'none')}"
        for key in dict.fromkeys([*then, *now])
        if now.get(key) != then.get(key)
    }


def package_lines(now: Mapping[str, str], then: Mapping[str, str]) -> list[str]:
    """The changed packages: those that decide about answers one by one, the others on one line."""
    differing = changes(now, then)
    lines = [f"{name}: {change}" for name, change in differing.items() if DECIDING.match(name)]
    others = [f"{name} {change}" for name, change in differing.items() if not DECIDING.match(name)]
    if not now:
        lines.append(f"other packages: {len(others)}")
    elif others:
        more = f" and {len(others) - MOST_NAMED} more, see --diff" if len(others) > MOST_NAMED else ""
        lines.append(f"other packages: {len(others)} change: {', '.join(others[:MOST_NAMED])}{more}")
    return lines


def kernel_origin(stack: Mapping[str, Any]) -> str:
    """What the builder makes the kernel wheel from; '' where it is a wheel of the lock."""
    kernel = stack.get("kernel", {})
    if "source" in kernel:
        source = kernel["source"]
        return f"{source['repository']} at {source['commit'][:SHORT]} for {', '.join(source['archs'])}"
    return str(kernel.get("stand_in", ""))


def kernel_line(plan: Mapping[str, Any], manifest: Mapping[str, Any]) -> list[str]:
    """What is known of a kernel wheel that the builder makes: its bytes are compared once it is made."""
    source = kernel_origin(plan["stack"])
    if not source:
        return []
    now = (manifest.get("kernel") or {}).get("file", "none")
    return [f"kernel: {now} -> built from {source}; a wheel with other bytes makes another environment"]


def toolkit_text(toolkit: Mapping[str, Any] | None) -> str:
    """A CUDA toolkit for an operator; a release's manifest holds the same keys."""
    if not toolkit:
        return "none"
    package = f", package {toolkit['package']}" if toolkit["package"] else ""
    return f"CUDA {toolkit['version']} in {toolkit['home']}{package}"


def toolkit_lines(plan: Mapping[str, Any]) -> list[str]:
    """The CUDA toolkit that has to be laid out on the node, if one has."""
    laid = plan["transfer"].get("toolkit")
    if not laid or not laid["files"]:
        return []
    size = f"{laid['files']} wheels, {human(laid['bytes'])} packed"
    return [f"to lay out: the CUDA toolkit in {plan['toolkit']['home']} from {size}"]


def plan_lines(
    plan: Mapping[str, Any],
    arguments: Sequence[str],
    facts: Mapping[str, Any],
) -> list[str]:
    """The plan for an operator, a sentence a line.

    `arguments` are the launch arguments that the plan leads to, `facts` those of `release_switch`. `plan` has
    the key `transfer`.
    """
    manifest = facts["manifest"] or {}
    packages = {
        project_name(wheel["name"]): wheel["version"]
        for wheel in plan["lock"]["wheels"]
        if wheel["name"] != "uv"  # it installs, and stays out of the environment
    }
    before = {
        project_name(name): version
        for name, version in manifest.get("parts", {}).get("venv", {}).get("packages", {}).items()
    }
    kernel = (manifest.get("kernel") or {}).get("file", "").partition("-")[0]
    before.pop(project_name(kernel), None)
    launch = changes(by_option(manifest.get("launch", [])), by_option(arguments))
    variables = changes(manifest.get("environment", {}), plan["environment"])
    lines = [
        f"{what}: {manifest.get(what) or 'none'} -> {then}"
        for what, then in (("stack", plan["stack"]["name"]), ("model", plan["model"]))
        if manifest.get(what) != then
    ]
    # Check mode resolves no stack.
    lines += (
        package_lines(before, packages) if packages else ["packages: not known until the stack is resolved"]
    )
    if not lines and manifest.get("lock_id") != plan["lock_id"]:
        lines.append(f"wheels: the same versions with other bytes, lock {plan['lock_id'][:SHORT]}")
    if toolkit_text(manifest.get("toolkit")) != toolkit_text(plan.get("toolkit")):
        toolkits = [toolkit_text(made.get("toolkit")) for made in (manifest, plan)]
        lines.append(f"CUDA toolkit: {' -> '.join(toolkits)}")
    lines += [f"launch option {option}: {change}" for option, change in launch.items()]
    lines += [f"environment variable {name}: {change}" for name, change in variables.items()]
    if not lines:
        return same_lines(plan, facts)
    moved = plan["transfer"]
    return [
        *lines,
        *plan.get("fit", {}).get("lines", []),
        *kernel_line(plan, manifest),
        f"to download: {moved['download']['files']} wheels, {human(moved['download']['bytes'])}",
        f"to copy to the node: {moved['wheels']['files']} wheels, {human(moved['wheels']['bytes'])}; "
        f"{moved['model']['files']} files of the model, {human(moved['model']['bytes'])}",
        *toolkit_lines(plan),
        "restart: sglang.service, then the gate; the node does not serve in between"
        if facts["current"]
        else "start: sglang.service, then the gate",
    ]


def same_lines(plan: Mapping[str, Any], facts: Mapping[str, Any]) -> list[str]:
    """The plan where the node already has what it names."""
    lines = [f"nothing changes: release {facts['current']} is what the plan names", *toolkit_lines(plan)]
    if kernel_origin(plan["stack"]):
        lines[0] += ", unless the kernel's wheel comes out different"
    if not facts["proved"]:
        lines.append("it has not passed its gate: it is put on trial again")
    elif facts["running"] != facts["current"]:
        lines.append(f"start: sglang.service, which runs {facts['running'] or 'nothing'}")
    return lines


class FilterModule:
    """Filters about a node's plan."""

    def filters(self) -> dict[str, Any]:
        return {
            "short_id": short_id,
            "profile_launch": profile_launch,
            "deployment_plan": deployment_plan,
            "plan_wheels": plan_wheels,
            "wheel_hashes": wheel_hashes,
            "venv_id": venv_id,
            "release_id": release_id,
            "wheel_bundles": wheel_bundles,
            "file_bundles": file_bundles,
            "lease_seconds": lease_seconds,
            "transfer": transfer,
            "plan_lines": plan_lines,
        }
