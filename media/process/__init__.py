"""Decoding in processes of its own, so that a hostile file ends its process and nothing else."""

from media.process.jobs import ClipJob, Job, PictureJob
from media.process.pool import DecoderPool, WorkerError

__all__ = ["ClipJob", "DecoderPool", "Job", "PictureJob", "WorkerError"]
