#include "dist/variables.h"

#include <algorithm>

#include "dist/rendezvous.h"

namespace longhaul::dist {
namespace {

bool is_variable(const std::string& text, const std::string& name) {
  return text.size() > name.size() && text[name.size()] == '=' && text.starts_with(name);
}

bool has_variable(const std::vector<std::string>& variables, const std::string& name) {
  return std::any_of(variables.begin(), variables.end(),
                     [&](const std::string& text) { return is_variable(text, name); });
}

}  // namespace

void set_if_absent(std::vector<std::string>& variables, const std::string& name,
                   const std::string& value) {
  if (!has_variable(variables, name)) {
    variables.push_back(name + '=' + value);
  }
}

void set_always(std::vector<std::string>& variables, const std::string& name,
                const std::string& value) {
  std::erase_if(variables, [&](const std::string& text) { return is_variable(text, name); });
  variables.push_back(name + '=' + value);
}

void set_launch_variables(std::vector<std::string>& variables, const std::filesystem::path& folder,
                          std::int64_t terminal_columns) {
  set_always(variables, kLaunchFolderVariable, folder.string());
  set_always(variables, kTerminalColumnsVariable, std::to_string(terminal_columns));
}

void set_thread_variables(std::vector<std::string>& variables, std::int64_t cores,
                          std::int64_t ranks) {
  set_if_absent(variables, "OMP_NUM_THREADS", std::to_string(default_threads(cores, ranks)));
  if (!has_variable(variables, "OMP_WAIT_POLICY")) {
    set_if_absent(variables, kSpinVariable, kSpinCount);
  }
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) {
    pointers.push_back(const_cast<char*>(text.c_str()));  // exec takes, but does not write, char*
  }
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace longhaul::dist
