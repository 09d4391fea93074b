"""`report.html` of a training run: what came out, where the episodes went, how well the states were matched, all settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hyrlo.runs.figures import integer_ticks, new_figure, png
from hyrlo.runs.html import escaped, named, page, picture, prose

FOUND_OUT = ("versions", "code", "chosen", "config", "data", "format", "checksum")
"""Entries of `config.json` that are not settings of the command, or have a table of their own."""


def html(
    config: Mapping[str, Any], result: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]], curve: bytes | None
) -> str:
    """The page; `config` and `result` are what the files hold, `curve` is the picture beside them."""
    pictures = [picture(curve, "learning curve", "Evaluations along the way, by phase.")] if curve else []
    matched = distances(metrics)
    if matched is not None:
        caption = (
            "Distance of the forward policy's states to the logged ones, step by step, as the forward pass measured it."
        )
        pictures.append(picture(matched, "distance to the data", caption))
    settings = {name: value for name, value in config.items() if name not in FOUND_OUT}
    parts = [
        headline(result),
        f'<h2>How it went</h2><div class="pictures">{"".join(pictures)}</div>' if pictures else "",
        f"<h2>Where the episodes went</h2>{bars(result['spent'])}",
        f"<h2>What was chosen by measuring</h2>{chosen(result['chosen'])}" if result["chosen"] else "",
        f'<h2>Settings</h2><div class="wide">{named(settings)}</div>',
        f'<div class="wide">{named(flat(config["config"]))}</div>',
        f'<h2>Code and versions</h2><div class="wide">{named({**flat(result["code"]), **result["versions"]})}</div>',
    ]
    title = f"{result['algo']} on {result['env']}, H = {result['horizon']}, seed {result['seed']}"
    about = (
        f"{result['episodes']:,} training episodes, {result['steps']:,} environment steps, "
        f"{result['wall_seconds'] / 60:.1f} minutes"
    )
    return page(title, about, "\n".join(part for part in parts if part))


def headline(result: Mapping[str, Any]) -> str:
    """Return and success of the policy, and the warnings."""
    success = "" if result["success_rate"] is None else f"success {result['success_rate']:.3f}, "
    first = f"{success}return {result['return_mean']:.4g} in {result['eval_episodes']:,} fresh episodes"
    warnings = "".join(f"<li>{prose(warning['what'])}</li>" for warning in result["warnings"])
    return (
        f'<section class="verdict{" bad" if warnings else ""}"><p><b>{escaped(first)}</b></p>'
        f"{f'<ul>{warnings}</ul>' if warnings else '<p>No warnings.</p>'}</section>"
    )


def bars(spent: Mapping[str, int]) -> str:
    """A bar for each phase."""
    most = max([*spent.values(), 1])
    rows = "".join(
        f"<tr><td>{escaped(phase)}</td><td>{n:,}</td>"
        f'<td style="width:60%"><div class="bar" style="width:{100 * n / most:.1f}%"></div></td></tr>'
        for phase, n in spent.items()
    )
    return f'<table class="names"><tbody>{rows}</tbody></table>'


def chosen(choices: Mapping[str, Mapping[str, str]]) -> str:
    lines = (f"{about}: `{each['choice']}` ({each['reason']})" for about, each in choices.items())
    return f"<ul>{''.join(f'<li>{prose(line)}</li>' for line in lines)}</ul>"


def flat(config: Any, name: str = "") -> dict[str, Any]:
    """Nested settings by dotted names."""
    if not isinstance(config, Mapping):
        return {name: config}
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= flat(value, f"{name}.{key}".lstrip("."))
    return found


def distances(metrics: Sequence[Mapping[str, Any]]) -> bytes | None:
    """PNG of the forward pass's own measurements; None where there are none."""
    forward = [line for line in metrics if line["phase"] == "forward"]
    labels = {"mmd": "MMD after the update", "off": "distance beyond chance at the step's beginning"}
    shown = {name: label for name, label in labels.items() if any(name in line for line in forward)}
    if not shown:
        return None
    figure, axes = new_figure(6.4, 3.6)
    for name, label in shown.items():
        rows = [(line["horizon"], line[name]) for line in forward if name in line]
        axes.plot(*zip(*rows, strict=True), label=label, marker="o", markersize=3)
    integer_ticks(axes)
    axes.set_xlabel("step")
    axes.legend(frameon=False, fontsize=8)
    return png(figure, dpi=130)
