"""The report of a run: one page that says what `result.json` says, without the network, whatever names look like."""

import re
from html.parser import HTMLParser

import pytest

import hyrlo
from hyrlo.runs import report


class Reader(HTMLParser):
    """The text of a page, and the addresses that it loads from."""

    def __init__(self):
        super().__init__()
        self.text, self.addresses, self.tags = "", [], set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.addresses += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data):
        self.text += data


def read(page):
    reader = Reader()
    reader.feed(page)
    return reader


CONFIG = {
    "seed": 0,
    "command": "hyrlo train",
    "config": {"type": "C", "forward": {"samples": 7}},
    "versions": {},
    "code": {},
}
RESULT = {
    "algo": "fail", "env": "gym:x-v0", "seed": 0, "horizon": 3, "episodes": 1200, "steps": 3600, "return_mean": 1.5,
    "success_rate": None, "eval_episodes": 100, "wall_seconds": 60.0, "spent": {"forward": 900, "backward": 300},
    "chosen": {}, "warnings": [], "versions": {"jax": "1"}, "code": {"commit": "abc"},
}  # fmt: skip


@pytest.mark.slow
def test_a_run_leaves_a_report_that_says_what_the_result_says(tmp_path):
    world = hyrlo.make("lock", horizon=3)
    config = hyrlo.config("fail", preset="fast", samples=100)
    run = hyrlo.train("fail", world, config=config, out=tmp_path / "run", curve_episodes=20, eval_episodes=50)
    page = (tmp_path / "run" / "report.html").read_text()
    found = read(page)
    assert f"success {run.result['success_rate']:.3f}" in found.text
    assert f"{run.result['episodes']:,} training episodes" in found.text
    assert run.result["versions"]["jax"] in found.text
    assert found.addresses
    assert all(address.startswith("data:image/png;base64,") for address in found.addresses)
    assert not re.search(r"https?://", page)


def test_the_page_names_settings_spending_and_distances():
    metrics = [{"phase": "forward", "horizon": h, "mmd": 0.1 * h} for h in range(3)]
    found = read(report.html(CONFIG, RESULT, metrics, None))
    assert "forward.samples7" in found.text
    assert "forward900" in found.text
    assert "return 1.5 in 100 fresh episodes" in found.text
    assert "No warnings." in found.text
    assert len(found.addresses) == 1  # the distances
    assert not read(report.html(CONFIG, RESULT, [], None)).addresses


def test_names_and_warnings_are_text_not_markup():
    evil = "<script>alert(1)</script>"
    result = {
        **RESULT,
        "env": evil,
        "warnings": [{"what": f"lost at step 2 {evil}"}],
        "chosen": {"a": {"choice": evil, "reason": evil}},
    }
    found = read(report.html({**CONFIG, "env": evil}, result, [], None))
    assert "script" not in found.tags
    assert found.text.count(evil) == 6
    assert "No warnings." not in found.text
