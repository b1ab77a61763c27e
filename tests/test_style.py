"""The sources are clean by the tools' measure; pyproject.toml holds their settings, with a reason for what is ignored."""
from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import ROOT


@pytest.mark.parametrize("command", [["ruff", "check", "--quiet", "."], ["mypy"]], ids=lambda c: c[0])
def test_clean(command: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
