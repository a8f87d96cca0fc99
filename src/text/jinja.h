// Jinja templates as model folders carry them (`chat_template`): the subset that chat templates
// use, rendered as Python's jinja2 does with transformers' settings. What is not in the subset is
// refused, never rendered wrong.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"

namespace longhaul::text {

class JinjaTemplate {
 public:
  /// UserError `where:line` for malformed source or a construct we do not know.
  static JinjaTemplate parse(std::string_view source, std::string where);

  /// Renders with the members of a JSON object as variables; UserError `where:line`.
  [[nodiscard]] std::string render(const base::OrderedJson& variables) const;

 private:
  struct Parts;
  explicit JinjaTemplate(std::shared_ptr<const Parts> parts) : parts_(std::move(parts)) {}
  std::shared_ptr<const Parts> parts_;
};

}  // namespace longhaul::text
