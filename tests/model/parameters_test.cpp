#include "model/parameters.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/tiny_models.h"

namespace longhaul {
namespace {

using model::Parameters;

const std::string kLayer = "model.layers.1.";

Parameters make(const std::string& name, const config::TuningSpec& spec, at::ScalarType type) {
  return {config::build_registry(testing::tiny_model(name), spec), type};
}

std::vector<std::int64_t> numbers(const Parameters& parameters,
                                  const std::vector<std::string>& names) {
  std::vector<std::int64_t> found;
  for (const std::string& name : names) {
    found.push_back(parameters.find(kLayer + name));
    EXPECT_GE(found.back(), 0) << name;
  }
  return found;
}

TEST(Parameters, FuseTheMembersThatShareAnInput) {
  for (const bool full : {false, true}) {
    const Parameters parameters =
        make("qwen2",
             testing::tiny_tuning(testing::tiny_model("qwen2"),
                                  full ? testing::Tuning::kFull : testing::Tuning::kLora),
             at::kFloat);
    const std::vector<std::string> qkv = {"self_attn.q_proj", "self_attn.k_proj",
                                          "self_attn.v_proj"};
    for (const auto& [part, rows, columns] :
         {std::tuple{".weight", 48, 24}, {".bias", 48, 0}, {".lora_A.weight", 12, 24}}) {
      if (full && std::string(part) == ".lora_A.weight") {
        continue;
      }
      std::vector<std::int64_t> members;
      for (const std::string& module : qkv) {
        members.push_back(numbers(parameters, {module + part}).front());
      }
      const at::Tensor fused = parameters.fused(members);
      EXPECT_EQ(fused.size(0), rows) << part;
      EXPECT_EQ(fused.dim(), columns == 0 ? 1 : 2) << part;
      // The members are views of the fused tensor.
      std::int64_t row = 0;
      for (const std::int64_t member : members) {
        parameters.compute(member).fill_(static_cast<double>(member));
        const std::int64_t size = parameters.compute(member).size(0);
        EXPECT_TRUE(fused.narrow(0, row, size).eq(static_cast<double>(member)).all().item<bool>());
        row += size;
      }
      EXPECT_EQ(row, rows);
    }
    EXPECT_EQ(parameters.fused(numbers(parameters, {"mlp.gate_proj.weight", "mlp.up_proj.weight"}))
                  .sizes(),
              (std::vector<std::int64_t>{72, 24}));
  }
}

TEST(Parameters, RefuseToFuseWhatDoesNotLieTogether) {
  const Parameters parameters = make("llama", {.full = true}, at::kFloat);
  EXPECT_THROW((void)parameters.fused(
                   numbers(parameters, {"self_attn.q_proj.weight", "self_attn.o_proj.weight"})),
               base::InternalError);
}

TEST(Parameters, TrainInPlaceInFp32WhenAWholeGroupTrains) {
  const Parameters parameters = make("qwen2", {.full = true}, at::kFloat);
  for (const model::FlatSegment& segment : parameters.segments()) {
    EXPECT_TRUE(parameters.aliases_master(segment.param));
    EXPECT_EQ(parameters.compute(segment.param).data_ptr(),
              parameters.master(segment.param).data_ptr());
  }
}

TEST(Parameters, KeepASeparateCopyWhenOnlyPartOfAGroupTrains) {
  const Parameters parameters = make("qwen2",
                                     {.full = true,
                                      .freeze_prefixes = {"model", "lm_head"},
                                      .trainable_prefixes = {kLayer + "self_attn.q_proj"}},
                                     at::kFloat);
  const auto group = numbers(parameters, {"self_attn.q_proj.weight", "self_attn.k_proj.weight",
                                          "self_attn.v_proj.weight"});
  EXPECT_FALSE(parameters.aliases_master(group[0]));
  EXPECT_EQ(parameters.fused(group).size(0), 48);
  EXPECT_EQ(parameters.segments().size(), 2U);  // weight and bias of q
  EXPECT_THROW((void)parameters.master(group[1]), base::InternalError);
  EXPECT_THROW((void)parameters.gradient(group[1]), base::InternalError);
}

TEST(Parameters, RefreshWritesMastersIntoTheirCopies) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    Parameters parameters = make(
        "llama", testing::tiny_tuning(testing::tiny_model("llama"), testing::Tuning::kLora), type);
    testing::randomise(parameters, 3);
    const std::int64_t frozen = numbers(parameters, {"mlp.down_proj.weight"}).front();
    const at::Tensor before = parameters.compute(frozen).clone();
    at::manual_seed(1);
    parameters.flat_masters().copy_(at::randn({parameters.flat_masters().numel()}));
    parameters.refresh_compute();
    for (const model::FlatSegment& segment : parameters.segments()) {
      EXPECT_EQ(parameters.compute(segment.param).scalar_type(), type);
      EXPECT_TRUE(
          parameters.compute(segment.param).equal(parameters.master(segment.param).to(type)));
    }
    EXPECT_TRUE(parameters.compute(frozen).equal(before));
  }
}

