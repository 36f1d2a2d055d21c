"""Named ways to launch the engine: vLLM's arguments and environment, their source and their cost."""

from collections.abc import Mapping

from engine.errors import EngineStartError
from engine.profiles.blackwell import (
    B300X8,
    B300X8_DCP,
    B300X8_DCP_A2A,
    B300X8_DSPARK,
    B300X8_DSPARK_BY_STREAMS,
    B300X8_EP,
    B300X8_THROUGHPUT,
    B300X16_RAY,
)
from engine.profiles.cpu import CPU_MINI, CPU_MINI_DP2
from engine.profiles.hopper import H200_SMOKE
from engine.profiles.profile import COMMON_ARGUMENTS, COMMON_ENVIRONMENT, Profile, Requirements

__all__ = [
    "COMMON_ARGUMENTS",
    "COMMON_ENVIRONMENT",
    "PROFILES",
    "Profile",
    "Requirements",
    "get_profile",
]

PROFILES: Mapping[str, Profile] = {
    profile.name: profile
    for profile in (
        CPU_MINI,
        CPU_MINI_DP2,
        B300X8,
        B300X8_THROUGHPUT,
        B300X8_DSPARK,
        B300X8_DSPARK_BY_STREAMS,
        B300X8_EP,
        B300X8_DCP,
        B300X8_DCP_A2A,
        B300X16_RAY,
        H200_SMOKE,
    )
}


def get_profile(name: str) -> Profile:
    """Raises EngineStartError for a name that is not known."""
    if name not in PROFILES:
        raise EngineStartError(f"there is no profile {name!r}", f"Known profiles: {', '.join(PROFILES)}")
    return PROFILES[name]
