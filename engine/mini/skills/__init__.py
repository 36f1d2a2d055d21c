"""What the mini K3 is taught: each module makes tasks of a few skills from a seeded source."""