TEST(Parameters, RoundTheScaledBOfASlabOnceHoweverItIsWritten) {
  const config::ModelConfig model = testing::tiny_model("qwen2");
  const auto registry =
      config::build_registry(model, testing::tiny_tuning(model, testing::Tuning::kLora));
  for (const auto& [type, scale] :
       {std::pair{at::kBFloat16, 2.0}, {at::kBFloat16, 2.0 / 3.0}, {at::kFloat, 2.0 / 3.0}}) {
    for (const bool in_part : {false, true}) {
      Parameters parameters(
          registry, type, at::kCPU, scale,
          in_part ? std::optional(model::RankShare{.rank = 1, .ranks = 2}) : std::nullopt);
      testing::randomise(parameters, 4);
      at::manual_seed(5);
      const at::Tensor values = at::randn({parameters.flat_masters().numel()});
      parameters.flat_masters().copy_(values);
      parameters.refresh_compute();
      std::vector<at::Tensor> refreshed;
      for (const model::FlatSegment& segment : parameters.segments()) {
        const bool scaled = parameters.registry()[static_cast<std::size_t>(segment.param)].kind ==
                            config::ParamKind::kLoraB;
        const at::Tensor product = parameters.master(segment.param) * (scaled ? scale : 1.0);
        refreshed.push_back(parameters.compute(segment.param).clone());
        EXPECT_TRUE(refreshed.back().equal(product.to(type)));
      }
      for (std::size_t i = 0; i < refreshed.size(); ++i) {
        const std::int64_t param = parameters.segments()[i].param;
        const at::Tensor master = parameters.master(param).clone();
        parameters.compute(param).zero_();
        parameters.assign(param, master);
        EXPECT_TRUE(parameters.compute(param).equal(refreshed[i]));
      }
    }
  }
}

TEST(Parameters, AssignKeepsTheMasterExactAndRoundsTheCopy) {
  Parameters parameters = make("llama", {.full = true}, at::kBFloat16);
  const std::int64_t param = numbers(parameters, {"mlp.up_proj.weight"}).front();
  at::manual_seed(2);
  const at::Tensor values = at::randn({36, 24});
  parameters.assign(param, values);
  EXPECT_TRUE(parameters.master(param).equal(values));
  EXPECT_TRUE(parameters.compute(param).equal(values.to(at::kBFloat16)));
}

TEST(Parameters, CountATiedMatrixOnce) {
  for (const bool tied : {false, true}) {
    const Parameters parameters = make(tied ? "qwen2_tied" : "qwen2", {.full = true}, at::kFloat);
    const std::int64_t embedding = parameters.find("model.embed_tokens.weight");
    const std::int64_t head = parameters.find("lm_head.weight");
    const bool shared =
        parameters.compute(head).data_ptr() == parameters.compute(embedding).data_ptr() &&
        parameters.master(head).data_ptr() == parameters.master(embedding).data_ptr() &&
        parameters.gradient(head).data_ptr() == parameters.gradient(embedding).data_ptr();
    EXPECT_EQ(shared, tied);
    std::int64_t elements = 0;
    std::set<std::int64_t> seen;
    for (const model::FlatSegment& segment : parameters.segments()) {
      elements += segment.count;
      EXPECT_TRUE(seen.insert(segment.param).second);
    }
    EXPECT_EQ(elements, parameters.total_elements());
    EXPECT_EQ(elements, parameters.trainable_elements());
    EXPECT_EQ(seen.contains(head), !tied);
  }
}

