#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace longtune::ops {

/// Instruction sets that kernels exist for, each including those before it.
enum class Isa : std::uint8_t {
  kPortable,    ///< what the compiler emits for any machine of this architecture
  kAvx2,        ///< AVX2, FMA and F16C
  kAvx512,      ///< AVX-512 F, BW, DQ and VL
  kAvx512Bf16,  ///< with products of bf16; bf16 activations: frozen weights and attention's
                ///< probabilities are rounded to bf16
};

inline constexpr std::array kAllIsas = {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16};

/// "portable", "avx2", "avx512", "avx512-bf16".
[[nodiscard]] const char* name_of(Isa isa);

/// The instruction set of that name; nothing where there is none.
[[nodiscard]] std::optional<Isa> parse_isa(std::string_view name);

/// The widest instruction set that this machine has and this build has kernels for.
[[nodiscard]] Isa best_isa();

/// What operations use: best_isa() until select_isa chose another.
[[nodiscard]] Isa selected_isa();

/// Chooses for all operations from now on; not while one runs. Results of different instruction
/// sets agree within rounding, not bit for bit. Throws Error kUnsupported where the machine lacks
/// it.
void select_isa(Isa isa);

}  // namespace longtune::ops
