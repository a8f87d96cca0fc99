// Renders a template source with a fixed set of variables; the expectations in the tests are jinja2's output.
#pragma once

#include <string>

#include "base/json.h"
#include "text/jinja.h"

namespace longhaul::text {

inline base::OrderedJson jinja_variables() {
  return base::OrderedJson::parse(R"({
    "a": 3, "b": -7, "f": 2.5, "t": true, "n": null, "s": "Hello", "u": "größer ☃",
    "l": [1, 2, 3, 4, 5], "d": {"x": 1, "items": "key"},
    "messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]})");
}

inline std::string rendered(const std::string& source) {
  return JinjaTemplate::parse(source, "chat_template").render(jinja_variables());
}

}  // namespace longhaul::text
