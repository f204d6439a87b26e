"""What a kernel wheel holds, read without a GPU: its machine code, and what torch and CUDA it was built for.

The machine code (SASS) decides. An architecture's name proves nothing: a build for plain 12.0 lists sm_120,
compiles, and holds no FP4 at all; one for the family (120f) lists sm_120 as well and is good.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from .durable import read_json, write_json
from .elf import ElfError, SharedObject, read_shared_object
from .hashed_files import BLOCK, sha256_of
from .progress import Progress, mib
from .said import last_lines

SCHEMA = 1  # of the sidecar: another one is looked at anew
SPARE = 1 << 30  # bytes left free on the scratch disk
LISTING_S = 300.0  # seconds for cuobjdump to list or extract; 850 MB took 4 s on two busy cores
FAMILY = "sm_12"  # the architectures of SM120 and SM121
YES, NO, NOT_SEEN = "yes", "no", "not seen"

# The multiply of block-scaled FP4 on SM120: OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X to nvdisasm 13.2.
FP4_INSTRUCTION = re.compile(rb"\bOMMA\.SF\.\w+\.\w+\.E2M1\.E2M1\.[\w.]+")
# What CUTLASS compiles in the place of an instruction that the target has not (CUTE_INVALID_CONTROL_PATH).
MARKER = b"Arch conditional MMA instruction used without targeting appropriate compute capability"
FP4_NAME = re.compile(rb"fp4|e2m1", re.IGNORECASE)
TORCH_NAME = re.compile(r"_Z(?:T[VTIS])?NK?(?:2at|3c10|5torch|6caffe2)")
LENGTH = re.compile(r"L[a-z]n?\d+E|(?P<length>\d+)")  # Li128E is a number among template arguments
TORCH_LIBRARIES = re.compile(r"lib(?:torch|c10)\w*\.so")
RUNTIME = re.compile(r"libcudart\.so\.(\d+)")
SHARED = re.compile(r"\.so(?:\.[\d.]+)?$")
LISTED = re.compile(r"^ELF file\s+\d+: \S*\.(sm_\w+)\.cubin$", re.MULTILINE)
# Where the two programs are in a toolkit, in an environment with their packages, and in one with triton.
TOOL_PLACES = (
    "",
    "bin",
    "nvidia/cu*/bin",
    "lib/python3*/site-packages/nvidia/cu*/bin",
    "lib/python3*/site-packages/triton/backends/nvidia/bin",
)
TOOLS = ("cuobjdump", "nvdisasm")
INSTALL = (
    "install nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm from PyPI, or name the folder of a toolkit or an "
    "environment that has both (triton's wheel brings them)"
)


class WheelError(Exception):
    """A file is no kernel wheel, or cannot be looked into; the message is one line and says what to do."""


class ToolError(Exception):
    """A tool is missing, failed or took too long: what it would have said was not seen."""


@dataclass
class Cubins:
    """What was seen in the cubins of SM120's family, over the shared objects of a wheel."""

    of: int = 0
    looked: int = 0
    instructions: Counter[str] = field(default_factory=Counter)
    names: set[str] = field(default_factory=set)
    marked: Counter[str] = field(default_factory=Counter)
    reasons: list[str] = field(default_factory=list)
    known: dict[str, Counter[str]] = field(default_factory=dict)


# --- tools ---------------------------------------------------------------------------------------


def find_tools(folders: Sequence[Path]) -> dict[str, Path]:
    """The folder's pair of cuobjdump and nvdisasm, the first of `folders` that has both. Raises ToolError.

    The two are taken from one folder, since they belong to one version.
    """
    for folder in folders:
        for place in TOOL_PLACES:
            for found in sorted(folder.glob(place)) if place else [folder]:
                pair = {name: found / name for name in TOOLS}
                if all(path.is_file() and os.access(path, os.X_OK) for path in pair.values()):
                    return pair
    looked = ", ".join(map(str, folders)) or "no folder"
    raise ToolError(f"no cuobjdump with an nvdisasm beside it in {looked}: {INSTALL}")


def last_words(text: str) -> str:
    """What a tool said last, on one line, even if that is nothing."""
    return last_lines(text) or "nothing"


