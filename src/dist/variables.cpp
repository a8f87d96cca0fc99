#include "dist/variables.h"

#include <algorithm>

namespace longhaul::dist {
namespace {

bool is_variable(const std::string& text, const std::string& name) {
  return text.size() > name.size() && text[name.size()] == '=' && text.starts_with(name);
}

}  // namespace

void set_if_absent(std::vector<std::string>& variables, const std::string& name,
                   const std::string& value) {
  const bool is_set = std::any_of(variables.begin(), variables.end(),
                                  [&](const std::string& text) { return is_variable(text, name); });
  if (!is_set) {
    variables.push_back(name + '=' + value);
  }
}

void set_always(std::vector<std::string>& variables, const std::string& name,
                const std::string& value) {
  std::erase_if(variables, [&](const std::string& text) { return is_variable(text, name); });
  variables.push_back(name + '=' + value);
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
