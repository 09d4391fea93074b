"""The documentation site builds without a warning, and its search finds every page."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    told = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    )
    assert told.returncode == 0, told.stderr
    return out


@pytest.mark.slow
def test_every_page_is_built_and_found(site):
    pages = {p.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for p in (ROOT / "docs").rglob("*.md")}
    built = {p.relative_to(site).as_posix() for p in site.rglob("*.html")}
    assert {*pages, "index.html"} - {"README.html"} <= built
    found = {
        entry["location"].split("#")[0] for entry in json.loads((site / "search/search_index.json").read_text())["docs"]
    }
    assert pages - {"README.html"} <= found


@pytest.mark.slow
def test_the_reference_says_what_arguments_are_for(site):
    page = (site / "reference/python.html").read_text()
    assert "Keep the run in this directory" in page
    assert "budget" in (site / "reference/configs.html").read_text()


@pytest.mark.slow
def test_links_into_the_repository_are_absolute(site):
    page = (site / "architecture.html").read_text()
    assert "https://github.com/hyrlo/hyrlo/blob/main/src/hyrlo/foobar.py" in page
    assert 'href="../src' not in page
