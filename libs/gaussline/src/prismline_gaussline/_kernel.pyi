from typing_extensions import Buffer

def best_isa() -> int: ...
def decompose(
    data: Buffer,
    n: int,
    channels: int,
    is_float32: bool,
    noise: Buffer | None,
    noise_is_shape: bool,
    noise_row_stride: int,
    noise_channel_stride: int,
    correlation_mode: int,
    correlation: Buffer | None,
    starts: Buffer | None,
    start_offsets: Buffer | None,
    params: tuple[float, float, float, float, float, float, float, int, int, int, int, int],
    threads: int,
    instruction_set: int,
    /,
) -> dict[str, bytearray]: ...
