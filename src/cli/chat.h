// The conversation in a terminal of `longhaul infer`.
#pragma once

#include <cstdint>

#include "infer/batch.h"
#include "infer/cached_decoder.h"
#include "infer/generator.h"
#include "infer/prompt_encoder.h"

namespace longhaul::cli {

struct ChatParts {
  infer::CachedDecoder& decoder;
  infer::PromptEncoder& encoder;
  const infer::StopRules& stop;
  infer::SamplingOptions sampling;
  infer::GenerationLimits limits;
  infer::PromptPolicy policy;
  bool stream = true;
};

/// Reads questions from standard input until `exit` or its end; `clear` forgets the conversation,
/// `reset-system` also asks for a new system text. Returns the exit code.
int run_chat(const ChatParts& parts);

}  // namespace longhaul::cli
