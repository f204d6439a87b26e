"""What the unit tests share: our module_utils under Ansible's name, and running a module in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import ansible.module_utils
import pytest
from ansible.module_utils.testing import patch_module_args

ROOT = Path(__file__).parents[2]
ansible.module_utils.__path__.append(str(ROOT / "module_utils"))


@pytest.fixture
def run_module(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Call a module's main with arguments; returns the result that it prints for Ansible."""

    def run(module: ModuleType, check: bool = False, **arguments: Any) -> dict[str, Any]:
        capsys.readouterr()
        with (
            patch_module_args({**arguments, "_ansible_check_mode": check}),
            pytest.raises(SystemExit),
        ):
            module.main()
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        return result

    return run
