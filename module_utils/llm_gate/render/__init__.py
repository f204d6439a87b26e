"""The reports for people and machines, each made from the document alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .junit import render_junit
from .markdown import render_markdown
from .page import render_page
from .prometheus import render_prometheus
from .table import table_lines

__all__ = ["render_reports", "table_lines"]


def render_reports(document: Mapping[str, Any]) -> dict[str, str]:
    """Every report by its file name."""
    return {
        "report.json": json.dumps(document, indent=2, allow_nan=False) + "\n",
        "junit.xml": render_junit(document),
        "report.md": render_markdown(document),
        "report.html": render_page(document),
        "gate.prom": render_prometheus(document),
    }
