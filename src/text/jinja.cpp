#include "text/jinja.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "text/jinja_ast.h"
#include "text/jinja_evaluator.h"
#include "text/jinja_parser.h"

namespace longhaul::text {

struct JinjaTemplate::Parts {
  std::string where;
  std::vector<jinja::StmtPtr> statements;
};

JinjaTemplate JinjaTemplate::parse(std::string_view source, std::string where) {
  if (!base::is_valid_utf8(source)) {
    throw base::UserError(base::Problem{.where = where, .what = "not well-formed UTF-8"});
  }
  auto parts = std::make_shared<Parts>();
  parts->where = std::move(where);
  parts->statements = jinja::parse_template(source, parts->where);
  return JinjaTemplate(std::move(parts));
}

std::string JinjaTemplate::render(const base::OrderedJson& variables) const {
  try {
    const jinja::Value values = jinja::Value::from_json(variables);
    LONGHAUL_ASSERT(values.as_dict() != nullptr, "template variables must be an object");
    return jinja::Evaluator(parts_->where).run(parts_->statements, *values.as_dict());
  } catch (const jinja::Fault& fault) {
    throw base::UserError(base::Problem{.where = parts_->where, .what = fault.what()});
  }
}

}  // namespace longhaul::text
