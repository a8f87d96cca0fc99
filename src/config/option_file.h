// Files of options: YAML or JSON, one key per option, `ENV` for environment variables.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace longhaul::config {

/// An option as the user wrote it, before it is looked up.
struct GivenOption {
  std::string name{};
  std::vector<std::string> words{};
  std::string where{};  // `--lora_rank` or `run.yaml:3: lora_rank`
};

/// True for a word that names a file of options by its ending.
bool is_option_file(std::string_view word);

/// Appends the options and environment variables of the file at `path`; faults carry file:line.
void read_option_file(const std::string& path, std::vector<GivenOption>& given,
                      std::vector<std::pair<std::string, std::string>>& environment,
                      std::vector<base::Problem>& problems);

/// The same from text; `json` chooses the reader, `where` names the file in messages.
void parse_option_text(std::string_view text, bool json, const std::string& where,
                       std::vector<GivenOption>& given,
                       std::vector<std::pair<std::string, std::string>>& environment,
                       std::vector<base::Problem>& problems);

}  // namespace longhaul::config
