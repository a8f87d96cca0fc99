// One rank of a parity check over real MPI processes: mpirun -n RANKS mpi_parity MODEL lora|full SP
// DP. Rank 0 compares with one rank, one document at a time, and its exit status is the verdict.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cmath>
#include <exception>
#include <string>
#include <vector>

#include "dist/process_group.h"
#include "dist/rendezvous.h"
#include "model/layout_runner.h"
#include "model/tiny_models.h"

namespace longhaul {
namespace {

int run(const std::vector<std::string>& words) {
  at::set_num_threads(1);
  const std::string& model = words[0];
  const auto tuning = words[1] == "full" ? testing::Tuning::kFull : testing::Tuning::kLora;
  const testing::Layout layout{.sp = std::stoll(words[2]), .dp = std::stoll(words[3])};
  const config::LaunchInfo launch = dist::read_rank_environment(dist::process_environment()).info;
  const dist::ProcessGroup group =
      dist::make_process_group(launch, {.dp = layout.dp, .sp = layout.sp});
  const testing::Rows rows = testing::composite_step(testing::tiny_model(model).vocab_size);
  const testing::StepResult many =
      testing::run_rank(*group.world, model, tuning, layout, testing::flatten(rows));
  if (group.world->rank() != 0) {
    return 0;
  }
  const testing::StepResult one =
      testing::run_step(model, tuning, {}, testing::one_document_at_a_time(rows));
  const std::string faults = testing::compare_gradients(many.gradients, one.gradients, 1e-5);
  const bool loss_is_right = std::abs(many.loss_sum - one.loss_sum) <= 1e-6 * one.loss_sum;
  fmt::print("{} ranks: loss {} against {}\n{}", group.world->size(), many.loss_sum, one.loss_sum,
             faults);
  return faults.empty() && loss_is_right && many.targets == one.targets &&
                 group.world->size() == layout.sp * layout.dp
             ? 0
             : 1;
}

}  // namespace
}  // namespace longhaul

int main(int argc, char** argv) {
  try {
    return longhaul::run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
