"""``python -m app``: the command ``playable`` without the installed script."""

from app.cli import app

app(prog_name="playable")
