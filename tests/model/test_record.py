"""What a session says of itself to be typed again."""

import pytest

from tests.makers import make_session_head


@pytest.mark.parametrize(("host", "ends"), [("", False), ("l4", True)])
def test_commands_of_a_session_name_the_machine_where_it_ran(host: str, ends: bool) -> None:
    """That does it again, and that goes on with it; a report is rendered here."""
    head = make_session_head(host=host)
    for command in (head.command(), head.resume_command):
        assert ends == ("--on l4" in command), command
    assert "--on" not in head.report_command
