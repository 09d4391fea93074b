"""Pictures of a diagnosis, and the page that shows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hyrlo.runs.figures import integer_ticks, new_figure, png
from hyrlo.runs.html import escaped, page, picture, prose, table

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
    figures = "".join(picture(data, name, CAPTIONS[name]) for name, data in pictures.items())
    first, *rest = [prose(line) for line in report["verdict"]]
    steps = [
        {
            **row,
            "p_value": "<0.001" if row["p_value"] < 0.001 else row["p_value"],
            "flag": f"⚑ {row['origin']}" if row["flagged"] else "differs" if row["differs"] else "",
        }
        for row in report["steps"]
    ]
    body = f"""<section class="verdict{" bad" if report["alarming"] else ""}"><p><b>{first}</b></p>
<ul>{"".join(f"<li>{line}</li>" for line in rest)}</ul></section>
<h2>What to do next</h2><ul>{"".join(f"<li>{prose(line)}</li>" for line in report["advice"])}</ul>
<h2>Step by step</h2><div class="pictures">{figures}</div>
<div class="wide">{table({**STEP_COLUMNS, "flag": ""}, steps)}</div>
<p class="about">{escaped(_meaning(report["config"]))}</p>
<h2>What is in the data</h2><div class="wide">{table(DATA_COLUMNS, report["data"])}</div>"""
    return page(f"Diagnosis of {report['env']}, H = {report['horizon']}", _about(report), body)


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
