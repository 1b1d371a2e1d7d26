"""What changed since the known good: one thing at a time can be judged, several cannot."""

from loop.gate.kernel import builds
from loop.gate.model import ChangesOutput
from loop.repository import changes as files_changed
from loop.steps.context import Context, NoArguments, Result, Working

SHOWN = 20


def changes(context: Context, arguments: NoArguments) -> Working[ChangesOutput]:
    """Compiled variants whose build is not the known good's, and the files that differ from its revision."""
    made, failures = yield from builds(context)
    if failures:
        return Result(ChangesOutput(ok=False, message=failures[0].message, hint=failures[0].hint))
    known = context.past.known_good
    unknown = [one.variant for one in made if one.variant not in known]
    changed = tuple(
        one.variant for one in made if one.variant in known and known[one.variant].build_id != one.build_id
    )
    commit = next((known[name].commit for name in changed if known[name].commit), None)
    files = files_changed(context.task.folder, commit) if commit else {}
    return Result(
        ChangesOutput(
            ok=True,
            message=_describe(changed, unknown, files),
            identity=" ".join(f"{one.variant}={one.build_id}" for one in made),
            changed=changed,
            count=len(changed),
            files=tuple(sorted(files))[:SHOWN],
            lines=sum(files.values()),
            not_exercised=tuple(f"what changed in {name}: it has no known good yet" for name in unknown),
        )
    )


def _describe(changed: tuple[str, ...], unknown: list[str], files: dict[str, int]) -> str:
    if not changed:
        return "nothing to compare with: no known good yet" if unknown else "nothing changed since the known good"
    where = f": {sum(files.values())} lines in {len(files)} files" if files else ""
    return f"{', '.join(changed)} changed since the known good{where}"
