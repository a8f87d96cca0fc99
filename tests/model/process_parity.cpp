// One rank of a check over real processes: over MPI, or with a last word `gpu` on GPUs over NCCL.
// With a word `sharded` before that, frozen weights are cut over the ranks.
//   process_parity parity MODEL lora|full SP DP    rank 0 compares with one rank, one document at a time
//   process_parity policies MODEL lora|full SP DP  every activation policy gives the same bits, near those of one rank
//   process_parity exchange                        hash tensors through the exchange of all ranks
//   process_parity races                           a hundred rounds whose work runs beside their exchanges
// The exit status is the verdict.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cmath>
#include <exception>
#include <string>
#include <vector>

#include "dist/process_group.h"
#include "dist/rendezvous.h"
#include "dist/ulysses_cases.h"
#include "model/layout_runner.h"
#include "model/tiny_models.h"
#include "ops/cuda_library.h"

namespace longhaul {
namespace {

struct Words {
  std::string model;
  testing::Tuning tuning = testing::Tuning::kLora;
  testing::Layout layout{};
  bool sharded = false;
};

Words words_of(const std::vector<std::string>& words) {
  return {.model = words.at(1),
          .tuning = words.at(2) == "full" ? testing::Tuning::kFull : testing::Tuning::kLora,
          .layout = {.sp = std::stoll(words.at(3)), .dp = std::stoll(words.at(4))},
          .sharded = words.size() > 5 && words.at(5) == "sharded"};
}

int check_parity(const dist::ProcessGroup& group, const Words& words, at::Device device) {
  const testing::Rows rows = testing::composite_step(testing::tiny_model(words.model).vocab_size);
  testing::StepOptions options;
  options.device = device;
  options.sharded = words.sharded;
  options.num_layers = words.sharded ? 5 : 0;     // two would stay in the buffers for good
  options.make_exchange = testing::in_two_parts;  // where there is no peer memory: messages
  const testing::StepResult many = testing::run_rank(*group.world, words.model, words.tuning,
                                                     words.layout, testing::flatten(rows), options);
  if (group.world->rank() != 0) {
    return 0;
  }
  testing::StepOptions reference;
  reference.num_layers = options.num_layers;
  const testing::StepResult one = testing::run_step(
      words.model, words.tuning, {}, testing::one_document_at_a_time(rows), reference);
  const std::string faults = testing::compare_gradients(many.gradients, one.gradients, 1e-5);
  const bool loss_is_right = std::abs(many.loss_sum - one.loss_sum) <= 1e-6 * one.loss_sum;
  fmt::print("{} ranks: loss {} against {}\n{}", group.world->size(), many.loss_sum, one.loss_sum,
             faults);
  return faults.empty() && loss_is_right && many.targets == one.targets ? 0 : 1;
}

int check_policies(const dist::ProcessGroup& group, const Words& words, at::Device device) {
  const auto rows =
      testing::flatten(testing::composite_step(testing::tiny_model(words.model).vocab_size));
  testing::StepOptions options;
  options.device = device;
  options.dtype = device.is_cpu() ? at::kFloat : at::kBFloat16;
  const bool lora = words.tuning == testing::Tuning::kLora;
  options.slabs = !device.is_cpu() && lora;
  options.lora_dropout = lora ? 0.3 : 0.0;
  const auto run = [&] {
    return testing::run_rank(*group.world, words.model, words.tuning, words.layout, rows, options);
  };
  options.num_layers = words.sharded ? 5 : 0;
  options.make_exchange = testing::in_two_parts;
  // Whole weights give the bits that every policy is compared with.
  const testing::StepResult keep = run();
  int faults = 0;
  for (const auto preset : {config::ActivationPreset::kB, config::ActivationPreset::kC,
                            config::ActivationPreset::kD, config::ActivationPreset::kD2}) {
    options.policy.preset = preset;
    options.sharded = words.sharded;
    const testing::StepResult other = run();
    faults += other.loss_sum == keep.loss_sum ? 0 : 1;
    for (const auto& [name, gradient] : keep.gradients) {
      faults += gradient.equal(other.gradients.at(name)) ? 0 : 1;
    }
  }
  fmt::print("{} differences between policies\n", faults);
  if (group.world->rank() != 0) {
    return faults == 0 ? 0 : 1;
  }
  testing::StepOptions reference;  // one rank of the CPU in float32
  reference.num_layers = options.num_layers;
  reference.lora_dropout = options.lora_dropout;
  const testing::StepResult one = testing::run_step(words.model, words.tuning, {}, rows, reference);
  const std::string far = testing::compare_gradients(keep.gradients, one.gradients, 0.1);
  const bool loss_is_near = std::abs(keep.loss_sum - one.loss_sum) <= 1e-2 * one.loss_sum;
  fmt::print("loss {} against {}\n{}", keep.loss_sum, one.loss_sum, far);
  return faults == 0 && far.empty() && loss_is_near ? 0 : 1;
}

int check_exchange(dist::Communicator& comm, at::Device device) {
  int faults = 0;
  int cases = 0;
  for (const dist_test::Layout& layout : dist_test::kLayouts) {
    for (const std::int64_t length : dist_test::row_lengths(comm.size())) {
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
        const dist_test::Bench bench{
            .layout = layout,
            .heads = config::split_heads(layout.num_q, layout.num_kv, comm.size()),
            .tokens = config::split_tokens(length, comm.size()),
            .rank = comm.rank(),
            .type = type,
            .device = device};
        faults += dist_test::forward_is_exact(comm, bench) ? 0 : 1;
        faults += dist_test::backward_is_exact(comm, bench) ? 0 : 1;
        faults += dist_test::rotation_is_exact(comm, bench, bench.my_tokens()) ? 0 : 1;
        // Where processes cannot write into one another's memory these are messages, too.
        faults += dist_test::forward_is_exact<dist_test::ThroughPeers>(comm, bench) ? 0 : 1;
        faults += dist_test::backward_is_exact<dist_test::ThroughPeers>(comm, bench) ? 0 : 1;
        faults += dist_test::forward_is_exact<dist_test::InParts<2>>(comm, bench) ? 0 : 1;
        faults += dist_test::backward_is_exact<dist_test::InParts<3>>(comm, bench) ? 0 : 1;
        cases += 7;
      }
    }
  }
  fmt::print("rank {}: {} of {} exchanges are wrong\n", comm.rank(), faults, cases);
  return faults == 0 && comm.counters().num_exchanges > 0 ? 0 : 1;
}

/// Rounds of all four exchanges, with products beside them. Values differ from round to round, so that what is read too
/// early, or overwritten too soon, is wrong; the host runs ahead of the GPU and looks once, at the end.
class Races {
 public:
  Races(dist::Communicator& comm, at::Device device)
      : bench_{.layout = {.num_q = 28, .num_kv = 4},
               .heads = config::split_heads(28, 4, comm.size()),
               .tokens = config::split_tokens(8195, comm.size()),
               .rank = comm.rank(),
               .type = at::kFloat,
               .device = device,
               .head_dim = 8},
        exchange_(comm, bench_.heads, bench_.head_dim) {
    exchange_.set_row(bench_.tokens);
    gathered_ = exchange_.gather_tokens(o_.flatten(1).narrow(1, 0, 16));
  }

