#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "text/added_tokens.h"
#include "text/bpe_model.h"
#include "text/byte_level.h"
#include "text/json_fields.h"
#include "text/pattern_translation.h"
#include "text/pre_tokenizer.h"
#include "text/unicode.h"

namespace longhaul::text {
namespace {

/// Memory of one running encode call.
struct Scratch {
  SplitScratch split;
  WordCache cache;
  std::vector<TextPart> raw_parts;
  std::vector<TextPart> normal_parts;
};

/// Scratch memories that calls borrow and give back, so that threads share nothing while they work.
class ScratchPool {
 public:
  std::unique_ptr<Scratch> borrow() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      return std::make_unique<Scratch>();
    }
    std::unique_ptr<Scratch> scratch = std::move(free_.back());
    free_.pop_back();
    return scratch;
  }
  void give_back(std::unique_ptr<Scratch> scratch) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> free_;
};

/// True when the normalizer is NFC, false when there is none.
bool parse_normalizer(const base::Json& spec, const std::string& where, int depth = 0) {
  const JsonFields fields(spec, where);
  const std::string type = fields.string("type");
  if (type == "NFC") {
    fields.allow_only({"type"});
    return true;
  }
  if (type == "Sequence" && depth < 8) {
    fields.allow_only({"type", "normalizers"});
    const base::Json& steps = fields.require("normalizers");
    if (!steps.is_array()) {
      throw base::UserError(base::Problem{
          .where = where, .what = "'normalizers' is not a list", .got = shown(steps)});
    }
    bool nfc = false;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      nfc = parse_normalizer(steps[i], fmt::format("{}[{}]", where, i), depth + 1) || nfc;
    }
    return nfc;
  }
  throw base::UserError(base::Problem{.where = where,
                                      .what = "unsupported component",
                                      .got = type,
                                      .expected = "NFC or a Sequence of it"});
}

void check_decoder(const base::Json* spec, const std::string& where, int depth = 0) {
  if (spec == nullptr) {
    return;
  }
  const JsonFields fields(*spec, where);
  const std::string type = fields.string("type");
  if (type == "Sequence" && depth < 8) {
    const base::Json& steps = fields.require("decoders");
    if (steps.is_array() && steps.size() == 1) {
      check_decoder(&steps[0], where + "[0]", depth + 1);
      return;
    }
  }
  if (type != "ByteLevel") {
    throw base::UserError(base::Problem{
        .where = where, .what = "unsupported component", .got = type, .expected = "ByteLevel"});
  }
}

/// What an id stands for when decoding: bytes, whether skip_special drops it, whether it exists.
struct IdEntry {
  std::string bytes;
  bool special = false;
};

}  // namespace

struct Tokenizer::Parts {
  std::string identity;
  std::string where;
  bool nfc = false;
  PreTokenizer pre_tokenizer;
  BpeModel model;
  std::vector<AddedToken> added;
  TokenFinder raw_tokens;     // found before the normalizer
  TokenFinder normal_tokens;  // found after it
  std::vector<IdEntry> entries;
  mutable ScratchPool pool;

  explicit Parts(const SplitPattern& word_character)
      : raw_tokens(word_character), normal_tokens(word_character) {}

  void add_token_finders();
  void fill_entries();
  void encode_normal(std::string_view text, Scratch& scratch, std::vector<std::int32_t>& out) const;
};

void Tokenizer::Parts::add_token_finders() {
  // Special tokens first: of two tokens with the same text in the search, the reference takes that
  // order.
  for (const bool special : {true, false}) {
    for (const AddedToken& token : added) {
      if (token.special != special) {
        continue;
      }
      if (token.normalized) {
        normal_tokens.add(nfc ? to_nfc(token.content) : token.content, token);
      } else {
        raw_tokens.add(token.content, token);
      }
    }
  }
}

void Tokenizer::Parts::fill_entries() {
  std::int32_t largest = -1;
  for (const auto& [text, id] : model.vocabulary()) {
    largest = std::max(largest, id);
  }
  for (const AddedToken& token : added) {
    largest = std::max(largest, token.id);
  }
  entries.resize(static_cast<std::size_t>(largest) + 1);
  const auto set = [this](std::int32_t id, const std::string& text, bool special) {
    // A text with a character outside the byte table (`｜`) stands for itself.
    entries[static_cast<std::size_t>(id)] = {from_byte_level(text).value_or(text), special};
  };
  for (const auto& [text, id] : model.vocabulary()) {
    set(id, text, false);
  }
  for (const AddedToken& token : added) {
    set(token.id, token.content,
        token.special || entries[static_cast<std::size_t>(token.id)].special);
  }
}

