#include "train/rank_agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/contains.h"
#include "base/error.h"
#include "config/options.h"

namespace longhaul::train {
namespace {

using base::contains;
using base::OrderedJson;

constexpr std::array<std::string_view, 4> kOfAHost = {"cache_dir", "dataset_num_proc",
                                                      "gpu_memory_limit", "host_memory_limit"};
constexpr std::array<std::string_view, 7> kPaths = {"model",
                                                    "adapters",
                                                    "dataset",
                                                    "val_dataset",
                                                    "output_dir",
                                                    "custom_dataset_info",
                                                    "resume_from_checkpoint"};

/// What every rank has, by rank.
std::vector<std::string> gather(const std::string& mine, dist::Communicator& world) {
  const auto ranks = static_cast<std::size_t>(world.size());
  constexpr std::int64_t kSizeBytes = sizeof(std::int64_t);
  const auto size = static_cast<std::int64_t>(mine.size());
  std::vector<std::int64_t> sizes(ranks);
  world.all_gather("compare the ranks' settings", &size, kSizeBytes, sizes.data(),
                   std::vector<std::int64_t>(ranks, kSizeBytes));
  std::string all;
  std::int64_t total = 0;
  for (const std::int64_t bytes : sizes) {
    total += bytes;
  }
  all.resize(static_cast<std::size_t>(total));
  world.all_gather("compare the ranks' settings", mine.data(), size, all.data(), sizes);
  std::vector<std::string> texts;
  std::size_t begin = 0;
  for (const std::int64_t bytes : sizes) {
    texts.push_back(all.substr(begin, static_cast<std::size_t>(bytes)));
    begin += static_cast<std::size_t>(bytes);
  }
  return texts;
}

/// A name whose values differ between rank 0 and `rank`.
struct Difference {
  std::string name;
  std::string values;
};

std::string value_text(const OrderedJson& values, const std::string& name) {
  if (!values.contains(name)) {
    return "absent";
  }
  return values[name].is_string() ? values[name].get<std::string>() : values[name].dump();
}

/// What the user wrote comes first: other values follow from it.
Difference difference_between(const OrderedJson& first, const OrderedJson& other,
                              std::size_t rank) {
  for (const char* part : {"written", "values"}) {
    for (const auto* names : {&first[part], &other[part]}) {
      for (const auto& [name, value] : names->items()) {
        const std::string of_first = value_text(first["values"], name);
        const std::string of_other = value_text(other["values"], name);
        if (of_first != of_other) {
          return {.name = name,
                  .values = fmt::format("{} on rank 0, {} on rank {}", of_first, of_other, rank)};
        }
      }
    }
  }
  return {};
}

/// `values` by name; the names in `written` go first.
std::optional<Difference> find_difference(const OrderedJson& values, const OrderedJson& written,
                                          dist::Communicator& world) {
  if (world.size() == 1) {
    return std::nullopt;
  }
  const OrderedJson mine = {{"written", written}, {"values", values}};
  const std::vector<std::string> texts = gather(mine.dump(), world);
  const OrderedJson first = OrderedJson::parse(texts[0]);
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    const OrderedJson other = OrderedJson::parse(texts[rank]);
    if (first["values"] != other["values"]) {
      return difference_between(first, other, rank);
    }
  }
  return std::nullopt;
}

}  // namespace

void check_options_agree(const config::Config& config, dist::Communicator& world) {
  OrderedJson values = OrderedJson::object();
  const OrderedJson options = config::options_json(config);
  for (const auto& [name, value] : options.items()) {
    if (contains(kPaths, name)) {
      values[name] = value.empty() || value == "" ? "not given" : "given";
    } else if (!contains(kOfAHost, name)) {
      values[name] = value;
    }
  }
  OrderedJson written = OrderedJson::object();
  for (const auto& [name, text] : config.given) {
    written[name] = text;
  }
  if (const auto difference = find_difference(values, written, world)) {
    throw base::UserError({.where = "--" + difference->name,
                           .what = "differs between the ranks",
                           .got = difference->values,
                           .hint = "Start every rank with the same options"});
  }
}

void check_contents_agree(const OrderedJson& contents, dist::Communicator& world) {
  if (const auto difference = find_difference(contents, OrderedJson::object(), world)) {
    throw base::UserError({.where = difference->name,
                           .what = "differs between the ranks",
                           .got = difference->values,
                           .hint = "Give every host the same files"});
  }
}

}  // namespace longhaul::train
