"""``python -m app`` and the command ``playable``: Ctrl-C ends it in plain words even while its packages load."""

import sys


def main() -> None:
    """Runs the command line; code 130 when it was interrupted."""
    try:
        from app.cli import app

        app(prog_name="playable")
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