def run(argv: Sequence[str | Path], seconds: float, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a tool for so many seconds at most. Raises ToolError when it cannot start or takes longer."""
    name = Path(argv[0]).name
    try:
        return subprocess.run(
            [str(word) for word in argv],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=max(seconds, 0.001),
            **options,
        )
    except subprocess.TimeoutExpired as error:
        raise ToolError(f"{name} was not done within {seconds:.0f} s") from error
    except OSError as error:
        raise ToolError(f"{argv[0]} cannot be started ({error.strerror}): {INSTALL}") from error


def version_of(tool: Path) -> str:
    """The version that a CUDA tool prints. Raises ToolError."""
    done = run([tool, "--version"], LISTING_S)
    found = re.search(r"\bV(\d+\.\d+\.\d+)", done.stdout)
    if not found:
        raise ToolError(
            f"{tool} does not say its version but {last_words(done.stdout + done.stderr)}: {INSTALL}"
        )
    return found[1]


def listed_archs(cuobjdump: Path, shared: Path, seconds: float) -> dict[str, int]:
    """Architecture to the number of its cubins in a shared object. Raises ToolError."""
    done = run([cuobjdump, "--list-elf", shared], seconds)
    said = f"{done.stdout}\n{done.stderr}"
    if "does not contain device code" in said:  # also with exit status 255
        return {}
    archs = LISTED.findall(done.stdout)
    if done.returncode != 0 or not archs:
        raise ToolError(f"cuobjdump --list-elf ended with {done.returncode} and says: {last_words(said)}")
    return dict(sorted(Counter(archs).items()))


def extracted(cuobjdump: Path, shared: Path, folder: Path, seconds: float) -> list[Path]:
    """Extract the cubins of SM120's family, uncompressed, into the folder. Raises ToolError."""
    done = run([cuobjdump, "--extract-elf", f".{FAMILY}", shared], seconds, cwd=folder)
    cubins = sorted(folder.glob(f"*.{FAMILY}*.cubin"))
    if done.returncode != 0 or not cubins:
        said = last_words(f"{done.stdout}\n{done.stderr}")
        raise ToolError(f"cuobjdump --extract-elf ended with {done.returncode} and says: {said}")
    return cubins


def fp4_instructions(nvdisasm: Path, cubin: Path, seconds: float) -> Counter[str]:
    """The FP4 tensor-core instructions in a cubin, each form with its count. Raises ToolError.

    The text is read as it comes: that of one large cubin is over a gigabyte.
    """
    found: Counter[str] = Counter()
    late = threading.Event()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen([nvdisasm, "-c", cubin], stdout=subprocess.PIPE, stderr=errors)

        def stop() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(max(seconds, 0.001), stop)
        timer.start()
        try:
            rest = b""
            while block := process.stdout.read(BLOCK) if process.stdout else b"":
                lines, _newline, rest = (rest + block).rpartition(b"\n")
                found.update(match.decode() for match in FP4_INSTRUCTION.findall(lines))
            found.update(match.decode() for match in FP4_INSTRUCTION.findall(rest))
            status = process.wait()
        finally:
            timer.cancel()
            process.kill()
            if process.stdout:
                process.stdout.close()
            process.wait()
        errors.seek(0)
        said = errors.read().decode("utf-8", "replace")
    if late.is_set():
        raise ToolError(f"nvdisasm was not done with {cubin.name} within {seconds:.0f} s")
    if status != 0:
        raise ToolError(f"nvdisasm ended with {status} at {cubin.name} and says: {last_words(said)}")
    return found


# --- the wheel -----------------------------------------------------------------------------------


def opened(wheel: Path) -> zipfile.ZipFile:
    """The wheel's archive. Raises WheelError."""
    try:
        return zipfile.ZipFile(wheel)
    except FileNotFoundError as error:
        raise WheelError(f"{wheel} is not there: build it, or fetch it into the wheelhouse") from error
    except (zipfile.BadZipFile, OSError) as error:
        raise WheelError(
            f"{wheel} is no whole zip file ({error}): remove it and build or fetch it anew"
        ) from error


def member_text(archive: zipfile.ZipFile, name: str) -> Message:
    """The headers of METADATA or WHEEL. Raises WheelError when the wheel has none, or more than one."""
    found = [path for path in archive.namelist() if re.fullmatch(rf"[^/]+\.dist-info/{name}", path)]
    if len(found) != 1:
        raise WheelError(
            f"{archive.filename} is no wheel: it has {len(found)} files *.dist-info/{name}, not 1"
        )
    return HeaderParser().parsestr(archive.read(found[0]).decode("utf-8", "replace"))


def required_torch(metadata: Message) -> str | None:
    """The versions of torch that the wheel asks for (`==2.14.1`), None where it names none."""
    for line in metadata.get_all("Requires-Dist", []):
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.name.lower() == "torch" and requirement.marker is None:
            return str(requirement.specifier) or None
    return None


def described(archive: zipfile.ZipFile) -> dict[str, Any]:
    """Name, version and tags, as the wheel's own metadata says. Raises WheelError."""
    metadata, wheel = member_text(archive, "METADATA"), member_text(archive, "WHEEL")
    if not metadata["Name"] or not metadata["Version"]:
        raise WheelError(f"{archive.filename} is no wheel: its METADATA has no Name and Version")
    return {
        "name": re.sub(r"[-_.]+", "-", metadata["Name"]).lower(),
        "version": metadata["Version"],
        "tags": wheel.get_all("Tag", []),
        "requires_python": metadata["Requires-Python"],
        "requires_torch": required_torch(metadata),
        "generator": wheel["Generator"],
    }


def shared_members(archive: zipfile.ZipFile) -> list[list[zipfile.ZipInfo]]:
    """The wheel's shared objects; those with the same bytes (libx.so and libx.so.0) are one group."""
    groups: dict[tuple[int, int], list[zipfile.ZipInfo]] = {}
    for info in archive.infolist():
        if SHARED.search(info.filename) and not info.is_dir():
            groups.setdefault((info.CRC, info.file_size), []).append(info)
    return list(groups.values())


def unpacked(archive: zipfile.ZipFile, info: zipfile.ZipInfo, folder: Path) -> Path:
    """Unpack one member under a name of ours. Raises WheelError for a full disk and for a torn member."""
    free = shutil.disk_usage(folder).free
    if free < 2 * info.file_size + SPARE:  # the object, its cubins, and some to spare
        raise WheelError(
            f"{folder} has {mib(free)} free; to look into {info.filename} takes {mib(2 * info.file_size)}, "
            f"with {mib(SPARE)} to spare: make room, or name another scratch folder"
        )
    target = folder / "object.so"
    try:
        with archive.open(info) as source, target.open("wb") as out:
            shutil.copyfileobj(source, out, BLOCK)
    except (zipfile.BadZipFile, EOFError, OSError) as error:
        raise WheelError(
            f"{archive.filename} is torn at {info.filename} ({error}): remove it and build or fetch it anew"
        ) from error
    return target


def identifiers(symbol: str) -> list[str]:
    """The names in a mangled name: `_Z16scaled_fp4_quantRN2at6TensorE` has three; else the name itself."""
    if not symbol.startswith("_Z"):
        return [symbol]
    found, place = [], 0
    while match := LENGTH.search(symbol, place):
        place = match.end() + int(match["length"] or 0)
        found.append(symbol[match.end() : place])
    return found


def fp4_symbols(names: Iterable[str]) -> list[str]:
    """The functions with FP4 in their name among dynamic symbols, unmangled and sorted."""
    candidates = (part for name in names if "fp4" in name.lower() for part in identifiers(name))
    return sorted({part for part in candidates if "fp4" in part.lower()})


def host_facts(shared: SharedObject) -> dict[str, Any]:
    """What a shared object says to the loader."""
    runtimes = sorted(match[1] for name in shared.needs if (match := RUNTIME.fullmatch(name)))
    torch = sorted(name for name in shared.undefined if TORCH_NAME.match(name))
    text = [
        name for name in torch if "__cxx11" in name or "RKSs" in name
    ]  # std::string of the new and old ABI
    return {
        "needs": shared.needs,
        "cuda": runtimes,
        "fp4_symbols": fp4_symbols(shared.defined),
        "torch": any(TORCH_LIBRARIES.fullmatch(name) for name in shared.needs),
        "torch_symbols": torch,
        "cxx11_abi": any("__cxx11" in name for name in text) if text else None,
    }


# --- the proof -----------------------------------------------------------------------------------


class Look:
    """One look into a wheel: its tools or why there are none, its deadline in seconds, its progress."""

    def __init__(
        self, tools: dict[str, Path], lacking: str | None, seconds: float, count: bool, progress: Progress
    ):
        self._tools, self._lacking, self._count, self._progress = tools, lacking, count, progress
        self._seconds, self._end = seconds, time.monotonic() + seconds
        self.cubins = Cubins()

    def left(self) -> float:
        """Seconds until the deadline. Raises ToolError when there are none."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise ToolError(f"the deadline of {self._seconds:g} s passed; give more with deadline")
        return left

    def code(self, shared: Path, title: str) -> dict[str, Any]:
        """Architectures of one shared object, and what the cubins of SM120's family hold."""
        code: dict[str, Any] = {"archs": None, "fp4_instructions": {}, "looked": 0, "of": 0, "reason": None}
        try:
            if self._lacking:
                raise ToolError(self._lacking)
            archs = listed_archs(self._tools["cuobjdump"], shared, min(self.left(), LISTING_S))
            code["archs"] = archs
            code["of"] = sum(count for arch, count in archs.items() if arch.startswith(FAMILY))
            self.cubins.of += code["of"]
            if code["of"]:
                self.disassemble(shared, title, code)
        except ToolError as error:
            code["reason"] = str(error)
            self.cubins.reasons.append(f"{title}: {error}")
        return code

    def disassemble(self, shared: Path, title: str, code: dict[str, Any]) -> None:
        """Look into the cubins of SM120's family, those first that name FP4. Raises ToolError."""
        with tempfile.TemporaryDirectory(dir=shared.parent) as name:
            cubins = extracted(self._tools["cuobjdump"], shared, Path(name), min(self.left(), LISTING_S))
            order = []
            for cubin in cubins:
                content = cubin.read_bytes()
                self.cubins.marked[arch_of(cubin)] += MARKER in content
                order.append(
                    (not FP4_NAME.search(content), len(content), hashlib.sha256(content).hexdigest(), cubin)
                )
            for number, (_names, _size, digest, cubin) in enumerate(sorted(order), start=1):
                if self.cubins.instructions and not self._count:
                    return
                arch = arch_of(cubin)
                self._progress.say(number - 1, len(order), f"{title}: cubin {number} of {len(order)}, {arch}")
                found = self.cubins.known.get(digest)
                if found is None:  # the two common_ops of a wheel share cubins
                    found = fp4_instructions(self._tools["nvdisasm"], cubin, self.left())
                    self.cubins.known[digest] = found
                if found:
                    code["fp4_instructions"][arch] = code["fp4_instructions"].get(arch, 0) + found.total()
                    self.cubins.instructions[arch] += found.total()
                    self.cubins.names |= set(found)
                code["looked"] += 1
                self.cubins.looked += 1


def arch_of(cubin: Path) -> str:
    """The architecture in a cubin's file name, `object.12.sm_120a.cubin`."""
    return cubin.name.split(".")[-2]


def tensor_code(cubins: Cubins) -> dict[str, Any]:
    """Whether there are FP4 tensor-core instructions: yes and no only where somebody looked."""
    whole = cubins.looked >= cubins.of and not cubins.reasons
    answer = YES if cubins.instructions else NO if whole else NOT_SEEN
    return {
        "instructions_seen": answer,
        "instructions": dict(sorted(cubins.instructions.items())),
        "instruction_names": sorted(cubins.names),
        "whole": whole,
        "looked": cubins.looked,
        "of": cubins.of,
        "reason": None
        if answer != NOT_SEEN
        else cubins.reasons[0]
        if cubins.reasons
        else "it was not looked for",
    }


def marker_seen(objects: Sequence[dict[str, Any]], cubins: Cubins) -> str:
    """Whether a build for plain 12.0 left its mark; a no needs every cubin of the family."""
    if cubins.marked.total():
        return YES
    return NOT_SEEN if any(item["reason"] for item in objects) else NO


def looked_into(wheel: Path, look: Look, scratch: Path | None) -> dict[str, Any]:
    """Everything about a wheel but its SHA-256. Raises WheelError."""
    with opened(wheel) as archive, tempfile.TemporaryDirectory(dir=scratch) as name:
        about = described(archive)
        groups = shared_members(archive)
        if not groups:
            raise WheelError(
                f"{wheel} holds no shared object (*.so): it is no kernel wheel, or its build made none"
            )
        objects: list[dict[str, Any]] = []
        for group in groups:
            path = unpacked(archive, group[0], Path(name))
            title = group[0].filename
            try:
                host = host_facts(read_shared_object(path))
            except ElfError as error:
                raise WheelError(
                    f"{wheel}: its {title} cannot be read: {error}; build or fetch it anew"
                ) from error
            objects.append({"files": [info.filename for info in group], **host, **look.code(path, title)})
            path.unlink()
    return {**about, **summary(objects, look.cubins), "objects": objects}


def summary(objects: Sequence[dict[str, Any]], cubins: Cubins) -> dict[str, Any]:
    """The facts over all shared objects of a wheel."""
    abis = {item["cxx11_abi"] for item in objects} - {None}
    return {
        "archs": sorted({arch for item in objects for arch in item["archs"] or {}}),
        "archs_seen": YES if all(item["archs"] is not None for item in objects) else NOT_SEEN,
        "cuda": sorted({major for item in objects for major in item["cuda"]}),
        "torch_linked": any(item["torch"] for item in objects),
        "torch_symbols": sorted({name for item in objects for name in item["torch_symbols"]}),
        "cxx11_abi": abis.pop() if len(abis) == 1 else None,
        "fp4": {
            "symbols": sorted({name for item in objects for name in item["fp4_symbols"]}),
            **tensor_code(cubins),
        },
        "marker": {"seen": marker_seen(objects, cubins), "cubins": dict(sorted((+cubins.marked).items()))},
    }


def sidecar_of(wheel: Path) -> Path:
    """Where a wheel's facts are kept."""
    return wheel.with_name(f"{wheel.name}.facts.json")


def enough(facts: Any, sha256: str, count: bool) -> bool:
    """Whether facts that were kept are of this wheel and leave nothing open that is asked for."""
    if not isinstance(facts, dict) or facts.get("schema") != SCHEMA or facts.get("sha256") != sha256:
        return False
    fp4 = facts["fp4"]
    answered = NOT_SEEN not in (fp4["instructions_seen"], facts["marker"]["seen"], facts["archs_seen"])
    return answered and (fp4["whole"] or not count)


def kernel_facts(
    wheel: Path,
    folders: Sequence[Path],
    *,
    seconds: float,
    count: bool = False,
    keep: bool = True,
    scratch: Path | None = None,
    progress: Progress | None = None,
) -> tuple[dict[str, Any], bool]:
    """The facts of a wheel, and whether they were kept from an earlier look at the same bytes.

    `folders` are looked through for cuobjdump and nvdisasm; without them, and past the deadline of `seconds`,
    what they would have said is `not seen`. `count` looks into every cubin even after FP4 was found.
    Facts are kept beside the wheel when `keep` is true. Raises WheelError.
    """
    if not wheel.is_file():
        raise WheelError(f"{wheel} is not there: build it, or fetch it into the wheelhouse")
    sha256 = sha256_of(wheel)
    known = read_json(sidecar_of(wheel))
    if enough(known, sha256, count):
        return known, True
    tools: dict[str, Path] = {}
    versions: dict[str, str] = {}
    lacking = None
    try:
        tools = find_tools(folders)
        versions = {name: version_of(path) for name, path in tools.items()}
    except ToolError as error:
        lacking = str(error)
    look = Look(tools, lacking, seconds, count, progress or Progress(None))
    facts = {"schema": SCHEMA, "sha256": sha256, "file": wheel.name, "tools": versions}
    facts |= looked_into(wheel, look, scratch)
    if keep:
        write_json(sidecar_of(wheel), facts)
    return facts, False


def missing_torch(facts: dict[str, Any], libraries: Path) -> list[str]:
    """The symbols of torch that a wheel wants and the torch in this folder (torch/lib) does not have.

    The loader refuses a wheel for which this is not empty. Raises WheelError when the folder holds no torch.
    """
    files = sorted(path for path in libraries.glob("lib*.so") if TORCH_LIBRARIES.fullmatch(path.name))
    if not files:
        raise WheelError(
            f"{libraries} holds no libtorch*.so: name the folder torch/lib of the torch to look at"
        )
    have: set[str] = set()
    for path in files:
        try:
            have |= read_shared_object(path).defined
        except ElfError as error:
            raise WheelError(f"{path} cannot be read: {error}; install torch anew") from error
    return sorted(set(facts["torch_symbols"]) - have)
