// `longhaul infer`: a chat in a terminal, or answers to the rows of --val_dataset.
#include <ATen/Parallel.h>
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cstdio>
#include <ctime>
#include <filesystem>

#include "base/log.h"
#include "base/path_state.h"
#include "cli/chat.h"
#include "cli/command.h"
#include "cli/data_environment.h"
#include "cli/interrupt.h"
#include "cli/model_source.h"
#include "cli/print.h"
#include "cli/versions.h"
#include "data/dataset_spec.h"
#include "infer/batch.h"
#include "infer/generator.h"
#include "ops/backend.h"
#include "ops/cuda_library.h"
#include "text/chat_template.h"
#include "train/run_setup.h"

namespace longhaul::cli {
namespace {

namespace fs = std::filesystem;

/// Everything that answers one question after the other.
struct Answering {
  infer::SamplingOptions sampling;
  infer::GenerationLimits limits;
  infer::PromptPolicy policy;
};

Answering make_answering(const ModelSource& source) {
  const config::Config& config = source.config;
  Answering answering;
  answering.sampling = {.temperature = config.infer.temperature,
                        .top_p = config.infer.top_p,
                        .seed = static_cast<std::uint64_t>(config.train.seed)};
  answering.limits = {.max_new_tokens = config.infer.max_new_tokens,
                      .max_tokens = source.max_tokens};
  answering.policy = {
      .max_length = source.max_length, .max_tokens = source.max_tokens, .truncation = std::nullopt};
  if (config.given.count("truncation_strategy") != 0) {
    answering.policy.truncation = config.data.truncation_strategy;
  }
  return answering;
}

/// Cutting the end of a prompt off would cut off the question.
void check_truncation(const config::Config& config) {
  using config::TruncationStrategy;
  const TruncationStrategy strategy = config.data.truncation_strategy;
  if (strategy == TruncationStrategy::kRight || strategy == TruncationStrategy::kSplit) {
    throw base::UserError({.where = "--truncation_strategy",
                           .what = "would cut off the question at the end of a prompt",
                           .got = config.given.at("truncation_strategy"),
                           .expected = "delete or left"});
  }
}

fs::path result_path(const ModelSource& source) {
  const config::Config& config = source.config;
  if (!config.infer.result_path.empty()) {
    return config.infer.result_path;
  }
  fs::path home = base::without_slash(source.checkpoint);
  if (home.empty()) {
    const fs::path model =
        base::without_slash((base::current_folder() / source.folder()).lexically_normal());
    home = fs::path("output") / model.filename();
  }
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  return home / "infer_result" / fmt::format("{:%Y%m%d-%H%M%S}.jsonl", local);
}

std::vector<std::string> start_lines(const ModelSource& source, const train::TextSetup& text,
                                     at::Device device) {
  const config::Config& config = source.config;
  std::vector<std::string> lines;
  lines.push_back(fmt::format("model: {} ({}, {} layers, {})", config.model.model,
                              source.model.model_type, source.model.num_layers,
                              base::dtype_name(*config.model.torch_dtype)));
  if (source.adapter) {
    lines.push_back("adapter: " + source.adapter->folder.string());
    if (!source.note.empty()) {
      lines.push_back(source.note);
    }
  }
  const bool saved = config.given.count("template") == 0 && !config.model.template_name.empty();
  const std::string chosen_by = saved ? "from args.json" : text.chosen_by;
  lines.push_back(fmt::format("template: {}{}", text.template_name,
                              chosen_by.empty() ? "" : fmt::format(" ({})", chosen_by)));
  const std::string torch = "libtorch " + torch_version();
  lines.push_back(device.is_cpu() ? fmt::format("attention: {} fused CPU kernel; {} threads", torch,
                                                at::get_num_threads())
                                  : fmt::format("attention: {} on {}, {}", torch, device.str(),
                                                ops::backend_of(device).identity().name));
  return lines;
}

infer::Batch load_batch(const config::Config& config) {
  const data::DatasetPlaces places = data_environment(config).places;
  return infer::read_batch(data::resolve_datasets(config.data.val_dataset, "--val_dataset", places,
                                                  config.data.columns, /*pretraining=*/false),
                           config.data.strict);
}

/// Totals of a batch for the last line.
struct BatchTotals {
  std::int64_t rows = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t tokens = 0;
  double prompt_s = 0;
  double answer_s = 0;

