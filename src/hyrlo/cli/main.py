"""The command line: `hyrlo train | eval | compare | export | diagnose | data | reproduce | bound | list`.

Errors are one line, `error: what, where, what to do`, with exit code 2. A command's module is imported when it is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

from hyrlo import __version__
from hyrlo.core.errors import HyrloError
from hyrlo.core.memory import out_of_memory_in_one_line
from hyrlo.core.names import nearest
from hyrlo.core.plain import visible
from hyrlo.core.signals import interrupts

HELP = """\
hyrlo: good policies from state-only logs plus online interaction

  hyrlo train ALGO ENV [--data D] [--horizon H] [--seed S | --seeds K] [--preset NAME] [--out DIR] [--resume] [...]
  hyrlo eval DIR [--episodes N] [--json] [--render [FILE.gif]]
  hyrlo export DIR --to onnx|numpy --out F      a file that acts without JAX
  hyrlo diagnose ENV [--data D] [--run DIR]     can the data be reached, are they covered, what to expect
  hyrlo data collect|import|info ...
  hyrlo reproduce EXPERIMENT [--scale smoke|quick|paper] [--seeds K]     figures and tables of the paper
  hyrlo bound [ALGO] --epsilon E | --samples N [...]                     what the paper's theorems guarantee
  hyrlo compare RUN... [--out F.png]     one table and one picture of several runs
  hyrlo list                         algorithms, environments, experiments, presets

`hyrlo train foobar lock --horizon 10` is a first run of about a minute. Every command has --help.
"""
COMMANDS = ("train", "eval", "compare", "export", "diagnose", "data", "reproduce", "bound", "list")
COMPILING = ("eval", "export", "diagnose", "data", "reproduce")
"""Commands that use the compilation cache; `train` has an option for it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; 0 if it worked, 2 with one line on stderr if not."""
    argv = sys.argv[1:] if argv is None else list(argv)
    try:
        if not argv or argv[0] in ("-h", "--help"):
            print(HELP, end="")
        elif argv[0] == "--version":
            print(__version__)
        else:
            with out_of_memory_in_one_line(f"hyrlo {argv[0]}"):
                _run(argv[0], argv[1:])
        return 0
    except HyrloError as error:
        return _fail(str(error))
    except BrokenPipeError:  # as in `hyrlo list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        then = ", then --resume" if argv[0] == "train" else ""
        return _fail(f"{where}{error.strerror or error}; check the path, permissions and free space{then}")
    except KeyboardInterrupt:
        print(interrupts.line(), file=sys.stderr)
        return 130
    except SystemExit as stop:
        return int(stop.code or 0)


def _run(command: str, argv: Sequence[str]) -> None:
    if command not in COMMANDS:
        raise HyrloError(f"unknown command {command!r}{nearest(command, COMMANDS)}; see `hyrlo --help`")
    if command in COMPILING:
        import_module("hyrlo.runs.cache").enable_compilation_cache()
    getattr(import_module(f"hyrlo.cli.{command}"), f"command_{command}")(argv)


def _fail(message: str) -> int:
    interrupts.wait_if_leaving()
    print("error: " + visible(" ".join(message.split())), file=sys.stderr)
    return 2


def run() -> None:
    interrupts.install()
    try:
        code = main()
    finally:
        interrupts.wait_if_leaving()
    sys.exit(code)
