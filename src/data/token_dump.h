// Tokens as JSON lines for `longhaul data`: `--dump_tokens` writes every sample of a set,
// `--tokenize` turns each line of a file into its ids.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/token_store.h"

namespace longhaul::data {

/// `[1, 2, 3]`
std::string ids_json(std::span<const std::int32_t> ids);

/// `{"input_ids": […], "labels": […]}` of a sample, labels not shifted.
std::string sample_json(const text::TokenizedSample& sample);

/// One line per sample in the order of the set. A regular file appears whole or not at all; a pipe
/// or device is written as it is. SystemError when it cannot be written.
void dump_tokens(const TokenStore& store, const std::filesystem::path& file);

/// Calls `emit` with the ids of each line as JSON. Lines end at '\n' only, so a '\r' is part of its
/// line; an empty line gives `[]`; nothing follows a final '\n'. UserError `where:line` for a line
/// that is not UTF-8.
void tokenize_lines(std::string_view text, const std::string& where,
                    const std::function<std::vector<std::int32_t>(std::string_view)>& encode,
                    const std::function<void(const std::string& json)>& emit);

}  // namespace longhaul::data
