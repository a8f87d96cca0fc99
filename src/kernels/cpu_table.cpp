// Chooses, once, among the builds of the CPU kernels for different instruction sets.
#include "kernels/kernel_table.h"

namespace longhaul::kernels {

#if defined(__x86_64__)
namespace isa_v4 {
KernelTable make_table();
}
namespace isa_v3 {
KernelTable make_table();
}
#endif
namespace isa_base {
KernelTable make_table();
}

namespace {

struct Choice {
  KernelTable table;
  const char* name = "";
};

Choice choose() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool has_v3 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  const bool has_v4 =
      has_v3 && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512bw") != 0;
  if (has_v4) {
    return {isa_v4::make_table(), "x86-64-v4"};
  }
  if (has_v3) {
    return {isa_v3::make_table(), "x86-64-v3"};
  }
#endif
  return {isa_base::make_table(), "baseline"};
}

const Choice& choice() {
  static const Choice kChosen = choose();
  return kChosen;
}

}  // namespace

const KernelTable& cpu_kernels() { return choice().table; }
const char* cpu_kernels_isa() { return choice().name; }

}  // namespace longhaul::kernels
