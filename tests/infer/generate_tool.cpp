// For the oracle scripts: `generate_tool MODEL ADAPTER|- MAX_NEW_TOKENS` reads prompts, one JSON
// list of token ids a line, and prints the greedy answers the same way. Speeds go to standard
// error.
#include <fmt/format.h>

#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "infer/generator.h"
#include "infer/loaded_model.h"
#include "train/adapter_config.h"

namespace longhaul {
namespace {

std::optional<infer::AdapterSource> adapter_in(const std::string& folder,
                                               const config::ModelConfig& model) {
  if (folder == "-") {
    return std::nullopt;
  }
  const train::AdapterConfig adapter = train::read_adapter_config(folder);
  const std::vector<std::string> targets = adapter.target_regex
                                               ? std::vector<std::string>{*adapter.target_regex}
                                               : adapter.target_modules;
  return infer::AdapterSource{
      folder,
      {.rank = adapter.rank,
       .alpha = adapter.alpha,
       .dropout = 0,
       .rslora = adapter.use_rslora,
       .target_modules = config::resolve_target_modules(model, targets, adapter.modules_to_save),
       .modules_to_save = adapter.modules_to_save}};
}

void run(const std::vector<std::string>& words) {
  const config::ModelConfig config = config::read_model_config(words.at(0));
  infer::LoadedModel model(words[0], config, adapter_in(words.at(1), config),
                           base::Dtype::kFloat32);
  const text::Tokenizer tokenizer = text::Tokenizer::load(words[0]);
  const infer::StopRules stop = infer::make_stop_rules(tokenizer, {}, config.eos_token_ids);
  const infer::GenerationLimits limits{.max_new_tokens = std::stoll(words.at(2)),
                                       .max_tokens = config.max_position_embeddings};
  infer::CachedDecoder decoder(config, model.store());
  std::string line;
  while (std::getline(std::cin, line)) {
    const auto prompt = base::parse_json(line, "stdin").get<std::vector<std::int32_t>>();
    const infer::Answer answer =
        infer::generate(decoder, tokenizer, prompt, stop, {}, limits, 0, {});
    std::cout << base::Json(answer.ids).dump() << "\n";
    std::cerr << fmt::format("prompt {} tokens in {:.2f} s, then {:.1f} tokens/s\n",
                             answer.prompt_tokens, answer.prompt_s, answer.tokens_per_s());
  }
}

}  // namespace
}  // namespace longhaul

int main(int argc, char** argv) {
  try {
    longhaul::run({argv + 1, argv + argc});
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
