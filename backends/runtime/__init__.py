"""What the methods share: threads, folders, stored values, models, data."""
