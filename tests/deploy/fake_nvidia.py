"""Rows as `nvidia-smi --query-gpu=... --format=csv,noheader,nounits` prints them."""

B300 = "NVIDIA B300 SXM6 AC, 275040, 4, 580.95.05, 10.3"
H200 = "NVIDIA H200, 143771, 0, 580.159.03, 9.0"


def rows(gpu: str, n_gpus: int) -> str:
    return "".join(f"{index}, {gpu}\n" for index in range(n_gpus))
