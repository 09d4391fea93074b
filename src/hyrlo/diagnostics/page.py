"""Pictures of a diagnosis, and the page that shows them: one self-contained HTML file."""

from __future__ import annotations

import base64
import html as escape
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hyrlo.runs.figures import integer_ticks, new_figure, png

if TYPE_CHECKING:
    from hyrlo.diagnostics.admissibility import StepReport

RED, BLUE, ORANGE, GREY = "#b3261e", "#1f5fa8", "#c77700", "#777777"


def pictures(rows: Sequence[StepReport], config: dict[str, Any]) -> dict[str, bytes]:
    """PNG files by name: the IPM with its floor, the JS divergence, and coverage both ways."""
    steps = [row.step for row in rows]
    flagged = [row.step for row in rows if row.flagged]

    figure, axes = _axes(steps, flagged, "MMD between roll-in and data")
    axes.plot(steps, [row.mmd for row in rows], color=BLUE, marker="o", markersize=4, label="closest policy")
    axes.plot(steps, [row.floor for row in rows], color=GREY, linestyle="--", label="floor: data against data, 95 %")
    done = {"ipm": _png(figure, axes)}

    figure, axes = _axes(steps, flagged, "Jensen–Shannon divergence, nats")
    _band(axes, steps, rows, "js", BLUE, "estimate and 95 % interval")
    axes.axhline(0.6931, color=GREY, linestyle=":", linewidth=1, label="ln 2: nothing in common")
    done["js"] = _png(figure, axes)

    figure, axes = _axes(steps, flagged, "share of the states")
    _band(axes, steps, rows, "gap", RED, "gap: mass that differs")
    axes.axhline(config["gap"], color=RED, linestyle=":", linewidth=1, label=f"gap: flagged above {config['gap']:g}")
    rare = f"missed: flagged above {config['missed']:g} where the roll-in is hardly there"
    axes.axhline(config["missed"], color=BLUE, linestyle=":", linewidth=1, label=rare)
    _band(axes, steps, rows, "missed", BLUE, "missed: data where the roll-in is rare")
    _band(axes, steps, rows, "stray", ORANGE, "stray: roll-in where data are rare")
    axes.set_ylim(-0.03, 1.03)
    done["coverage"] = _png(figure, axes)
    return done


def _axes(steps: list[int], flagged: list[int], ylabel: str) -> tuple[Any, Any]:
    figure, axes = new_figure(5.4, 3.2)
    for number, h in enumerate(flagged):
        axes.axvspan(h - 0.5, h + 0.5, color=RED, alpha=0.08, linewidth=0, label=None if number else "flagged steps")
    axes.set_xlim(-0.5, steps[-1] + 0.5)
    integer_ticks(axes)
    axes.set_xlabel("step")
    axes.set_ylabel(ylabel)
    return figure, axes


def _band(axes: Any, steps: list[int], rows: Sequence[StepReport], name: str, colour: str, label: str) -> None:
    low, high = zip(*(getattr(row, f"{name}_interval") for row in rows), strict=True)
    axes.plot(steps, [getattr(row, name) for row in rows], color=colour, marker="o", markersize=4, label=label)
    axes.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)


def _png(figure: Any, axes: Any) -> bytes:
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0), max(high, 0.1))
    axes.legend(frameon=False, fontsize=8)
    return png(figure, dpi=130)


STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1c1c1c; max-width: 68rem; margin: 2rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2rem; }
p.about { color: #666; margin-top: .2rem; }
section.verdict { border-left: .4rem solid #2e7d32; background: #f1f7f1; padding: .6rem 1.2rem; margin: 1.2rem 0; }
section.bad { border-color: #b3261e; background: #fbf1f0; }
section.verdict li, section.verdict p { margin: .35rem 0; }
div.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(26rem, 1fr)); gap: 1rem; margin-bottom: 1rem; }
figure { margin: 0; } figure img { width: 100%; } figcaption { color: #666; font-size: .85rem; }
div.wide { overflow-x: auto; }
@media (max-width: 32rem) { div.pictures { grid-template-columns: 1fr; } }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; width: 100%; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #e4e4e4; white-space: nowrap; }
th { border-bottom: 2px solid #999; font-weight: 600; } tr.flagged { background: #fbf1f0; }
code { background: #f0f0f0; padding: .1rem .3rem; border-radius: .2rem; }
"""

CAPTIONS = {
    "ipm": "Integral probability metric (MMD) of the closest policy at each step. Within the floor, roll-in and data "
    "cannot be told apart.",
    "js": "Divergence by a classifier, from states it was not trained on.",
    "coverage": "How much differs. Of the data that are missed a backward pass sees little; stray episodes are spent where "
    "the data say nothing.",
}
STEP_COLUMNS = {
    "step": "step", "states": "states", "mmd": "MMD", "floor": "floor", "p_value": "p, adjusted", "gap": "gap",
    "data_share": "data there", "roll_in_share": "roll-in there", "js": "JS", "missed": "missed", "stray": "stray",
}  # fmt: skip
DATA_COLUMNS = {
    "timestep": "step", "states": "states", "min": "min", "mean": "mean", "max": "max", "duplicates": "duplicates",
    "constant_dimensions": "constant dims", "ended": "ended",
}  # fmt: skip


def html(report: dict[str, Any], pictures: dict[str, bytes]) -> str:
    """The page. `report` is what `report.json` holds."""
    title = escape.escape(f"Diagnosis of {report['env']}, H = {report['horizon']}")
    figures = "".join(
        f'<figure><img alt="{name}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'
        f"<figcaption>{escape.escape(CAPTIONS[name])}</figcaption></figure>"
        for name, png in pictures.items()
    )
    first, *rest = [_prose(line) for line in report["verdict"]]
    steps = [
        {
            **row,
            "p_value": "<0.001" if row["p_value"] < 0.001 else row["p_value"],
            "flag": f"⚑ {row['origin']}" if row["flagged"] else "differs" if row["differs"] else "",
        }
        for row in report["steps"]
    ]
    meaning = escape.escape(_meaning(report["config"]))
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title><style>{STYLE}</style></head><body>
<h1>{title}</h1><p class="about">{escape.escape(_about(report))}</p>
<section class="verdict{" bad" if report["flagged"] else ""}"><p><b>{first}</b></p>
<ul>{"".join(f"<li>{line}</li>" for line in rest)}</ul></section>
<h2>What to do next</h2><ul>{"".join(f"<li>{_prose(line)}</li>" for line in report["advice"])}</ul>
<h2>Step by step</h2><div class="pictures">{figures}</div>
<div class="wide">{_table({**STEP_COLUMNS, "flag": ""}, steps)}</div><p class="about">{meaning}</p>
<h2>What is in the data</h2><div class="wide">{_table(DATA_COLUMNS, report["data"])}</div>
</body></html>
"""


def _about(report: dict[str, Any]) -> str:
    """Data, policies and cost in one line."""
    tried = ", ".join(report["policies"]) if report["run"] is None else f"roll-in of {report['run']}"
    played = {k: report["forward"][k] + report["roll_out"][k] for k in ("episodes", "steps")}
    return (
        f"{report['source']}; {report['observation_size']} dimensions; {tried}; "
        f"{played['episodes']:,} episodes, {played['steps']:,} environment steps; seed {report['seed']}"
    )


def _meaning(config: dict[str, Any]) -> str:
    """Legend of the table of steps."""
    return (
        f"A step is flagged (⚑) if roll-in and data differ significantly (p below {config['level']:g} after "
        f"Benjamini–Hochberg over the steps) and by more than a gap of {config['gap']:g} or more than "
        f"{config['missed']:g} of the data missed. gap: the data put that much more of their mass into some region than "
        "the roll-in; data there, roll-in there: the shares of each in that region. missed, stray: data (roll-in) where "
        f"the other is {config['test']['rare']:g} times as rare. JS in nats, at most 0.693."
    )


def _prose(line: str) -> str:
    """Escaped, with `code` between backticks."""
    parts = escape.escape(line).replace(" %", "&nbsp;%").split("`")
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def _table(columns: dict[str, str], rows: list[dict[str, Any]]) -> str:
    head = "".join(f"<th>{escape.escape(title)}</th>" for title in columns.values())
    body = "".join(
        f"<tr{' class=flagged' if row.get('flagged') else ''}>"
        + "".join(f"<td>{_cell(row[name])}</td>" for name in columns)
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3f}"
    return f"{value:,}" if isinstance(value, int) else escape.escape(value)
