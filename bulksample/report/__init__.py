"""What a run tells: seconds and bytes by phase, JSON lines, a progress bar. No torch in here."""
