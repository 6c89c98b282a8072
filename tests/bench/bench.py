"""What the scripts bench-* share: running commands, figures, inputs; see CONTRIBUTING.md, Benchmarks."""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build/release")
SML = os.path.join(BUILD, "apps/sml/sml")
CACHE = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
WORK = os.environ.get("SML_BENCH_DIR") or os.path.join(CACHE, "sml-bench")
SEED = 20261130
ENV = {**os.environ, "SML": SML, "LC_ALL": "C"}

short = False


def figure(name, value, unit, goal):
    """`goal`: "<=0.7", ">=1.5", or "-" for what is only told."""
    global short
    met = goal == "-" or (value <= float(goal[2:]) if goal.startswith("<=") else value >= float(goal[2:]))
    short = short or not met
    print(f"{name}\t{value:.4g}\t{unit}\t{goal}\t{'ok' if met else 'SHORT'}", flush=True)


def say(text):
    print(text, file=sys.stderr, flush=True)


def shell(command, **options):
    subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=WORK, env=ENV, check=True, **options)


def output(command):
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], cwd=WORK, env=ENV, check=True, stdout=subprocess.PIPE
    ).stdout


def timed(command):
    start = time.perf_counter()
    shell(command)
    return time.perf_counter() - start


def medians(runs, unit, **measures):
    """The median of what each function returns, called in turns after one warm-up round."""
    values = {name: [] for name in measures}
    for turn in range(runs + 1):
        for name, measure in measures.items():
            value = measure()
            if turn > 0:
                values[name].append(value)
    for name, measured in values.items():
        median, least, most = statistics.median(measured), min(measured), max(measured)
        say(f"  {median:8.3f} {unit}  (from {least:.3f} to {most:.3f})  {name}")
    return [statistics.median(measured) for measured in values.values()]


def alternately(runs, *commands, between=None):
    """Median seconds of each command, run in turns after one warm-up round. `between` is run before each."""

    def measure(command):
        if between:
            shell(between)
        return timed(command)

    return medians(runs, "s", **{command: lambda command=command: measure(command) for command in commands})


def peak_private(command):
    """Peak of RssAnon + RssShmem, in MiB, of the first process of a pipeline."""
    process = subprocess.Popen(["bash", "-c", f"exec {command}"], cwd=WORK, env=ENV, stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        try:
            with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
                peak = max(
                    peak, sum(int(l.split()[1]) for l in status if l.startswith(("RssAnon:", "RssShmem:")))
                )
        except (FileNotFoundError, ProcessLookupError):
            break
        time.sleep(0.002)
    if process.wait() != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return peak / 1024


def made(name, make):
    """The path of an input, which `make(path)` makes unless it is there."""
    path = os.path.join(WORK, name)
    if not os.path.exists(path):
        say(f"making {name}")
        unfinished = path + ".unfinished"
        if os.path.isdir(unfinished):
            shutil.rmtree(unfinished)
        make(unfinished)
        os.rename(unfinished, path)
        os.sync()
    return name


def build(*targets):
    os.makedirs(WORK, exist_ok=True)
    subprocess.run(["cmake", "--preset", "release", "--log-level=WARNING"], cwd=ROOT, check=True, stdout=sys.stderr)
    subprocess.run(["cmake", "--build", BUILD, "--target", *targets, "--", "--quiet"], check=True, stdout=sys.stderr)


def arguments(usage, figures, **options):
    """The command line; `options` are flags beside --runs. The figures that were asked for are in `figures`."""
    parser = argparse.ArgumentParser(usage=usage)
    parser.add_argument("--runs", type=int, default=5)
    for name, description in options.items():
        parser.add_argument(f"--{name}", action="store_true", help=description)
    parser.add_argument("figures", nargs="*", default=[])
    given = parser.parse_args()
    if given.runs < 1:
        parser.error("--runs takes a number from 1 on")
    unknown = [name for name in given.figures if not any(f.startswith(name) for f in figures)]
    if unknown:
        parser.error(f"no figure {unknown[0]} ({', '.join(figures)})")
    given.figures = [
        name for name in figures if not given.figures or any(name.startswith(wanted) for wanted in given.figures)
    ]
    return given


def measure(figures, given):
    """Calls the functions of the figures asked for; the exit code."""
    for name in given.figures:
        say(f"{name}:")
        figures[name](given.runs)
    return 3 if short else 0