void Tokenizer::Parts::encode_normal(std::string_view text, Scratch& scratch,
                                     std::vector<std::int32_t>& out) const {
  pre_tokenizer.split(text, scratch.split);
  for (const std::string_view word : scratch.split.words) {
    model.encode_word(word, scratch.cache, out);
  }
}

Tokenizer Tokenizer::load(const std::filesystem::path& model_folder) {
  const std::filesystem::path path = model_folder / "tokenizer.json";
  std::error_code ignored;
  if (std::filesystem::is_directory(model_folder, ignored) &&
      !std::filesystem::exists(path, ignored)) {
    throw base::UserError(
        base::Problem{.where = path.string(),
                      .what = "the model folder has no tokenizer.json",
                      .hint = "Tokenizers in other files (tokenizer.model, vocab.json alone) "
                              "are not supported"});
  }
  return parse(base::read_file(path), path.string());
}

Tokenizer Tokenizer::parse(std::string_view json_text, const std::string& where) {
  const base::Json document = base::parse_json(json_text, where);
  const JsonFields fields(document, where);
  fields.allow_only({"version", "truncation", "padding", "added_tokens", "normalizer",
                     "pre_tokenizer", "post_processor", "decoder", "model"});
  if (const auto version = fields.optional_string("version"); version && *version != "1.0") {
    throw base::UserError(base::Problem{
        .where = where, .what = "unknown version", .got = *version, .expected = "1.0"});
  }
  auto parts = std::make_shared<Parts>(
      SplitPattern::members(word_character_members(), where + ": word characters"));
  parts->where = where;
  parts->identity = base::checksum_text(json_text);
  if (const base::Json* const normalizer = fields.find("normalizer")) {
    parts->nfc = parse_normalizer(*normalizer, where + ": normalizer");
  }
  parts->pre_tokenizer =
      PreTokenizer::parse(fields.require("pre_tokenizer"), where + ": pre_tokenizer");
  check_decoder(fields.find("decoder"), where + ": decoder");
  parts->model = BpeModel::parse(fields.require("model"), where + ": model");
  if (const base::Json* const added = fields.find("added_tokens")) {
    parts->added = parse_added_tokens(*added, parts->model.vocabulary(), where + ": added_tokens");
  }
  parts->add_token_finders();
  parts->fill_entries();
  return Tokenizer(std::move(parts));
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  encode_to(text, ids);
  return ids;
}

void Tokenizer::encode_to(std::string_view text, std::vector<std::int32_t>& out) const {
  if (!base::is_valid_utf8(text)) {
    throw base::UserError(
        base::Problem{.where = "text to tokenize", .what = "not well-formed UTF-8"});
  }
  std::unique_ptr<Scratch> scratch = parts_->pool.borrow();
  scratch->raw_parts.clear();
  parts_->raw_tokens.split(text, scratch->split.match, scratch->raw_parts);
  std::string normalized;
  for (const TextPart& raw : scratch->raw_parts) {
    if (raw.id) {
      out.push_back(*raw.id);
      continue;
    }
    std::string_view part = raw.text;
    if (parts_->nfc && !is_surely_nfc(part)) {
      normalized = to_nfc(part);
      part = normalized;
    }
    scratch->normal_parts.clear();
    parts_->normal_tokens.split(part, scratch->split.match, scratch->normal_parts);
    for (const TextPart& normal : scratch->normal_parts) {
      if (normal.id) {
        out.push_back(*normal.id);
      } else {
        parts_->encode_normal(normal.text, *scratch, out);
      }
    }
  }
  parts_->pool.give_back(std::move(scratch));
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::string bytes;
  for (const std::int32_t id : ids) {
    if (!(skip_special && is_special(id))) {
      bytes += bytes_of(id);
    }
  }
  return to_utf8_lossy(bytes);
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  const auto at = std::find_if(parts_->added.begin(), parts_->added.end(),
                               [token](const AddedToken& row) { return row.content == token; });
  if (at != parts_->added.end()) {
    return at->id;
  }
  const auto known = parts_->model.vocabulary().find(token);
  return known == parts_->model.vocabulary().end() ? std::nullopt : std::optional(known->second);
}

std::string_view Tokenizer::bytes_of(std::int32_t id) const {
  const auto index = static_cast<std::size_t>(id);
  return id >= 0 && index < parts_->entries.size() ? std::string_view(parts_->entries[index].bytes)
                                                   : std::string_view();
}

bool Tokenizer::is_special(std::int32_t id) const {
  const auto index = static_cast<std::size_t>(id);
  return id >= 0 && index < parts_->entries.size() && parts_->entries[index].special;
}

std::int64_t Tokenizer::num_ids() const {
  return static_cast<std::int64_t>(parts_->entries.size());
}

const std::string& Tokenizer::identity() const { return parts_->identity; }

}  // namespace longhaul::text