TEST(Parameters, SegmentsLieApartAndCarryTheirDecay) {
  const Parameters parameters = make("qwen2", {.full = true}, at::kFloat);
  std::int64_t end = 0;
  for (const model::FlatSegment& segment : parameters.segments()) {
    const config::ParamSpec& spec = parameters.registry()[static_cast<std::size_t>(segment.param)];
    EXPECT_GE(segment.offset, end) << spec.name;
    EXPECT_EQ(segment.count, spec.num_elements());
    const bool vector =
        spec.kind == config::ParamKind::kBias || spec.kind == config::ParamKind::kNorm;
    EXPECT_EQ(segment.decay, !vector) << spec.name;
    EXPECT_EQ(parameters.master(segment.param).data_ptr<float>(),
              parameters.flat_masters().data_ptr<float>() + segment.offset);
    EXPECT_EQ(parameters.gradient(segment.param).data_ptr<float>(),
              parameters.flat_gradients().data_ptr<float>() + segment.offset);
    end = segment.offset + segment.count;
  }
  EXPECT_LE(end, parameters.flat_masters().numel());
  // What lies between the segments stays zero: it takes part in the gradient norm.
  EXPECT_TRUE(parameters.flat_gradients().eq(0).all().item<bool>());
}

TEST(Parameters, RanksTogetherHoldTheRowsOfEveryShardedGroup) {
  const config::ModelConfig model = testing::tiny_model("smol");
  const auto registry =
      config::build_registry(model, testing::tiny_tuning(model, testing::Tuning::kLora));
  for (const std::optional<double> slab_scale : {std::optional<double>(), std::optional(2.0)}) {
    Parameters whole(registry, at::kBFloat16, at::kCPU, slab_scale);
    testing::randomise(whole, 1);
    for (const int ranks : {1, 2, 3, 5}) {
      std::vector<at::Tensor> rows;
      for (int rank = 0; rank < ranks; ++rank) {
        Parameters part(registry, at::kBFloat16, at::kCPU, slab_scale,
                        model::RankShare{rank, ranks});
        testing::randomise(part, 1);
        const std::int64_t q = numbers(part, {"self_attn.q_proj.weight"}).front();
        const model::Shard* shard = part.shard(q);
        ASSERT_NE(shard, nullptr);
        EXPECT_EQ(part.slab(q), nullptr);
        EXPECT_EQ(shard->rows.size(0), shard->ranges[static_cast<std::size_t>(rank)].size());
        EXPECT_LE(shard->rows.size(0), (shard->outputs + ranks - 1) / ranks);
        EXPECT_EQ(shard->room, slab_scale ? 16 : 0);
        rows.push_back(shard->rows);
        // The adapters are whole, and as the slab has them.
        for (const std::int64_t adapter :
             numbers(part, {"self_attn.k_proj.lora_A.weight", "self_attn.k_proj.lora_B.weight"})) {
          EXPECT_TRUE(part.compute(adapter).equal(whole.compute(adapter)));
        }
      }
      const at::Tensor all = at::cat(rows);
      std::vector<at::Tensor> want;
      for (const std::int64_t param : numbers(
               whole,
               {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"})) {
        want.push_back(whole.compute(param));
      }
      EXPECT_TRUE(all.narrow(1, 0, model.hidden_size).equal(at::cat(want)));
      const std::int64_t room = all.size(1) - model.hidden_size;
      EXPECT_TRUE(all.narrow(1, model.hidden_size, room).eq(0).all().item<bool>());
    }
  }
}

TEST(Parameters, RefuseToShowAWeightThatIsHeldInPart) {
  const config::ModelConfig model = testing::tiny_model("smol");
  const Parameters part(
      config::build_registry(model, testing::tiny_tuning(model, testing::Tuning::kLora)),
      at::kFloat, at::kCPU, std::nullopt, model::RankShare{1, 2});
  const std::int64_t q = numbers(part, {"self_attn.q_proj.weight"}).front();
  EXPECT_THROW(static_cast<void>(part.compute(q)), base::InternalError);
  EXPECT_THROW(static_cast<void>(part.fused({q})), base::InternalError);
  EXPECT_NO_THROW(static_cast<void>(part.compute(part.find("model.embed_tokens.weight"))));
}

TEST(Parameters, CountLoraMatricesAsTrainedOnly) {
  const config::ModelConfig model = testing::tiny_model("llama");
  const Parameters parameters =
      make("llama", testing::tiny_tuning(model, testing::Tuning::kLora), at::kFloat);
  // Per layer: q, k, v, o between 24 and 24, gate and up 24 → 36, down 36 → 24; rank 4.
  EXPECT_EQ(parameters.trainable_elements(), 2 * 4 * (4 * (24 + 24) + 3 * (24 + 36)));
  EXPECT_EQ(parameters.find("no.such.parameter"), -1);
}

}  // namespace
}  // namespace longhaul
