"""Parts of self-contained HTML pages: one file, no network, light and dark."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from typing import Any

STYLE = """
:root { color-scheme: light dark; --text: #1c1c1c; --quiet: #666; --line: #e4e4e4; --back: #fff; --code: #f0f0f0;
  --good: #f1f7f1; --good-line: #2e7d32; --bad: #fbf1f0; --bad-line: #b3261e; --bar: #1f5fa8; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e4e4; --quiet: #a0a0a0; --line: #3a3a3a; --back: #16181b;
  --code: #2a2d31; --good: #17251a; --good-line: #66bb6a; --bad: #2c1a19; --bad-line: #ef5350; --bar: #6ea8e0; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back); max-width: 68rem; margin: 2rem auto;
  padding: 0 1.2rem; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p.about { color: var(--quiet); margin-top: .2rem; }
section.verdict { border-left: .4rem solid var(--good-line); background: var(--good); padding: .6rem 1.2rem; margin: 1.2rem 0; }
section.bad { border-color: var(--bad-line); background: var(--bad); }
section.verdict li, section.verdict p { margin: .35rem 0; }
div.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(26rem, 1fr)); gap: 1rem; margin-bottom: 1rem; }
figure { margin: 0; } figure img { width: 100%; background: #fff; border-radius: .3rem; }
figcaption { color: var(--quiet); font-size: .85rem; }
div.wide { overflow-x: auto; }
@media (max-width: 32rem) { div.pictures { grid-template-columns: 1fr; } }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; width: 100%; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { border-bottom: 2px solid #999; font-weight: 600; } tr.flagged { background: var(--bad); }
table.names td:first-child { text-align: left; } table.names td { white-space: normal; }
div.bar { background: var(--bar); height: .8rem; border-radius: .2rem; min-width: 1px; }
code { background: var(--code); padding: .1rem .3rem; border-radius: .2rem; }
"""


def page(title: str, about: str, body: str) -> str:
    """A whole page; `body` is HTML, everything else is text."""
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{escaped(title)}</title><style>{STYLE}</style></head><body>
<h1>{escaped(title)}</h1><p class="about">{escaped(about)}</p>
{body}
</body></html>
"""


def escaped(text: str) -> str:
    return html.escape(text)


def prose(line: str) -> str:
    """Escaped, with `code` between backticks."""
    parts = html.escape(line).replace(" %", "&nbsp;%").split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def picture(png: bytes, name: str, caption: str) -> str:
    data = base64.b64encode(png).decode()
    return (
        f'<figure><img alt="{html.escape(name)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def table(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> str:
    """Titles by the names of the rows' entries. A row with `flagged` stands out."""
    head = "".join(f"<th>{html.escape(title)}</th>" for title in columns.values())
    body = "".join(
        f"<tr{' class=flagged' if row.get('flagged') else ''}>"
        + "".join(f"<td>{cell(row[name])}</td>" for name in columns)
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def named(values: Mapping[str, Any]) -> str:
    """A table of two columns, without titles."""
    rows = "".join(f"<tr><td>{html.escape(name)}</td><td>{cell(value)}</td></tr>" for name, value in values.items())
    return f'<table class="names"><tbody>{rows}</tbody></table>'


def cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return html.escape(str(value))
