// A file of options is a flat map. Lists become several words, nested maps (columns,
// lr_scheduler_kwargs) become their JSON text, null means "not given". YAML and JSON end in the
// same OrderedJson before anything is looked at.
#include "config/option_file.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <set>

#include "base/file.h"
#include "base/json.h"
#include "config/json_fields.h"

namespace longhaul::config {
namespace {

using Lines = std::map<std::string, std::size_t>;

constexpr int kDeepestYaml = 32;
/// Aliases let a short YAML text stand for an endless one.
constexpr std::size_t kMostYamlNodes = 100000;

class YamlReader {
 public:
  explicit YamlReader(std::string where) : where_(std::move(where)) {}

  /// Node → JSON; plain scalars stay texts, because the option's row knows their type.
  base::OrderedJson convert(const YAML::Node& node, int depth) {
    if (++nodes_ > kMostYamlNodes || depth > kDeepestYaml) {
      throw fault(node.Mark(), "nested too deeply or too large for a file of options");
    }
    if (node.IsMap()) {
      base::OrderedJson object = base::OrderedJson::object();
      for (const auto& item : node) {
        if (!item.first.IsScalar()) {
          throw fault(item.first.Mark(), "key is not a word");
        }
        const auto key = item.first.as<std::string>();
        if (object.contains(key)) {
          throw fault(item.first.Mark(), fmt::format("{} is given twice", key));
        }
        object[key] =
            depth > 0 ? nested_scalar(item.second, depth) : convert(item.second, depth + 1);
      }
      return object;
    }
    if (node.IsSequence()) {
      base::OrderedJson list = base::OrderedJson::array();
      for (const auto& item : node) {
        list.push_back(convert(item, depth + 1));
      }
      return list;
    }
    return node.IsNull() ? base::OrderedJson(nullptr) : base::OrderedJson(node.as<std::string>());
  }

  [[nodiscard]] base::UserError fault(const YAML::Mark& mark, std::string what) const {
    return base::UserError(
        {.where = mark.is_null() ? where_ : fmt::format("{}:{}", where_, mark.line + 1),
         .what = std::move(what)});
  }

 private:
  /// Inside a nested map the text becomes JSON, so an unquoted number or boolean must stay one.
  base::OrderedJson nested_scalar(const YAML::Node& node, int depth) {
    if (node.IsScalar() && node.Tag() == "?") {
      base::JsonFault ignored;
      const auto value = base::try_parse_ordered_json(node.as<std::string>(), ignored);
      if (value && value->is_primitive()) {
        return *value;
      }
    }
    return convert(node, depth + 1);
  }

  std::string where_;
  std::size_t nodes_ = 0;
};

void note_yaml_lines(const YAML::Node& root, Lines& lines) {
  for (const auto& item : root) {
    const auto key = item.first.as<std::string>();
    lines[key] = static_cast<std::size_t>(item.first.Mark().line) + 1;
    if (item.second.IsMap()) {
      for (const auto& inner : item.second) {
        if (inner.first.IsScalar()) {
          lines[key + "." + inner.first.as<std::string>()] =
              static_cast<std::size_t>(inner.first.Mark().line) + 1;
        }
      }
    }
  }
}

base::OrderedJson parse_yaml(std::string_view text, const std::string& where, Lines& lines) {
  YamlReader reader(where);
  try {
    const std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    for (std::size_t i = 1; i < documents.size(); ++i) {
      if (!documents[i].IsNull()) {
        throw reader.fault(documents[i].Mark(), "a second YAML document; options are one map");
      }
    }
    const YAML::Node root = documents.empty() ? YAML::Node() : documents.front();
    base::OrderedJson object = reader.convert(root, 0);
    if (object.is_object()) {
      note_yaml_lines(root, lines);
    }
    return object;
  } catch (const YAML::Exception& error) {
    throw reader.fault(error.mark, "not valid YAML: " + error.msg);
  }
}

std::string word_of(const base::OrderedJson& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::vector<std::string> words_of(const base::OrderedJson& value) {
  if (!value.is_array()) {
    return {word_of(value)};
  }
  std::vector<std::string> words;
  for (const base::OrderedJson& item : value) {
    words.push_back(word_of(item));
  }
  return words;
}

void read_environment(const base::OrderedJson& value, const std::string& where,
                      std::vector<std::pair<std::string, std::string>>& environment,
                      std::vector<base::Problem>& problems) {
  if (!value.is_object()) {
    problems.push_back({.where = where, .what = "not a map of environment variables"});
    return;
  }
  for (const auto& [name, item] : value.items()) {
    const bool usable =
        !name.empty() && name.find_first_of(std::string("=\0", 2)) == std::string::npos;
    if (!usable || item.is_structured() || item.is_null()) {
      problems.push_back({.where = where,
                          .what = "not the name and value of an environment variable",
                          .got = name});
      continue;
    }
    environment.emplace_back(name, word_of(item));
  }
}

}  // namespace

bool is_option_file(std::string_view word) {
  return !word.starts_with("-") &&
         (word.ends_with(".yaml") || word.ends_with(".yml") || word.ends_with(".json"));
}

void read_option_file(const std::string& path, std::vector<GivenOption>& given,
                      std::vector<std::pair<std::string, std::string>>& environment,
                      std::vector<base::Problem>& problems) {
  std::string text;
  try {
    text = base::read_file(path);
  } catch (const base::UserError& error) {
    problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    return;
  }
  parse_option_text(text, path.ends_with(".json"), path, given, environment, problems);
}

void parse_option_text(std::string_view text, bool json, const std::string& where,
                       std::vector<GivenOption>& given,
                       std::vector<std::pair<std::string, std::string>>& environment,
                       std::vector<base::Problem>& problems) {
  Lines lines;
  base::OrderedJson object;
  try {
    if (!base::is_valid_utf8(text)) {
      throw base::UserError({.where = where, .what = "not valid UTF-8"});
    }
    object = json ? base::parse_ordered_json(text, where) : parse_yaml(text, where, lines);
  } catch (const base::UserError& error) {
    problems.insert(problems.end(), error.problems().begin(), error.problems().end());
    return;
  }
  if (json && object.is_object()) {
    lines = key_lines(text);
  }
  if (!object.is_object()) {
    if (!object.is_null()) {
      problems.push_back({.where = where, .what = "not a map of options"});
    }
    return;
  }
  for (const auto& [key, value] : object.items()) {
    const auto line = lines.find(key);
    const std::string place = line == lines.end()
                                  ? fmt::format("{}: {}", where, key)
                                  : fmt::format("{}:{}: {}", where, line->second, key);
    if (key == "ENV") {
      read_environment(value, place, environment, problems);
    } else if (!value.is_null()) {
      given.push_back({.name = key, .words = words_of(value), .where = place});
    }
  }
}

}  // namespace longhaul::config
