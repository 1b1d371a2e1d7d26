"""The drawing of plans, patterns and answers: whole, and never broken by what things are called."""

import re

from loop.report.graph import Answer, Graph, mermaid, tree

HOSTILE = 'x"] --> y\n"; click a "javascript:alert(1)" <b>`%%{init}%% \x1b[31m | #quot; \\'
GRAPH = Graph(
    plans={"quick": ("build", "gone")}, answers=[Answer("build", "failed and build.wrong != []", "debug")]
)


def test_everything_is_drawn() -> None:
    """Each plan with its chain in order, then who answers whom; what nobody defines is drawn all the same."""
    assert [
        "flowchart TB",
        '  subgraph plan1["plan quick"]',
        "    direction TB",
        '    plan1_1["build"]',
        '    plan1_2["gone"]',
        "    plan1_1 --> plan1_2",
        "  end",
        '  subgraph answers["answers to outcomes"]',
        "    direction LR",
        '    pattern1["build"]',
        '    pattern2["debug"]',
        '    pattern1 -.->|"failed and build.wrong != #91;#93;"| pattern2',
        "  end",
    ] == mermaid(GRAPH).splitlines()


def test_nothing_answers() -> None:
    """Then there is no frame for it."""
    graph = Graph({"quick": ("build",)}, [])
    assert "answers" not in mermaid(graph)


def test_the_tree_is_for_a_terminal() -> None:
    """One line a pattern, the answers below it."""
    answers = [*GRAPH.answers, Answer("build", "passed", "gone"), Answer("gone", "failed", "debug")]
    assert [
        "plan quick",
        "  ├─ build",
        "  │   ├─ when failed and build.wrong != []: debug",
        "  │   └─ when passed: gone",
        "  └─ gone",
        "      └─ when failed: debug",
    ] == list(tree(Graph(GRAPH.plans, answers)))


def test_names_cannot_break_out() -> None:
    """Quotes, arrows, escapes and new lines stay in their label."""
    graph = Graph({HOSTILE: (HOSTILE, HOSTILE)}, [Answer(HOSTILE, HOSTILE, HOSTILE)])
    drawn = mermaid(graph)
    assert "\x1b" not in drawn
    label = r'"[^"]*"'
    shapes = (
        "flowchart TB|  end|    direction (TB|LR)",
        rf"  subgraph (plan1|answers)\[{label}\]",
        rf"    (plan1_[12]|pattern1)\[{label}\]",
        "    plan1_1 --> plan1_2",
        rf"    pattern1 -\.->\|{label}\| pattern1",
    )
    assert [] == [line for line in drawn.splitlines() if not re.fullmatch("|".join(shapes), line)]


def test_labels_are_bounded() -> None:
    """A condition of a thousand letters does not make the drawing unreadable."""
    graph = Graph({}, [Answer("a", "x" * 1000, "a")])
    assert all(len(line) < 120 for line in (mermaid(graph)).splitlines())
