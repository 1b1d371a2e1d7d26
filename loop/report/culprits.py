"""The result of a search, in the report and on the screen."""

import shlex
from collections.abc import Iterable, Iterator, Sequence

from loop.model.bisect import UNCOMMITTED, BisectAnswer, BisectOutput
from loop.model.output import outputs_of
from loop.model.record import Finished
from loop.report import format as say
from loop.report.markdown import drop_empty_columns
from loop.report.sections import Section

MOST_NAMED_WORKLOADS = 4  # Most workloads that are named; more are only counted.
MOST_LINES = 60  # Lines of the culprit's diff in the report; git has the rest.


def search_answers(finished: Sequence[Finished]) -> list[tuple[str, BisectAnswer]]:
    """Variant and answer of every search of a session that ended with one."""
    return [(output.variant, output.answer) for output in outputs_of(finished, BisectOutput) if output.answer]


def headline(answer: BisectAnswer) -> str:
    """The outcome and its reason, in one line."""
    return f"{answer.outcome.replace('_', ' ')}: {answer.why}"


def blamed_lines(answer: BisectAnswer) -> tuple[str, ...]:
    """A line for each culprit, and for each commit of a range that contains one, with why it was skipped."""
    lines = []
    for commit in (*answer.culprits, *answer.range):
        reason = answer.skipped.get(commit.commit)
        skipped = f": {reason}" if reason else ""
        hash_text = "" if commit.commit == UNCOMMITTED else f"`{commit.short_commit}` "
        when = f", {commit.when:%Y-%m-%d}" if commit.when else ""
        author = f" ({commit.author}{when})" if commit.author else ""
        lines.append(f"{hash_text}{commit.subject}{skipped}{author}")
    return tuple(lines)


def show_command(commits: Iterable[str], *options: str) -> str:
    """The git command that shows commits by their hashes; for the checkout's changes alone `git diff`."""
    committed = [commit[:12] for commit in commits if commit != UNCOMMITTED]
    words = ["show", *committed] if committed else ["diff"]
    return shlex.join(["git", *options, *words])


def basis_lines(answer: BisectAnswer) -> Iterator[str]:
    """The basis of an answer: the culprit's step, workloads, observations, skipped commits."""
    if answer.ratio is not None:
        yield f"Its parent's time over its own: {say.speedup_text(answer.ratio)}, in fresh pairs"
    observations = sum(len(probe.values) for probe in answer.probes)
    if answer.workloads and (observations or answer.checks):
        scope = say.count(len(answer.workloads), "workload")
        scope += f" ({', '.join(answer.workloads)})" if len(answer.workloads) <= MOST_NAMED_WORKLOADS else ""
        set_texts = []
        for names in (answer.sets, answer.left_out):
            set_texts.append(f"set{'s' if len(names) > 1 else ''} {', '.join(names)}")
        scope += f" of the {set_texts[0]}" if answer.sets else ""
        scope += f", in {say.count(answer.checks, 'check')}" if answer.checks else ""
        scope += f"; not tried: the {set_texts[1]}" if answer.left_out else ""
        yield f"Judged on {scope}"
    if answer.probes:
        probes, builds = say.count(len(answer.probes), "probe"), say.count(answer.builds, "build")
        yield f"{say.count(observations, 'observation')} in {probes}, {builds}"
    in_range = {commit.commit for commit in answer.range}
    for commit, reason in answer.skipped.items():
        if commit not in in_range:
            yield f"Skipped `{commit[:12]}`: {reason}"


def sections(finished: Sequence[Finished]) -> Iterator[Section]:
    """Which commit made a variant slower or wrong, with the probes of the search."""
    for output in outputs_of(finished, BisectOutput):
        answer = output.answer
        if answer is None:
            continue
        title = f"Which commit made {output.variant} regress"
        lines = (*blamed_lines(answer), *basis_lines(answer))
        yield Section(title, note=f"{headline(answer)}.", lines=lines)
        rows = []
        for commit, against in dict.fromkeys((probe.commit, probe.against) for probe in answer.probes):
            probes = [probe for probe in answer.probes if (probe.commit, probe.against) == (commit, against)]
            values = tuple(value for probe in probes for value in probe.values)
            all_probes = probes[-1].model_copy(update={"values": values})
            rows.append((commit[:12], str(len(values)), all_probes.describe(output.metric or "latency")))
        yield Section(table=drop_empty_columns(("Commit", ">Observations", "What came of it"), tuple(rows)))
        patch = answer.difference.splitlines()
        omission = (f"... {len(patch) - MOST_LINES} more lines",) if len(patch) > MOST_LINES else ()
        if patch:
            code = (*patch[:MOST_LINES], *omission)
            yield Section(note="What the blamed commit changed:", code=code, language="diff")