  void round(int number) {
    const auto busy = [&] {
      for (int i = 0; i < number % 5; ++i) {
        at::matmul(load_, load_);
      }
    };
    const auto make = [&](const at::Tensor& x, dist::LocalRows rows) {
      busy();
      return x.narrow(0, rows.begin, rows.size()) + number;
    };
    const auto compare = [&](const dist::Qkv& got, const dist::Qkv& want) {
      wrong_ += got.q.ne(want.q + number).sum() + got.k.ne(want.k + number).sum() +
                got.v.ne(want.v + number).sum();
    };
    const auto make_qkv = [&](dist::LocalRows rows) {
      return dist::Qkv{
          .q = make(mine_.q, rows), .k = make(mine_.k, rows), .v = make(mine_.v, rows)};
    };
    compare(exchange_.seq_to_head_qkv(make_qkv, o_, {}, {}), head_);
    const at::Tensor out = at::empty_like(o_);
    exchange_.head_to_seq(o_head_ + number, out, [&](dist::LocalRows rows) {
      busy();
      const auto part = [&](const at::Tensor& x) { return x.narrow(0, rows.begin, rows.size()); };
      wrong_ += part(out).ne(part(o_) + number).sum();
    });
    dist::AlsoGathered gathered{.mine = o_.flatten(1).narrow(1, 0, 16) + number};
    const at::Tensor d_o = exchange_.head_to_seq_backward(
        [&](dist::LocalRows rows) { return make(o_, rows); }, o_, busy, gathered);
    wrong_ += d_o.ne(o_head_ + number).sum() + gathered.all.ne(gathered_ + number).sum();
    compare(
        exchange_.seq_to_head_qkv_backward(
            {.q = head_.q + number, .k = head_.k + number, .v = head_.v + number}, {}, {}, busy),
        mine_);
  }
  [[nodiscard]] std::int64_t wrong() const { return wrong_.item<std::int64_t>(); }

