#include "train/out_of_memory.h"

#include <fmt/format.h>

#include "plan/run_plan.h"

namespace longhaul::train {

base::Problem out_of_memory(const std::string& step, const plan::MemoryPlan& plan,
                            const MemoryFound& found) {
  const std::int64_t planned = plan.bytes.total();
  std::string hint;
  if (planned > found.usable_bytes) {
    hint =
        "Let --activation_policy auto choose, shorten the rows (--max_length), or cut them over "
        "more ranks "
        "(--ulysses_seq_len); longhaul plan shows what fits";
  } else {
    hint = fmt::format(
        "Less is free than the plan took for granted: leave room with --gpu_memory_limit {:.0f}GB",
        0.9 * static_cast<double>(found.usable_bytes) * 1e-9);
  }
  return {
      .where = step,
      .what = fmt::format(
          "the device's memory has run out: {} were planned per rank ({}), tensors hold {} of {} "
          "that they may take",
          plan::gigabytes(planned), plan::choice_text(plan), plan::gigabytes(found.tensor_bytes),
          plan::gigabytes(found.usable_bytes)),
      .hint = hint};
}

}  // namespace longhaul::train
