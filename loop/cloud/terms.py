"""`python -m loop.cloud.terms`: which cloud this machine is in, and whether it is a spot machine.

It prints `gcp spot`, `aws on_demand`, or nothing where no metadata server answers.
"""

from loop.cloud.clouds import CLOUDS, NoReply, make_cloud

WITHIN_S = 0.3
"""A metadata server is a hop away and answers in milliseconds."""


def terms() -> str:
    """Cloud and terms; empty where nobody says."""
    for name in CLOUDS:
        cloud = make_cloud(name)
        try:
            if cloud.here(WITHIN_S):
                return f"{name} {'spot' if cloud.spot(WITHIN_S) else 'on_demand'}"
        except NoReply:
            continue
    return ""


if __name__ == "__main__":
    print(terms())