 private:
  dist_test::Bench bench_;
  dist_test::InParts<2> exchange_;
  dist::Qkv mine_{.q = bench_.local(dist_test::kQ),
                  .k = bench_.local(dist_test::kK),
                  .v = bench_.local(dist_test::kV)};
  dist::Qkv head_{.q = bench_.head_local(dist_test::kQ),
                  .k = bench_.head_local(dist_test::kK),
                  .v = bench_.head_local(dist_test::kV)};
  at::Tensor o_ = bench_.local(dist_test::kO);
  at::Tensor o_head_ = bench_.head_local(dist_test::kO);
  at::Tensor gathered_;  // of all ranks: 16 columns of o_
  at::Tensor load_ = at::ones({512, 512}, o_.options());
  at::Tensor wrong_ = at::zeros({}, o_.options().dtype(at::kLong));
};

int check_races(dist::Communicator& comm, at::Device device) {
  constexpr int kRounds = 100;
  Races races(comm, device);
  for (int round = 0; round < kRounds; ++round) {
    races.round(round);
  }
  const std::int64_t wrong = races.wrong();
  fmt::print("rank {}: {} values are wrong after {} rounds\n", comm.rank(), wrong, kRounds);
  return wrong == 0 ? 0 : 1;
}

int run(std::vector<std::string> words) {
  at::set_num_threads(1);
  const config::LaunchInfo launch = dist::read_rank_environment(dist::process_environment()).info;
  at::Device device = at::kCPU;
  if (words.back() == "gpu") {
    words.pop_back();
    ops::load_cuda_backend(static_cast<int>(launch.local_rank));
    device = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(launch.local_rank));
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  }
  const bool is_races = words.at(0) == "races";
  const bool is_exchange = words.at(0) == "exchange" || is_races;
  const testing::Layout layout =
      is_exchange ? testing::Layout{.sp = launch.ranks} : words_of(words).layout;
  if (launch.ranks != layout.sp * layout.dp) {
    fmt::print(stderr, "{} ranks instead of {}\n", launch.ranks, layout.sp * layout.dp);
    return 1;
  }
  const dist::ProcessGroup group = dist::make_process_group(
      dist::open_world(launch, nullptr, device), {.dp = layout.dp, .sp = layout.sp});
  if (is_races) {
    return check_races(*group.world, device);
  }
  if (is_exchange) {
    return check_exchange(*group.world, device);
  }
  return words.at(0) == "parity" ? check_parity(group, words_of(words), device)
                                 : check_policies(group, words_of(words), device);
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
