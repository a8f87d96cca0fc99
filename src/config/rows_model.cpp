// Options that say which model is loaded and how it computes.
#include "config/option_bind.h"
#include "config/option_rows.h"

namespace longhaul::config {
namespace {

constexpr CommandSet kWithModel = kDataCommands | bit(Command::kInfer) | bit(Command::kExport);
constexpr CommandSet kWithDevice = kTrainCommands | bit(Command::kInfer);
constexpr CommandSet kWithText = kDataCommands | bit(Command::kInfer);

template <auto Member>
OptionSpec model_row(OptionSpec spec) {
  spec.group = OptionGroup::kModel;
  return bind<&Config::model, Member>(std::move(spec));
}

std::vector<OptionSpec> device_rows() {
  return {
      model_row<&ModelOptions::torch_dtype>(
          {.name = "torch_dtype",
           .type = OptionType::kChoice,
           .default_text = "the model's",
           .choices = {"bfloat16", "float32", "float16"},
           .help = "Number type of frozen weights and activations; float16 trains on GPUs only",
           .commands = kWithDevice | bit(Command::kExport) | bit(Command::kBench)}),
      model_row<&ModelOptions::device>(
          {.name = "device",
           .type = OptionType::kChoice,
           .default_text = "auto",
           .choices = {"auto", "cuda", "cpu"},
           .help = "Where the ranks compute; auto takes GPUs where there are any",
           .commands = kWithDevice | bit(Command::kBench)}),
      model_row<&ModelOptions::attn_impl>(
          {.name = "attn_impl",
           .type = OptionType::kChoice,
           .default_text = "auto",
           .choices = {"auto", "cudnn", "flash_attn", "flash_attention_2", "sdpa", "eager"},
           .help = "Attention kernel; auto takes the fastest measured one, flash_attention_2 is "
                   "another name of flash_attn; on the CPU there is sdpa alone",
           .commands = kWithDevice | bit(Command::kBench)}),
      model_row<&ModelOptions::use_flash_attn>(
          {.name = "use_flash_attn",
           .type = OptionType::kBoolean,
           .default_text = "unset",
           .help = "true requires a fused kernel whose memory grows linearly with the row",
           .commands = kWithDevice}),
  };
}

}  // namespace

std::vector<OptionSpec> model_rows() {
  std::vector<OptionSpec> rows = {
      model_row<&ModelOptions::model>(
          {.name = "model",
           .default_text = "required",
           .help = "Folder of a Hugging Face model (config.json, safetensors, "
                   "tokenizer.json)",
           .commands = kWithModel | bit(Command::kBench)}),
      model_row<&ModelOptions::use_hf>({.name = "use_hf",
                                        .type = OptionType::kBoolean,
                                        .state = OptionState::kNotYet,
                                        .default_text = "false",
                                        .off = "false",
                                        .help = "Download models and data sets from a hub",
                                        .commands = kWithModel}),
      model_row<&ModelOptions::max_model_len>(
          {.name = "max_model_len",
           .type = OptionType::kInteger,
           .default_text = "the model's max_position_embeddings",
           .limits = {1, kLargestCount},
           .help = "Longest row the model is used for, in tokens",
           .commands = kWithModel}),
      model_row<&ModelOptions::rope_scaling>(
          {.name = "rope_scaling",
           .state = OptionState::kNotYet,
           .default_text = "as config.json says",
           .help = "Stretch the rotary embedding beyond what config.json says (linear, dynamic, "
                   "yarn or JSON)",
           .commands = kWithModel}),
      model_row<&ModelOptions::template_name>(
          {.name = "template",
           .default_text = "the one that renders like the model's chat_template",
           .help = "Chat template: chatml, qwen, qwen2_5, qwen3, qwen3_nothinking, llama3, smollm2",
           .commands = kWithText}),
      model_row<&ModelOptions::use_chat_template>(
          {.name = "use_chat_template",
           .type = OptionType::kBoolean,
           .default_text = "true (pt: false)",
           .help = "false trains on plain text without any template",
           .commands = kWithText}),
      model_row<&ModelOptions::system>(
          {.name = "system",
           .default_text = "the template's",
           .help = "System message of rows that have none: text or a .txt file",
           .commands = kWithText}),
  };
  for (OptionSpec& spec : device_rows()) {
    rows.push_back(std::move(spec));
  }
  return rows;
}

}  // namespace longhaul::config
