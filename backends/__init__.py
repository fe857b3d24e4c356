"""The methods of Playable Papers and what they share; nothing here knows a browser."""
