#pragma once

namespace longtune {

/// Floating-point operations a second that this process' cores reach together in multiply-adds
/// held in registers, with the widest vectors the machine has, of f32 or, where it has products of
/// bf16, of those: the limit that shares are reported of. Measured for about 50 ms with as many
/// threads as operations use; the best of several rounds, since other work on the machine only
/// slows.
[[nodiscard]] double measure_peak_flops();

}  // namespace longtune