  void add(const infer::Answer& answer) {
    ++rows;
    prompt_tokens += answer.prompt_tokens;
    prompt_s += answer.prompt_s;
    // The first token comes out of the prompt's pass.
    tokens += std::max<std::int64_t>(0, static_cast<std::int64_t>(answer.ids.size()) - 1);
    answer_s += answer.answer_s;
  }
  static double rate(std::int64_t count, double seconds) {
    return seconds > 0 ? static_cast<double>(count) / seconds : 0;
  }
};

void print(const std::string& text) { print_text(stdout, text); }

const char* reason_text(infer::StopReason reason) {
  switch (reason) {
    case infer::StopReason::kNewTokens:
      return ", stopped after --max_new_tokens";
    case infer::StopReason::kModelLength:
      return ", stopped: the model's positions are used up";
    case infer::StopReason::kInterrupted:
      return ", interrupted";
    default:
      return "";
  }
}

int run_batch(const infer::Prompts& prompts, const infer::PromptEncoder& encoder,
              const infer::StopRules& stop, const Answering& answering, ModelSource& source,
              infer::LoadedModel& model) {
  const fs::path path = result_path(source);
  const bool replaces = base::path_exists(path, "--result_path");
  const infer::ResultFile results(path);
  print(fmt::format("results: {}{}\n", path.string(), replaces ? " (replacing the old file)" : ""));
  const bool stream = source.config.infer.stream.value_or(false);
  infer::GenerationHooks hooks;
  hooks.interrupted = [] { return InterruptGuard::pending() != 0; };
  if (stream) {
    hooks.on_text = [](std::string_view text) { print(std::string(text)); };
  }
  BatchTotals totals;
  for (const infer::Prompt& prompt : prompts.prompts) {
    // A fresh cache per row: an answer does not depend on the rows before it.
    infer::CachedDecoder decoder(source.model, model.store());
    if (stream) {
      print(fmt::format("\n[{}] ", prompt.row->place));
    }
    const infer::Answer answer =
        infer::generate(decoder, encoder.tokenizer(), prompt.ids, stop, answering.sampling,
                        answering.limits, prompt.row_number, hooks);
    if (answer.reason == infer::StopReason::kInterrupted) {
      break;  // half an answer is no result
    }
    results.append(infer::result_line(encoder.complete(prompt.row->conversation), answer.text,
                                      prompt.row->label));
    totals.add(answer);
    print(fmt::format("{}row {}/{}: {} prompt tokens, {} answer tokens{}\n", stream ? "\n" : "",
                      totals.rows, prompts.prompts.size(), answer.prompt_tokens, answer.ids.size(),
                      reason_text(answer.reason)));
    if (InterruptGuard::pending() != 0) {
      break;
    }
  }
  print(fmt::format("{} answers in {} (prompts {:.1f} tokens/s, answers {:.1f} tokens/s)\n",
                    totals.rows, path.string(),
                    BatchTotals::rate(totals.prompt_tokens, totals.prompt_s),
                    BatchTotals::rate(totals.tokens, totals.answer_s)));
  const int signal = InterruptGuard::pending();
  return signal == 0 ? 0 : 128 + signal;
}

}  // namespace

int run_infer(const config::Config& config) {
  check_truncation(config);
  if (!config.infer.result_path.empty()) {
    base::path_exists(config.infer.result_path, "--result_path");  // before a model is loaded
  }
  ModelSource source = find_model(config);
  const train::TextSetup text = train::make_text_setup(source.config, source.model);
  const text::ChatTemplate* const chat_template =
      source.config.model.use_chat_template ? &text::find_template(text.template_name) : nullptr;
  infer::PromptEncoder encoder(text.encoder->tokenizer(), chat_template,
                               text.encoder->options().system);
  const infer::StopRules stop =
      infer::make_stop_rules(encoder.tokenizer(), encoder.stop_words(), source.model.eos_token_ids);
  const Answering answering = make_answering(source);
  const bool is_batch = !config.data.val_dataset.empty();
  infer::Batch batch;
  infer::Prompts prompts;
  if (is_batch) {
    batch = load_batch(source.config);
    prompts = infer::encode_batch(batch, encoder, answering.policy);
  }
  const at::Device device = ops::open_device(source.config);
  infer::LoadedModel model(source.folder(), source.model, source.adapter,
                           *source.config.model.torch_dtype, device);
  for (const std::string& line : start_lines(source, text, device)) {
    print(line + "\n");
  }
  const InterruptGuard guard;
  if (is_batch) {
    for (const std::string& line :
         data::report_lines("--val_dataset", batch.report, source.max_length)) {
      print(line + "\n");
    }
    if (prompts.left_out + prompts.shortened > 0) {
      print(fmt::format("prompts longer than {} tokens: {} left out, {} shortened to their end\n",
                        source.max_length, prompts.left_out, prompts.shortened));
    }
    return run_batch(prompts, encoder, stop, answering, source, model);
  }
  infer::CachedDecoder decoder(source.model, model.store());
  return run_chat({.decoder = decoder,
                   .encoder = encoder,
                   .stop = stop,
                   .sampling = answering.sampling,
                   .limits = answering.limits,
                   .policy = answering.policy,
                   .stream = config.infer.stream.value_or(true)});
}

}  // namespace longhaul::cli
