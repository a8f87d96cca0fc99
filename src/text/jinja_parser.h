// Jinja source → statements. Tags that chat templates do not use (include, block, import …) are
// refused by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_ast.h"

namespace longhaul::text::jinja {

/// The statements of a template; UserError `where:line` naming what is malformed or unknown.
std::vector<StmtPtr> parse_template(std::string_view source, const std::string& where);

}  // namespace longhaul::text::jinja
